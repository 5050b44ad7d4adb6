"""The fused engine's Triton kernels: on CUDA where there is a GPU, else through Triton's interpreter and compiler.

On a machine with a GPU, `python -m pytest tests/routing/test_fused_gpu.py -m ""` is the whole check. The tests of what
the kernels compute are at the end of the file. They run twice: here, on CUDA, or skipped; and, CUDA or not, on CPU
tensors through the interpreter, in a process of its own because Triton reads TRITON_INTERPRET when it is imported. What
only the compiler would refuse is seen by compiling every kernel for an H200, which needs no GPU.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import oracle
import pytest
import torch

from graphcaps import LinearVotes, bipartite_graph, complete_graph, engine, route
from graphcaps.routing import Dynamic, Uniform, fused

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
ROOT = Path(__file__).parents[2]
needs_triton = pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="no Triton here")


def run(*arguments: str, **environment: str) -> None:
    """Run Python on ``arguments``; fail with what it printed."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")} | environment
    done = subprocess.run(
        [sys.executable, *arguments], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stdout + done.stderr


@needs_triton
@pytest.mark.fact(12)
@pytest.mark.long
def test_all_that_follows_holds_in_the_interpreter_alone():
    pytest_here = "-m", "pytest", "-q", "-p", "no:cacheprovider", "--maxfail=3", str(Path(__file__))
    run(*pytest_here, "-k", "not alone", "-m", "", TRITON_INTERPRET="1", OMP_NUM_THREADS="1")


COMPILE = """
import torch
from triton.backends.compiler import GPUTarget
from triton.runtime.driver import driver
from triton.runtime.jit import JITFunction

SHARED = 227 * 1024  # bytes of an H200's program, of compute capability 9.0

class Target:
    get_current_target = lambda self: GPUTarget("cuda", 90, 32)
    get_current_device = lambda self: 0
    get_current_stream = lambda self, device=None: 0

driver.set_active(Target())
launch, compiled = JITFunction.run, set()

def compile_only(self, *arguments, grid, warmup, **options):
    kernel = launch(self, *arguments, grid=grid, warmup=True, **options)
    assert "cubin" in kernel.asm
    assert kernel.metadata.shared <= SHARED, (self.fn.__name__, kernel.metadata.shared, options)
    compiled.add(self.fn.__name__)

JITFunction.run = compile_only
from graphcaps import LinearVotes, bipartite_graph, complete_graph, engine, route
from graphcaps.routing import Dynamic, fused
from graphcaps.routing.fused.cuda import dynamic, launch as launches
fused.PASSES[Dynamic, "cpu"] = fused.PASSES[Dynamic, "cuda"]
launches.shared_memory = lambda device: SHARED

def leaf(*shape, dtype):
    return torch.randn(shape).to(dtype).requires_grad_()

def both_ways(graph, votes, *leaves):
    with engine("fused"):
        torch.autograd.grad(route(graph, votes).v.sum(), leaves)

def given(graph, dtype):
    votes = leaf(graph.num_edges(), 5, 7, dtype=dtype)
    both_ways(graph, votes, votes)

def linear(graph, weight, dtype, batch=5):
    u, weight = leaf(graph.num_src_nodes(), batch, weight[-2], dtype=dtype), leaf(*weight, dtype=dtype)
    both_ways(graph, LinearVotes(u, weight), u, weight)

ends, complete = ([0, 0, 2, 2, 1], [1, 0, 1, 1, 1], 4, 3), complete_graph(5, 3)
given(bipartite_graph(*ends), torch.float32)
given(complete, torch.bfloat16)
linear(complete, (15, 8, 16), torch.float32)
linear(complete, (5, 3, 8, 16), torch.float64)
linear(complete, (8, 16), torch.bfloat16)
torch.set_float32_matmul_precision("high")
linear(complete_graph(2, 10), (20, 8, 16), torch.float32, 128)  # the paper's layer, but for its children
linear(complete_graph(2, 64), (128, 8, 32), torch.float32, 16)
dynamic.SEGMENT, dynamic.PROGRAMS = 2, 2**31
given(bipartite_graph(*ends), torch.float32)
kernels = {"couple", "over_parents", "squash_sums", "votes_gradient", "over_children", "linear_gradient"}
assert compiled == kernels, compiled
"""


@needs_triton
@pytest.mark.long
def test_every_kernel_compiles_for_an_h200_and_fits_its_shared_memory_alone(tmp_path):
    run("-c", COMPILE, TRITON_INTERPRET="0", OMP_NUM_THREADS="1", TRITON_CACHE_DIR=str(tmp_path))


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
        for kind in (Dynamic, Uniform):
            monkeypatch.setitem(fused.PASSES, (kind, "cpu"), fused.PASSES[kind, "cuda"])
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


def routed(graph, votes, prior, device, dtype=None, routing=None, exact=False):
    """v and the gradients of votes (or u and weight) and prior, on the CPU and in float64, for a fixed cotangent."""
    linear, routing = isinstance(votes, LinearVotes), routing or Dynamic(3)
    leaves = [votes.u, votes.weight, prior] if linear else [votes, prior]
    leaves = [x.detach().to(device, dtype or x.dtype).requires_grad_() for x in leaves if x is not None]
    votes = votes.to(device)._replace(u=leaves[0], weight=leaves[1]) if linear else leaves[0]
    prior = None if prior is None else leaves[-1]
    if exact:
        v, _ = oracle.route(graph, votes.tensor(graph) if linear else votes, routing, prior=prior)
    else:
        with engine("fused"):
            v = route(graph, votes, routing, prior=prior).v
    cotangent = torch.randn(v.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    gradients = torch.autograd.grad(v, leaves, cotangent.to(v))
    return [x.detach().cpu().double() for x in (v, *gradients)]


def assert_equals_oracle(graph, votes, prior, device, tolerance=1e-10, routing=None):
    """The oracle routes in float64."""
    wanted = routed(graph, votes, prior, "cpu", torch.float64, routing, exact=True)
    for got, exact in zip(routed(graph, votes, prior, device, routing=routing), wanted, strict=True):
        torch.testing.assert_close(got, exact, rtol=tolerance, atol=tolerance)


# float32: eps is 1.2e-7; sums of at most 63 votes of length about 3, and errors that three iterations multiply by about
# 10 each, in value and once more in the gradient: 1e-3 is wide, and what a wrong index gives is of order 1.
FLOAT32 = 1e-3
# bfloat16 results are rounded to 8 bits, 4e-3 of each; float32 has been exact in comparison.
BFLOAT16 = 1e-2


GRAPHS = pytest.mark.parametrize("make", [sparse, lambda: complete_graph(9, 7)], ids=["sparse", "complete"])


@pytest.mark.parametrize("routing", [Dynamic(1), Dynamic(3), Uniform()], ids=["1", "3", "uniform"])
def test_a_sparse_graph_routes_as_the_oracle(device, routing, draw):
    assert_equals_oracle(sparse(), leaf(draw, 63, 5, 7), leaf(draw, 63, 5), device, routing=routing)


@pytest.mark.parametrize("routing", [Dynamic(1), Dynamic(3), Uniform()], ids=["1", "3", "uniform"])
def test_a_complete_graph_routes_as_the_oracle(device, routing, draw):
    assert_equals_oracle(complete_graph(9, 5), leaf(draw, 45, 5, 7), leaf(draw, 45, 5), device, routing=routing)


def test_segments_of_a_parent_add_up_to_it(device, short_segments, draw):
    assert_equals_oracle(sparse(), leaf(draw, 63, 5, 7), leaf(draw, 63, 5), device)


@pytest.mark.long
@GRAPHS
def test_a_program_may_have_much_to_do(device, few_programs, make, draw):
    assert_equals_oracle(make(), leaf(draw, 63, 11, 7), leaf(draw, 63, 11), device, routing=Dynamic(2))


@pytest.mark.parametrize("trailing", [(), (2, 3)], ids=["no_batch", "batch_heads"])
@GRAPHS
def test_without_a_prior_and_with_any_trailing_dims(device, make, trailing, draw):
    assert_equals_oracle(make(), leaf(draw, 63, *trailing, 3), None, device)


@GRAPHS
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, FLOAT32), (torch.bfloat16, BFLOAT16)])
def test_votes_of_fewer_bits_are_summed_in_float32(device, make, dtype, tolerance, draw):
    votes = leaf(draw, 63, 5, 7, dtype=dtype)
    assert_equals_oracle(make(), votes, leaf(draw, 63, 5, dtype=torch.float32), device, tolerance)
    seen = []
    with engine("fused"):
        v = route(make(), votes.to(device), on_iteration=lambda r, *state: seen.extend(state)).v
    assert v.dtype == dtype and {x.dtype for x in seen} == {torch.float32}


