"""The fused engine's Triton kernels: on CUDA where there is a GPU, else through Triton's interpreter and compiler.

On a machine with a GPU, `python -m pytest tests/test_fused_gpu.py` is the whole check. The tests of what the kernels
compute are at the end of the file. They run twice: here, on CUDA, or skipped; and, CUDA or not, on CPU tensors through
the interpreter, in a process of its own because Triton reads TRITON_INTERPRET when it is imported. What only the
compiler would refuse is seen by compiling every kernel for an H200, which needs no GPU.
"""

from __future__ import annotations

import dataclasses
import functools
import gc
import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from graphcaps import InputError, LinearVotes, bipartite_graph, choose_engine, complete_graph, route
from graphcaps.routing import engines, fused
from graphcaps.routing.proof import Question, question_of, trial

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
ROOT = Path(__file__).parents[1]
COMPILED = {"PYTHONPATH": str(ROOT), "TRITON_INTERPRET": "0", "OMP_NUM_THREADS": "1"}
needs_triton = pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="no Triton here")


def run(*arguments: str, **environment: str) -> None:
    """Run Python on ``arguments``; fail with what it said."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")} | environment
    done = subprocess.run(
        [sys.executable, *arguments], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=600
    )
    said = done.stdout + done.stderr
    assert done.returncode == 0, said


@needs_triton
@pytest.mark.fact(12)
@pytest.mark.parametrize(
    ("which", "names"),
    [
        # of each of the two arrangements, one forward and backward pass
        pytest.param("not long", "sparse_graph_routes and 3 or not_built and shared", id="small"),
        pytest.param("not long", "not alone", id="quick", marks=pytest.mark.long),
        pytest.param("long", "not alone and not many_children", id="long", marks=pytest.mark.release),
        pytest.param("long", "many_children", id="blocks", marks=pytest.mark.long),
    ],
)
def test_all_that_follows_holds_in_the_interpreter_alone(which, names):
    pytest_here = "-m", "pytest", "-q", "-p", "no:cacheprovider", "--maxfail=3", str(Path(__file__))
    run(*pytest_here, "-k", names, "-m", which, TRITON_INTERPRET="1", OMP_NUM_THREADS="1")


COMPILE = """
import os, re, subprocess, sys, tempfile
import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.runtime.driver import driver
from triton.runtime.jit import JITFunction

capability, shared, most_spilled = map(int, sys.argv[1:4])

class Target:
    get_current_target = lambda self: GPUTarget("cuda", capability, 32)
    get_current_device = lambda self: 0
    get_current_stream = lambda self, device=None: 0

driver.set_active(Target())
launch, compiled, made = JITFunction.run, set(), {}

def spilled(kernel):
    ptxas = os.environ.get("TRITON_PTXAS_PATH") or os.path.join(triton.__path__[0], "backends/nvidia/bin/ptxas")
    target = f"sm_{capability}" + ("a" if capability >= 90 else "")
    with tempfile.NamedTemporaryFile("w", suffix=".ptx") as file:
        file.write(kernel.asm["ptx"])
        file.flush()
        asked = [ptxas, "-v", "--gpu-name", target, file.name, "-o", os.devnull]
        said = subprocess.run(asked, stderr=subprocess.PIPE, text=True, check=True).stderr
    return max(map(int, re.findall(r"(\\d+) bytes spill", said)))

def compile_only(self, *arguments, grid, warmup, **options):
    kernel = launch(self, *arguments, grid=grid, warmup=True, **options)
    name = self.fn.__name__
    assert "cubin" in kernel.asm
    assert kernel.metadata.shared <= shared, (name, kernel.metadata.shared, options)
    if name == "over_children" and options["PRODUCT"] == "tf32":
        needs = fused_gpu_launch.shared_for_votes(options, options["votes"].element_size())
        assert kernel.metadata.shared <= needs, (kernel.metadata.shared, needs)
        assert kernel.metadata.shared > 0.8 * needs or needs < 2**15, (kernel.metadata.shared, needs)
    compiled.add(name)
    if kernel.hash not in made and most_spilled >= 0:
        assert spilled(kernel) <= most_spilled, (name, spilled(kernel), options)
    made[kernel.hash] = name, {key: x for key, x in options.items() if not isinstance(x, torch.Tensor)}

