"""The fused engine beyond the facts: shapes that its tiles split, threads, observers without a second path."""

from __future__ import annotations

import dataclasses
import hashlib
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

from graphcaps import InputError, LinearVotes, bipartite_graph, choose_engine, complete_graph, dynamic_routing, route
from graphcaps.routing import fused
from graphcaps.routing.engines import ROUTINGS, engine_names
from graphcaps.routing.fused.cpu import kernels, kernels_em, kernels_nodes, memory, passes
from graphcaps.routing.fused.cpu.tiles import LANES

WEIGHTS = {"per edge": (35, 8, 16), "per type": (7, 5, 8, 16), "shared": (8, 16), "by index": (4, 8, 16)}


@pytest.fixture(autouse=True, params=[3, pytest.param(1, marks=pytest.mark.long)])
def threads(request):
    """Each test with its children shared out, and in one range, as the facts' tests have them."""
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


def _gradients(graph, votes, leaves, engine, prior, routing="dynamic"):
    v = route(graph, votes, routing=routing, prior=prior, engine=engine).v
    torch.manual_seed(1)
    return [v.detach(), *torch.autograd.grad((v * torch.randn_like(v)).sum(), leaves)]


@pytest.mark.parametrize(
    "images", [1, LANES, 3 * LANES + 5, *(pytest.param(n, marks=pytest.mark.long) for n in (LANES - 1, LANES + 1))]
)
@pytest.mark.parametrize("dim", [3, 16, *(pytest.param(dim, marks=pytest.mark.long) for dim in (1, 21))])
def test_batches_and_widths_that_no_tile_fits_equal_naive(images, dim):
    torch.manual_seed(0)
    graph = bipartite_graph(torch.randint(0, 6, (23,)), torch.randint(0, 4, (23,)), 8, 5)
    votes = torch.randn(23, images, dim, dtype=torch.float64, requires_grad=True)
    prior = torch.randn(23, images, dtype=torch.float64, requires_grad=True)
    results = [_gradients(graph, votes, (votes, prior), engine, prior) for engine in ("naive", "fused")]
    for wanted, got in zip(*results, strict=True):
        torch.testing.assert_close(got, wanted, rtol=1e-10, atol=1e-12)