WEIGHTS = {"per edge": (18, 5, 7), "per type": (2, 3, 5, 7), "shared": (5, 7)}


@pytest.mark.parametrize("kind", WEIGHTS)
def test_linear_votes_equal_the_oracle_and_are_not_built(device, kind, monkeypatch, draw):
    u, weight, prior = leaf(draw, 6, 3, 5), leaf(draw, *WEIGHTS[kind]), leaf(draw, 18)
    wanted = routed(complete_graph(6, 3), LinearVotes(u, weight), prior, "cpu", exact=True)
    monkeypatch.setattr(LinearVotes, "build", lambda self, graph: pytest.fail("the votes were built"))
    got = routed(complete_graph(6, 3), LinearVotes(u, weight), prior, device)
    torch.testing.assert_close(got, wanted, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("kind", ["per edge", "by index"])
def test_linear_votes_on_other_graphs_are_built(device, kind, draw):
    index = torch.arange(63) * 5 % 6 if kind == "by index" else None
    votes = LinearVotes(leaf(draw, 8, 5, 4), leaf(draw, 63 if index is None else 6, 4, 3), index)
    assert_equals_oracle(sparse(), votes, leaf(draw, 63), device)


@pytest.mark.parametrize("kind", ["sparse", "complete", "linear"])
def test_an_observer_sees_what_the_oracle_shows(device, kind, draw):
    graph = sparse() if kind == "sparse" else complete_graph(9, 7)
    votes = LinearVotes(draw(9, 3, 4), draw(63, 4, 3)) if kind == "linear" else draw(63, 3, 4)
    prior, seen, wanted = draw(63, 3), [], []
    built = votes.tensor(graph) if kind == "linear" else votes
    oracle.route(graph, built, Dynamic(3), prior=prior, on_iteration=lambda *state: wanted.append(state))
    with engine("fused"):
        route(graph, votes.to(device), prior=prior.to(device), on_iteration=lambda *state: seen.append(state))
    for (r, *exact), (also_r, *got) in zip(wanted, seen, strict=True):
        assert r == also_r
        torch.testing.assert_close([x.cpu() for x in got], exact, rtol=1e-10, atol=1e-10)


@GRAPHS
def test_zero_votes_have_a_finite_gradient(device, make):
    v, gradient = routed(make(), torch.zeros(63, 3, 4), None, device)
    assert not v.any() and gradient.isfinite().all()