JITFunction.run = compile_only
from graphcaps import LinearVotes, bipartite_graph, complete_graph, route
from graphcaps.routing import fused
from graphcaps.routing.fused.cuda import dynamic as fused_gpu, launch as fused_gpu_launch
fused.MODULES["cpu"] = "cuda.dynamic"
fused_gpu_launch.shared_memory = lambda device: shared

def leaf(*shape, dtype):
    return torch.randn(shape).to(dtype).requires_grad_()

def both_ways(graph, votes, *leaves):
    torch.autograd.grad(route(graph, votes, engine="fused").v.sum(), leaves)

def given(graph, dtype):
    votes = leaf(graph.num_edges(), 5, 7, dtype=dtype)
    both_ways(graph, votes, votes)

def linear(graph, weight, dtype, batch=5):
    u, weight = leaf(graph.num_src_nodes(), batch, weight[-2], dtype=dtype), leaf(*weight, dtype=dtype)
    both_ways(graph, LinearVotes(u, weight), u, weight)
"""
KERNELS = """
sparse, complete = bipartite_graph([0, 0, 2, 2, 1], [1, 0, 1, 1, 1], 4, 3), complete_graph(5, 3)
given(sparse, torch.float32)
given(complete, torch.bfloat16)
linear(complete, (15, 8, 16), torch.float32)
linear(complete_graph(1, 1), (1, 1), torch.float32)
linear(complete, (5, 3, 8, 16), torch.float64)
linear(complete, (8, 16), torch.bfloat16)
fused_gpu.SEGMENT, fused_gpu.PROGRAMS = 2, 2**31
given(bipartite_graph([0, 0, 2, 2, 1], [1, 0, 1, 1, 1], 4, 3), torch.float32)
kernels = {"couple", "over_parents", "squash_sums", "votes_gradient", "over_children", "linear_gradient"}
assert compiled == kernels, compiled
"""
WIDE = """
torch.set_float32_matmul_precision(sys.argv[4])
for layer in sys.argv[5:]:
    parents, parent_dim, child_dim, images = map(int, layer.split(","))
    linear(complete_graph(2, parents), (parents * 2, child_dim, parent_dim), torch.float32, images)
assert {"over_children", "linear_gradient"} <= compiled, compiled
"""


TRIED = """
import functools
from graphcaps.routing import engines, proof

difference = proof._difference
proof._difference = lambda *asked: difference(*asked) and ""  # nothing runs here: all numbers are wrong

def route_after_trial(graph, *votes):
    leaves = [leaf(*shape, dtype=torch.float32) for shape in votes]
    votes = LinearVotes(*leaves) if len(leaves) > 1 else leaves[0]
    num_parents, edges = graph.num_dst_nodes(), graph.num_edges()
    question = proof.question_of("dynamic", votes, num_parents, edges == num_parents * graph.num_src_nodes())
    exact = functools.partial(engines.run, "dynamic", "torch")
    assert proof.trial(question, "cpu", engines.ROUTINGS["dynamic"].fused, exact, fused_gpu.few_programs) == ""
    tried = set(made)
    prior = leaf(edges, leaves[0].shape[1], dtype=torch.float32)
    for options in ({}, {"prior": prior}, {"iterations": 1}, {"on_iteration": lambda *state: None}):
        torch.autograd.grad(route(graph, votes, engine="fused", **options).v.sum(), leaves)
    untried = [made[kernel] for kernel in set(made) - tried]
    assert tried and not untried, (len(untried), untried)

def graph_of(edges, children, parents):
    return bipartite_graph(torch.randint(children, (edges,)), torch.randint(parents, (edges,)), children, parents)