@pytest.mark.fact(12)
@pytest.mark.parametrize("images", [1, 2 * LANES + 3])
@pytest.mark.parametrize("votes_of", ["in_place", "in_order", "children"])
@pytest.mark.parametrize("routing", ["dynamic", "nobody"])
def test_children_and_batches_that_no_block_fits_equal_naive(images, votes_of, routing, monkeypatch):
    """From no edge to 80 per child, with blocks of few children and tiles of few images."""
    monkeypatch.setattr(passes, "TILE", 1)
    monkeypatch.setattr(passes, "BLOCK", 64)
    monkeypatch.setattr(passes, "SMALL_ROW", 2**20 if votes_of == "in_order" else 0)
    torch.manual_seed(0)
    src = torch.repeat_interleave(torch.arange(6), torch.tensor([3, 0, LANES, 80, 1, LANES + 1]))
    graph = bipartite_graph(src[torch.randperm(len(src))], torch.randint(0, 7, (len(src),)), 6, 7)
    votes = torch.randn(len(src), images, 4, dtype=torch.float64, requires_grad=True)
    leaves = (votes,)
    if votes_of == "children":
        leaves = tuple(torch.randn(shape).double().requires_grad_() for shape in ((6, images, 5), (len(src), 5, 4)))
        votes = LinearVotes(*leaves)
    results = [_gradients(graph, votes, leaves, engine, None, routing) for engine in ("naive", "fused")]
    for wanted, got in zip(*results, strict=True):
        torch.testing.assert_close(got, wanted, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_exp_of_a_vector_is_right_to_two_units_in_the_last_place(dtype):
    """Through a softmax of pairs (0, x): c of the second is exp(x) / (1 + exp(x)), and 0 from where exp(x) vanishes."""
    x = torch.cat([-torch.logspace(-6, 1.9, 4001, dtype=dtype), torch.tensor([-1e4, -torch.inf], dtype=dtype)])
    graph = bipartite_graph(torch.arange(len(x)).repeat_interleave(2), torch.arange(2).repeat(len(x)), len(x), 2)
    seen = []
    route(
        graph,
        torch.zeros(2 * len(x), 3, dtype=dtype),
        prior=torch.stack([torch.zeros_like(x), x], dim=1).flatten(),
        iterations=1,
        engine="fused",
        on_iteration=lambda r, b, c, v, agreement: seen.append(c),
    )
    wanted = torch.exp(x.double()) / (1 + torch.exp(x.double()))
    torch.testing.assert_close(seen[0][1::2].double(), wanted, rtol=4 * torch.finfo(dtype).eps, atol=1e-37)


@pytest.mark.parametrize("kind", WEIGHTS)
def test_linear_votes_equal_naive_in_value_and_every_gradient(kind):
    torch.manual_seed(0)
    graph = complete_graph(7, 5)
    index = torch.randint(0, 4, (35,)) if kind == "by index" else None
    u = torch.randn(7, LANES + 3, 8, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(WEIGHTS[kind], dtype=torch.float64, requires_grad=True)
    prior = torch.randn(35, dtype=torch.float64, requires_grad=True)
    votes = LinearVotes(u, weight, index)
    results = [_gradients(graph, votes, (u, weight, prior), engine, prior) for engine in ("naive", "fused")]
    for wanted, got in zip(*results, strict=True):
        torch.testing.assert_close(got, wanted, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("index", [None, torch.arange(12) % 3], ids=["per edge", "by index"])
def test_linear_votes_are_never_built(index, monkeypatch):
    monkeypatch.setattr(LinearVotes, "build", lambda self, graph: pytest.fail("the votes were built"))
    u, weight = torch.randn(6, 4, 8, requires_grad=True), torch.randn(12 if index is None else 3, 8, 16)
    weight.requires_grad_()
    dynamic_routing(complete_graph(6, 2), LinearVotes(u, weight, index), engine="fused").sum().backward()
    assert u.grad.abs().sum() > 0 and weight.grad.abs().sum() > 0


def test_an_index_changed_before_the_gradient_is_refused():
    u, index = torch.randn(6, 4, 8, requires_grad=True), torch.arange(12) % 3
    v = dynamic_routing(complete_graph(6, 2), LinearVotes(u, torch.randn(3, 8, 16), index), engine="fused")
    index.zero_()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        v.sum().backward()


def test_observing_runs_no_other_engine(monkeypatch):
    def refuse(*args):
        pytest.fail("another engine ran")

    only_fused = dataclasses.replace(ROUTINGS["dynamic"], naive=refuse, algorithm=refuse)
    monkeypatch.setitem(ROUTINGS, "dynamic", only_fused)
    seen = []
    dynamic_routing(
        complete_graph(6, 2), torch.randn(12, 3, 4), engine="fused", on_iteration=lambda r, *x: seen.append(r)
    )
    assert seen == [0, 1, 2]


def test_four_python_threads_get_what_one_gets():
    graph, votes = complete_graph(64, 10), torch.randn(640, 20, 16)
    alone = dynamic_routing(graph, votes, engine="fused")
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(lambda _: dynamic_routing(graph, votes, engine="fused"), range(12)))
    assert all(torch.equal(v, alone) for v in together)


@pytest.mark.parametrize("engine", ["fused", "dgl"])
@pytest.mark.parametrize("routing", ["dynamic", "uniform", "nobody", "attention", "spherical"])
@pytest.mark.parametrize("squashed", [True, False], ids=["squashed", "not_squashed"])
@pytest.mark.parametrize("made", ["given", "transposed", "linear"])
def test_a_second_derivative_is_refused_not_wrong(routing, engine, squashed, made):
    x = torch.randn((4, 12) if made == "transposed" else (12, 4), dtype=torch.float64, requires_grad=True)
    votes = LinearVotes(x, torch.randn(24, 3, 4, dtype=torch.float64).mT) if made == "linear" else x
    votes = x.t() if made == "transposed" else votes
    graph = complete_graph(12 if made == "linear" else 6, 2)
    v = route(graph, votes, routing=routing, engine=engine, squash_output=squashed).v
    (gradient,) = torch.autograd.grad(v.sum(), x, create_graph=True)
    assert torch.equal(gradient.detach().clone().mul_(2), gradient.mul_(2))
    for loss in ((gradient * x).sum(), v.sum() + (gradient**2).sum()):
        with pytest.raises(RuntimeError, match="second derivative: expected routing on engine torch .* engine='torch'"):
            torch.autograd.grad(loss, x, retain_graph=True)


def test_bfloat16_votes_are_summed_in_float32():
    graph, votes = complete_graph(200, 3), torch.randn(600, 5, 16).bfloat16()
    v = dynamic_routing(graph, votes, engine="fused")
    assert v.dtype == torch.bfloat16
    torch.testing.assert_close(v, dynamic_routing(graph, votes.float(), engine="naive").bfloat16(), rtol=0, atol=0)


def test_wide_capsules_take_another_engine():
    graph, votes = complete_graph(3, 2), torch.randn(6, 1200)
    assert choose_engine(graph, votes) == "torch"
    assert route(graph, votes).v.shape == (2, 1200)
    with pytest.raises(InputError, match="engine: expected capsules of at most 256 numbers for 'fused', got"):
        route(graph, votes, engine="fused")


@pytest.mark.parametrize("engine", engine_names())
def test_an_observer_may_change_its_tensors_and_take_gradients(engine):
    graph, votes = complete_graph(6, 2), torch.randn(12, 3, 4, requires_grad=True)
    slopes = []

    def meddle(r, b, c, v, agreement):
        leaf = v.clone().requires_grad_()
        slopes.append(torch.autograd.grad(leaf.square().sum(), leaf)[0])
        for tensor in (b, c, v, agreement):
            tensor.fill_(7)

    watched = dynamic_routing(graph, votes, engine=engine, on_iteration=meddle)
    assert len(slopes) == 3 and torch.equal(watched, dynamic_routing(graph, votes, engine=engine))


def test_a_forked_process_can_route():
    code = (
        "import os, signal, torch; from graphcaps import complete_graph, dynamic_routing; torch.set_num_threads(2)\n"
        "graph, votes = complete_graph(64, 10), torch.randn(640, 20, 16)\n"
        "from graphcaps.routing.fused.cpu import passes; passes.pool(2).submit(int).result()\n"
        "child = os.fork()\n"
        "if not child: signal.alarm(60); print(passes.pool(2).submit(int).result(), flush=True); os._exit(0)\n"
        "raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))"
    )
    seen = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert (seen.returncode, seen.stdout) == (0, "0\n"), seen.stderr


def test_the_kernels_file_changes_with_what_it_compiles_in():
    """Numba's disk cache would take kernels compiled with older ones of these files: it knows only their own."""
    inlined = [Path(kernels.__file__).with_name(name).read_bytes() for name in ("arguments.py", "simd.py", "tiles.py")]
    checksum = hashlib.sha256(b"".join(inlined)).hexdigest()[:16]
    for module in (kernels, kernels_em, kernels_nodes):
        assert checksum == module.INLINED, f"{Path(module.__file__).name}: write INLINED = {checksum!r}"


def test_the_readme_lists_every_file():
    folder = Path(fused.__file__).parent
    listed = (folder / "README.md").read_text(encoding="utf-8").partition("## Files")[2].partition("## Measured")[0]
    named = {line.split()[0] for line in listed.splitlines() if line.startswith("    ")}
    there = {path.relative_to(folder).as_posix() for path in folder.rglob("*.py")}
    assert named == there - {"cpu/__init__.py", "cuda/__init__.py"}


@pytest.mark.parametrize("number", [float("-inf"), float("inf"), float("nan")])
def test_a_prior_that_is_no_number_gives_nan_as_naive_does(number):
    graph, votes = complete_graph(4, 3), torch.randn(12, 2, 5)
    for prior in (number, torch.full((12, 2), number)):
        for engine in ("naive", "fused"):
            assert route(graph, votes, prior=prior, engine=engine).v.isnan().all(), engine


def test_nan_with_other_bits_stays_nan():
    prior = torch.zeros(12)
    prior[5] = torch.tensor(0x7FC00001, dtype=torch.int32).view(torch.float32)
    assert route(complete_graph(4, 3), torch.randn(12, 5), prior=prior, engine="fused").v.isnan().all()


def test_nan_in_a_child_does_not_reach_the_gradient_of_another():
    graph = bipartite_graph(torch.tensor([0, 0, 1, 1]), torch.tensor([0, 1, 2, 3]), 2, 4)
    votes = torch.randn(4, 4)
    votes[2] = float("nan")
    votes.requires_grad_()
    lost = [_gradients(graph, votes, (votes,), engine, None)[1].isnan() for engine in ("naive", "fused")]
    assert torch.equal(*lost) and lost[0].sum() == 8


def test_the_gradient_of_huge_votes_is_right_in_float32():
    graph, votes = complete_graph(6, 4), (torch.randn(24, 4) * 1e10).requires_grad_()
    wanted, got = (
        torch.autograd.grad(route(graph, votes, iterations=1, engine=engine).v, votes, torch.arange(16.0).view(4, 4))[0]
        for engine in ("naive", "fused")
    )
    torch.testing.assert_close(got, wanted, rtol=1e-5, atol=0)


def test_a_child_with_most_of_the_edges_is_routed_from_built_votes(monkeypatch):
    """Room for its linear votes, in each thread, would be more than the votes of all."""
    monkeypatch.setattr(passes, "HUB", 0)
    graph = bipartite_graph(torch.tensor([0] * 200 + [1, 2, 3]), torch.randint(0, 9, (203,)), 4, 9)
    u, weight = torch.randn(4, 3, 5, requires_grad=True), torch.randn(5, 6, requires_grad=True)
    built, build = [], LinearVotes.build
    monkeypatch.setattr(LinearVotes, "build", lambda self, graph: built.append(1) or build(self, graph))
    got = _gradients(graph, LinearVotes(u, weight), (u, weight), "fused", None)
    assert built == [1]
    for one, other in zip(got, _gradients(graph, LinearVotes(u, weight), (u, weight), "naive", None), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


def test_a_large_batch_is_no_reason_to_build_linear_votes(monkeypatch, threads):
    """Room is for a tile of its images: here 16 of 3000."""
    monkeypatch.setattr(passes, "HUB", 0)
    monkeypatch.setattr(passes, "TILE", 1)
    monkeypatch.setattr(LinearVotes, "build", lambda self, graph: pytest.fail("the votes were built"))
    votes = LinearVotes(torch.randn(16, 3000, 2), torch.randn(16 * 10, 2, 3))
    assert dynamic_routing(complete_graph(16, 10), votes, engine="fused").shape == (10, 3000, 3)


def test_a_second_backward_equals_the_first():
    """Votes that were put in order for the first are given up before it ends."""
    graph = bipartite_graph(torch.randint(0, 9, (60,)), torch.randint(0, 5, (60,)), 9, 5)
    votes = torch.randn(60, 4, requires_grad=True)
    v = route(graph, votes, engine="fused").v
    first, second = (torch.autograd.grad(v.sum(), votes, retain_graph=True)[0] for _ in range(2))
    assert first.abs().sum() > 0 and torch.equal(first, second)
    with torch.no_grad():
        votes += 1
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        v.sum().backward()


@pytest.mark.skipif(not Path("/sys/kernel/mm/transparent_hugepage/enabled").exists(), reason="needs Linux's huge pages")
@pytest.mark.parametrize("like", [torch.empty(0), torch.empty(0, dtype=torch.float64)])
def test_large_memory_starts_at_a_cache_line_and_asks_for_huge_pages(like):
    tensor = memory.zeros((3, 2**20), like)
    assert (tensor.dtype, tensor.shape, tensor.sum()) == (like.dtype, (3, 2**20), 0)
    assert tensor.is_contiguous() and tensor.data_ptr() % memory.LINE == 0
    assert "hg" in flags_at(tensor.data_ptr() + tensor.nbytes // 2)


def flags_at(address: int) -> list[str]:
    """What Linux says of the memory at this address; "hg" where huge pages were asked for."""
    inside = False
    for line in Path("/proc/self/smaps").read_text(encoding="utf-8").splitlines():
        first, *rest = line.split()
        if not first.endswith(":"):
            begin, end = (int(part, 16) for part in first.split("-"))
            inside = begin <= address < end
        elif first == "VmFlags:" and inside:
            return rest
    raise AssertionError(f"no memory at {address:x}")