"""


@needs_triton
@pytest.mark.parametrize(
    "layer",
    [
        pytest.param("complete_graph(1152, 10), (1152, 128, 8), (11520, 8, 16)", marks=pytest.mark.long),
        pytest.param("complete_graph(100, 2), (100, 100, 3), (2, 2, 3, 4)", marks=pytest.mark.release),
        pytest.param("complete_graph(7, 3), (7, 1, 8), (8, 5)", marks=pytest.mark.release),
        pytest.param("complete_graph(35, 10), (350, 13, 16)", marks=pytest.mark.long),
        pytest.param("graph_of(20_001, 301, 33), (20_001, 1, 16)", marks=pytest.mark.release),
        pytest.param("graph_of(1001, 501, 405), (1001, 20, 7)", marks=pytest.mark.long),
    ],
)
def test_kernels_that_a_layer_is_routed_with_were_tried_alone(tmp_path, layer):
    asked = "90", str(227 * 1024), "-1"
    run("-c", COMPILE + TRIED + f"route_after_trial({layer})", *asked, TRITON_CACHE_DIR=str(tmp_path), **COMPILED)


@needs_triton
@pytest.mark.long
def test_every_kernel_compiles_for_an_h200_alone(tmp_path):
    run("-c", COMPILE + KERNELS, "90", str(227 * 1024), "-1", TRITON_CACHE_DIR=str(tmp_path), **COMPILED)


# Bytes of shared memory that a program may ask for: NVIDIA's CUDA programming guide, table of compute capabilities.
SHARED = {80: 163 * 1024, 86: 99 * 1024, 90: 227 * 1024, 100: 227 * 1024}
PAPER = "10,16,8,128"  # J, D, P and B of the paper's layer


# Bytes of a thread, found with Triton 3.8: 8 for compute capability 8.6 in full precision, 48 for 9.0 in tf32; else 0.
@needs_triton
@pytest.mark.parametrize(
    ("capability", "precision", "spilled"),
    [
        (86, "highest", 16),
        pytest.param(86, "high", 0, marks=pytest.mark.long),
        pytest.param(80, "high", 0, marks=pytest.mark.long),
        pytest.param(90, "high", 64, marks=pytest.mark.release),
    ],
)
def test_the_papers_layer_spills_next_to_nothing_alone(tmp_path, capability, precision, spilled):
    asked = str(capability), str(SHARED[capability]), str(spilled), precision, PAPER
    run("-c", COMPILE + WIDE, *asked, TRITON_CACHE_DIR=str(tmp_path), **COMPILED)


# Found with Triton 3.8: at most 180 bytes of a thread, for compute capability 8.0 and J = 64, D = 16 in tf32.
SPILLED = 256


@needs_triton
@pytest.mark.parametrize(
    ("capability", "precision"),
    [
        pytest.param(80, "highest", marks=pytest.mark.release),
        pytest.param(80, "high", marks=pytest.mark.long),
        pytest.param(86, "high", marks=pytest.mark.long),  # the least shared memory
        pytest.param(90, "high", marks=pytest.mark.release),
        pytest.param(100, "highest", marks=pytest.mark.release),
    ],
)
def test_wide_layers_fit_a_processors_shared_memory_and_spill_little_alone(tmp_path, capability, precision):
    # another ptxas, which not every Triton has, is for later GPUs
    asked = str(capability), str(SHARED[capability]), str(SPILLED if capability < 100 else -1), precision
    layers = "10,16,8,16", "64,16,8,16", "64,32,8,16", "1,64,128,16"
    run("-c", COMPILE + WIDE, *asked, *layers, TRITON_CACHE_DIR=str(tmp_path), **COMPILED)


@needs_triton
def test_the_gradient_of_matrices_by_index_is_not_sorted_alone():
    from graphcaps.routing.fused.cuda.dynamic import _by_type, _edges_by_parent

    graph, weight = complete_graph(4, 3), torch.zeros(5, 2, 6, requires_grad=True)
    votes = LinearVotes(torch.zeros(4, 1, 2), weight, torch.arange(12) % 5)
    step, names = _by_type(votes, _edges_by_parent(graph, torch.device("cpu"))).grad_fn, []
    while step is not None:
        names.append(step.name())
        step = step.next_functions[0][0] if step.next_functions else None
    assert any("IndexSelect" in name for name in names)  # indexing with [] would sort the index on CUDA


def test_without_triton_the_error_says_so_alone(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert fused.without_triton("cuda") == "Triton, which comes with torch on Linux,"


# What the kernels compute


@pytest.fixture
def device(monkeypatch) -> str:
    """Where the Triton engine is, with NaN in all that its tensors start from; "fused" is that engine there."""
    if not INTERPRETED:
        if not torch.cuda.is_available():
            pytest.skip("torch sees no CUDA device; the same runs through Triton's interpreter in its own process")
        if reason := fused.without_triton("cuda"):
            pytest.skip(f"expected {reason}")
    else:
        monkeypatch.setitem(fused.MODULES, "cpu", "cuda.dynamic")
    for owner, name in ((torch, "empty"), (torch, "empty_like"), (torch.Tensor, "new_empty")):
        monkeypatch.setattr(owner, name, poisoned(getattr(owner, name)))
    return "cpu" if INTERPRETED else "cuda"


def poisoned(make):
    def with_nan(*arguments, **options):
        made = make(*arguments, **options)
        return made.fill_(float("nan")) if made.is_floating_point() else made

    return with_nan


@pytest.fixture
def few_programs(device, monkeypatch):
    """Several children for each program and several programs for a batch, as large layers have them."""
    from graphcaps.routing.fused.cuda import launch as launch

    monkeypatch.setattr(launch, "PROGRAMS", 2)
    monkeypatch.setattr(launch, "TILE", 64)
    monkeypatch.setattr(launch, "GRADIENT_TILE", 64)


@pytest.fixture
def short_segments(device, monkeypatch):
    """Parents cut into segments, as those of very many in-edges are."""
    from graphcaps.routing.fused.cuda import dynamic as fused_gpu

    monkeypatch.setattr(fused_gpu, "SEGMENT", 7)
    monkeypatch.setattr(fused_gpu, "PROGRAMS", 2**31)


def sparse():
    """63 edges, some twice; child 7 and 6 and parent 0 have none. Built anew, so that its index arrays are too."""
    ends = torch.Generator().manual_seed(63)
    src, dst = torch.randint(0, 6, (63,), generator=ends), torch.randint(1, 5, (63,), generator=ends)
    return bipartite_graph(src, dst, 8, 5)


def leaf(draw, *shape, dtype=torch.float64):
    return draw(*shape, dtype=dtype).requires_grad_()


def routed(graph, votes, prior, engine, device="cpu", dtype=None, **options):
    """v and the gradients of votes (or u and weight) and prior, on the CPU and in float64, for a fixed cotangent."""
    linear = isinstance(votes, LinearVotes)
    leaves = [votes.u, votes.weight, prior] if linear else [votes, prior]
    leaves = [x.detach().to(device, dtype or x.dtype).requires_grad_() for x in leaves if x is not None]
    moved = votes.to(device)._replace(u=leaves[0], weight=leaves[1]) if linear else leaves[0]
    v = route(graph, moved, prior=None if prior is None else leaves[-1], engine=engine, **options).v
    cotangent = torch.randn(v.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    gradients = torch.autograd.grad(v, leaves, cotangent.to(v))
    return [x.detach().cpu().double() for x in (v, *gradients)]


def assert_equals_naive(graph, votes, prior, device, tolerance=1e-10, **options):
    """The oracle routes in float64."""
    wanted = routed(graph, votes, prior, "naive", dtype=torch.float64, **options)
    for got, exact in zip(routed(graph, votes, prior, "fused", device, **options), wanted, strict=True):
        torch.testing.assert_close(got, exact, rtol=tolerance, atol=tolerance)


# float32: eps is 1.2e-7; sums of at most 63 votes of length about 3, and errors that three iterations multiply by about
# 10 each, in value and once more in the gradient: 1e-3 is wide, and what a wrong index gives is of order 1.
FLOAT32 = 1e-3
# bfloat16 results are rounded to 8 bits, 4e-3 of each; float32 has been exact in comparison.
BFLOAT16 = 1e-2


@pytest.mark.parametrize("iterations", [1, 3])
def test_a_sparse_graph_routes_as_naive_in_value_and_gradient(device, iterations, draw):
    assert_equals_naive(sparse(), leaf(draw, 63, 5, 7), leaf(draw, 63, 5), device, iterations=iterations)


def test_segments_of_a_parent_add_up_to_it(device, short_segments, draw):
    assert_equals_naive(sparse(), leaf(draw, 63, 5, 7), leaf(draw, 63, 5), device)


@pytest.mark.parametrize("iterations", [1, 3])
def test_a_complete_graph_routes_as_naive_in_value_and_gradient(device, iterations, draw):
    graph = complete_graph(9, 5)
    assert_equals_naive(graph, leaf(draw, 45, 5, 7), leaf(draw, 45, 5), device, iterations=iterations)


@pytest.mark.long
@pytest.mark.parametrize("make", [sparse, lambda: complete_graph(9, 7)], ids=["sparse", "complete"])
def test_a_program_may_have_much_to_do(device, few_programs, make, draw):
    assert_equals_naive(make(), leaf(draw, 63, 11, 7), leaf(draw, 63, 11), device, iterations=2)


@pytest.mark.parametrize("trailing", [(), (2, 3)], ids=["no_batch", "batch_heads"])
@pytest.mark.parametrize("make", [sparse, lambda: complete_graph(9, 7)], ids=["sparse", "complete"])
def test_without_a_prior_and_with_any_trailing_dims(device, make, trailing, draw):
    assert_equals_naive(make(), leaf(draw, 63, *trailing, 3), None, device)


def test_a_complete_graph_of_wide_votes_routes_by_parent(device, monkeypatch, draw):
    from graphcaps.routing.fused.cuda import launch as launch

    monkeypatch.setattr(launch, "WIDEST_CHILD", 8)
    monkeypatch.setattr(launch.ByChild, "forward", None)
    assert_equals_naive(complete_graph(3, 2), leaf(draw, 6, 5, 7), leaf(draw, 6), device)


def test_matrices_too_large_for_a_program_are_multiplied_out(device, monkeypatch, draw):
    from graphcaps.routing.fused.cuda import launch as launch

    monkeypatch.setattr(launch, "WIDEST_MATRIX", 64)
    monkeypatch.setattr(launch, "linear_gradient", None)
    votes = LinearVotes(leaf(draw, 6, 3, 5), leaf(draw, 18, 5, 7))
    assert_equals_naive(complete_graph(6, 3), votes, leaf(draw, 18), device)


@pytest.mark.parametrize("make", [sparse, lambda: complete_graph(9, 7)], ids=["sparse", "complete"])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, FLOAT32), (torch.bfloat16, BFLOAT16)])
def test_votes_of_fewer_bits_are_summed_in_float32(device, make, dtype, tolerance, draw):
    votes = leaf(draw, 63, 5, 7, dtype=dtype)
    assert_equals_naive(make(), votes, leaf(draw, 63, 5, dtype=torch.float32), device, tolerance)
    seen = []
    v = route(make(), votes.to(device), engine="fused", on_iteration=lambda r, *state: seen.extend(state)).v
    assert v.dtype == dtype and {x.dtype for x in seen} == {torch.float32}


WEIGHTS = {"per edge": (18, 5, 7), "per type": (2, 3, 5, 7), "shared": (5, 7)}


@pytest.mark.parametrize("kind", WEIGHTS)
def test_linear_votes_equal_naive_and_are_not_built(device, kind, monkeypatch, draw):
    u, weight, prior = leaf(draw, 6, 3, 5), leaf(draw, *WEIGHTS[kind]), leaf(draw, 18)
    wanted = routed(complete_graph(6, 3), LinearVotes(u, weight), prior, "naive")
    monkeypatch.setattr(LinearVotes, "build", lambda self, graph: pytest.fail("the votes were built"))
    got = routed(complete_graph(6, 3), LinearVotes(u, weight), prior, "fused", device)
    torch.testing.assert_close(got, wanted, rtol=1e-10, atol=1e-10)


@pytest.mark.long
@pytest.mark.parametrize("kind", ["per type", "shared"])
def test_linear_votes_of_many_children_and_images(device, few_programs, kind, draw):
    votes = LinearVotes(leaf(draw, 6, 5, 5), leaf(draw, *WEIGHTS[kind]))
    assert_equals_naive(complete_graph(6, 3), votes, None, device, iterations=2)


@pytest.fixture
def multiply():
    """Sets torch's precision of float32 products, for this test."""
    before = torch.get_float32_matmul_precision()
    yield torch.set_float32_matmul_precision
    torch.set_float32_matmul_precision(before)


@pytest.mark.long
@pytest.mark.parametrize(
    ("kind", "dtype", "precision", "tolerance"),
    [
        ("per edge", torch.float32, "highest", FLOAT32),
        # tf32 keeps 10 bits of each factor (the interpreter all): 1e-3 in the votes, 10 times that in the end
        ("per type", torch.float32, "high", FLOAT32 if INTERPRETED else 5e-2),
        ("shared", torch.bfloat16, "highest", 3e-2),  # gradients of sums over 20 images and 18 edges, in 8 bits
    ],
    ids=["float32", "tf32", "bfloat16"],
)
@pytest.mark.parametrize("roomy", [True, False], ids=["", "little_shared_memory"])
def test_linear_votes_are_multiplied_in_their_precision(
    device, multiply, monkeypatch, kind, dtype, precision, tolerance, roomy, draw
):
    from graphcaps.routing.fused.cuda import launch as launch

    multiply(precision)
    if not roomy:
        monkeypatch.setattr(launch, "shared_memory", lambda device: 0)
    votes = LinearVotes(leaf(draw, 6, 20, 5, dtype=dtype), leaf(draw, *WEIGHTS[kind], dtype=dtype))
    assert_equals_naive(complete_graph(6, 3), votes, leaf(draw, 18, dtype=torch.float32), device, tolerance)


@pytest.mark.parametrize("kind", ["per edge", "by index"])
def test_linear_votes_on_other_graphs_are_built(device, kind, draw):
    index = torch.arange(63) * 5 % 6 if kind == "by index" else None
    votes = LinearVotes(leaf(draw, 8, 5, 4), leaf(draw, 63 if index is None else 6, 4, 3), index)
    assert_equals_naive(sparse(), votes, leaf(draw, 63), device)


def test_matrices_by_index_on_a_complete_graph_equal_naive(device, draw):
    index = torch.arange(18, dtype=torch.int32) * 5 % 7
    assert_equals_naive(
        complete_graph(6, 3), LinearVotes(leaf(draw, 6, 3, 5), leaf(draw, 7, 5, 7), index), None, device
    )


@pytest.mark.parametrize("kind", ["sparse", "complete", "linear"])
def test_an_observer_sees_what_naive_shows(device, kind, draw):
    graph = sparse() if kind == "sparse" else complete_graph(9, 7)
    votes = LinearVotes(draw(9, 3, 4), draw(63, 4, 3)) if kind == "linear" else draw(63, 3, 4)
    moved = votes.to(device)
    prior, seen = draw(63), {"naive": [], "fused": []}
    for engine, of, logits in (("naive", votes, prior), ("fused", moved, prior.to(device))):
        watch = seen[engine]
        route(graph, of, prior=logits, engine=engine, on_iteration=lambda *state, watch=watch: watch.append(state))
    for (r, *wanted), (also_r, *got) in zip(seen["naive"], seen["fused"], strict=True):
        assert r == also_r
        torch.testing.assert_close([x.cpu() for x in got], wanted, rtol=1e-10, atol=1e-10)


@pytest.mark.long
@pytest.mark.parametrize("kind", ["sparse", "complete", "linear"])
def test_two_runs_give_the_same_bits(device, kind, draw):
    graph = sparse() if kind == "sparse" else complete_graph(9, 7)
    votes = leaf(draw, 63, 5, 7)
    if kind == "linear":
        graph, votes = complete_graph(5, 3), LinearVotes(leaf(draw, 5, 2, 3), leaf(draw, 3, 2))
    first, second = (routed(graph, votes, None, "fused", device, dtype=torch.float32) for _ in range(2))
    assert all(torch.equal(*pair) for pair in zip(first, second, strict=True))


@pytest.mark.parametrize("make", [sparse, lambda: complete_graph(9, 7)], ids=["sparse", "complete"])
def test_zero_votes_have_a_finite_gradient(device, make):
    v, gradient = routed(make(), torch.zeros(63, 3, 4), None, "fused", device)
    assert not v.any() and gradient.isfinite().all()


@pytest.mark.long
@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # NumPy's, at the NaN
@pytest.mark.parametrize("make", [sparse, lambda: complete_graph(9, 7)], ids=["sparse", "complete"])
def test_a_vote_that_is_not_finite_stays_in_its_image(device, make, draw):
    votes = draw(63, 3, 4)
    clean = route(make(), votes.to(device), engine="fused").v
    votes[5, 1, 2] = float("nan")
    v = route(make(), votes.to(device), engine="fused").v
    assert torch.equal(v[:, [0, 2]], clean[:, [0, 2]]) and not v[:, 1].isfinite().all()


@pytest.mark.parametrize("shape", [(0, 4), (3, 0)], ids=["no_images", "no_numbers"])
def test_empty_votes_route_to_nothing(device, shape):
    assert route(sparse(), torch.zeros(63, *shape, device=device), engine="fused").v.shape == (5, *shape)


def test_a_second_derivative_is_refused(device, draw):
    votes = leaf(draw, 6, 4).to(device)
    (gradient,) = torch.autograd.grad(
        route(complete_graph(3, 2), votes, engine="fused").v.sum(), votes, create_graph=True
    )
    with pytest.raises(RuntimeError, match="second derivative.*engine='torch'"):
        gradient.sum().backward()


def test_index_arrays_are_taken_once_and_go_with_the_graph(device, draw):
    from graphcaps.routing.fused.cuda import dynamic as fused_gpu

    gc.collect()
    graph, votes, before = sparse(), draw(63, 1, 2).to(device), len(fused_gpu._edges_by_parent.kept)
    for _ in range(2):
        route(graph, votes, engine="fused", iterations=1)
    assert len(fused_gpu._edges_by_parent.kept) == before + 1
    del graph
    gc.collect()
    assert len(fused_gpu._edges_by_parent.kept) == before


QUESTIONS = {
    "sparse": Question("dynamic", "given", "float32", "float32", 0, 5, 0, 3, 2),
    "complete": Question("dynamic", "given", "bfloat16", "bfloat16", 3, 5, 0, 7, 4),
    "uniform": Question("uniform", "given", "float64", "float64", 3, 5, 0, 7, 4),
    "per edge": Question("dynamic", "per edge", "float32", "float32", 3, 5, 4, 19, 0),
    "per type": Question("dynamic", "per type", "float32", "tf32", 3, 5, 4, 19, 0),
    "shared": Question("dynamic", "shared", "bfloat16", "bfloat16", 3, 5, 4, 19, 0),
}


def tried(kind: str, device: str) -> str:
    from graphcaps.routing.fused.cuda.dynamic import few_programs

    question = QUESTIONS[kind]
    exact = functools.partial(engines.run, question.routing, "torch")
    return trial(question, device, engines.ROUTINGS[question.routing].fused, exact, few_programs)


@pytest.mark.parametrize(
    "kind", [pytest.param(k, marks=[pytest.mark.long] if k != "complete" else []) for k in QUESTIONS]
)
def test_the_engine_proves_itself(device, kind):
    assert tried(kind, device) == ""


@pytest.mark.long
def test_a_kernel_with_a_wrong_index_does_not_pass(device, monkeypatch):
    from graphcaps.routing.fused.cuda import dynamic as fused_gpu

    def shifted(graph, device):
        edges = arrays(graph, device)
        return dataclasses.replace(edges, eid=edges.eid.roll(1))

    arrays = fused_gpu._edges_by_parent
    monkeypatch.setattr(fused_gpu, "_edges_by_parent", shifted)
    assert "off by" in tried("sparse", device)


# Each is right on its first trip through the loop and wrong on the second.
SECOND_TRIPS = {
    "children": (
        "kernels_complete.py",
        "            sums += share[:, :, None] * u_hat\n",
        "            sums = share[:, :, None] * u_hat\n",
        "per edge",
    ),
    "images of a matrix": (
        "kernels_complete.py",
        "            total += _matmul(tl.trans(left), du_hat, PRODUCT)\n",
        "            total = _matmul(tl.trans(left), du_hat, PRODUCT)\n",
        "shared",
    ),
    "segments": (
        "kernels.py",
        "begin = tl.load(part_starts + parent).to(tl.int64)",
        "begin = tl.load(part_starts + parent + 1).to(tl.int64) - 1",
        "sparse",
    ),
    "edges of a parent": (
        "kernels.py",
        "            products += weight[:, :, None] * u_hat.to(products.dtype)\n",
        "            products = weight[:, :, None] * u_hat.to(products.dtype)\n",
        "sparse",
    ),
    "edges of a child": (
        "kernels.py",
        "            mean += tl.sum(share * tl.load(dc + offsets, mask=mask, other=0.0), 1)\n",
        "            mean = tl.sum(share * tl.load(dc + offsets, mask=mask, other=0.0), 1)\n",
        "sparse",
    ),
}


@pytest.mark.parametrize(
    "name", [*list(SECOND_TRIPS)[:1], *(pytest.param(n, marks=pytest.mark.long) for n in list(SECOND_TRIPS)[1:])]
)
def test_a_kernel_that_is_wrong_on_its_second_trip_through_a_loop_does_not_pass(device, monkeypatch, tmp_path, name):
    from graphcaps.routing.fused.cuda import launch as launch

    source, old, new, kind = SECOND_TRIPS[name]
    folder = Path(launch.__file__).parent
    text = (folder / source).read_text()
    assert text.count(old) == 1
    (tmp_path / source).write_text(text.replace(old, new))
    spec = importlib.util.spec_from_file_location(f"{launch.__package__}.wrong", tmp_path / source)
    wrong = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(wrong)
    for kernel in ("over_parents", "couple", "squash_sums", "over_children", "linear_gradient"):
        if hasattr(wrong, kernel):
            monkeypatch.setattr(launch, kernel, getattr(wrong, kernel))
    found = tried(kind, device)
    assert "off by" in found and (name.startswith("edges") or "with few programs" in found)


def test_a_question_says_what_kernels_are_compiled_for(device):
    weight = torch.zeros(12, 8, 16, device=device)
    linear = LinearVotes(torch.zeros(4, 5, 8, device=device), weight)
    asked = Question("dynamic", "per edge", "float32", "float32", 3, 16, 8, 7, 0)
    assert question_of("dynamic", linear, 3, True) == asked
    assert question_of("uniform", weight.half(), 3, True)[1:] == ("given", "float16", "float16", 3, 16, 0, 7, 64)
    assert question_of("dynamic", linear, 3, False)[1:] == ("given", "float32", "float32", 0, 16, 0, 7, 64)
    assert question_of("dynamic", weight, 999, True)[1:] == ("given", "float32", "float32", 0, 16, 0, 7, 64)


def test_batches_that_are_cut_alike_are_one_question(device):
    def images(*trailing, num_parents=10, dim=16):
        return question_of("dynamic", torch.zeros(1, *trailing, dim, device=device), num_parents, True).images

    assert [images(b) for b in (1, 2, 3, 4, 5, 16, 17, 32, 100, 128)] == [1, 2, 3, 3, 7, 16, 31, 32, 31, 32]
    assert images() == 1 and images(4, 25) == 31
    assert [images(b, num_parents=2, dim=4) for b in (100, 128, 1000, 1024)] == [127, 128, 511, 512]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no CUDA device")
def test_on_cuda_auto_takes_the_engine_that_proved_itself():
    votes = torch.zeros(6, 4, device="cuda")
    assert choose_engine(complete_graph(3, 2), votes) == "fused" and not fused.why_not(votes, "dynamic", ("cuda",))
    with pytest.raises(InputError, match="engine: expected capsules of at most 256 numbers for 'fused'"):
        route(complete_graph(1, 1), torch.zeros(1, 300, device="cuda"), engine="fused")
