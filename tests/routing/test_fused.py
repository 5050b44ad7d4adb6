"""The fused engine beyond the facts: shapes that its tiles split, threads, memory, what NaN does, what it refuses."""

from concurrent.futures import ThreadPoolExecutor

import oracle
import pytest
import small
import torch

from graphcaps import LinearVotes, bipartite_graph, complete_graph, dynamic_routing, engine, route
from graphcaps.algorithms.by_name import ROUTINGS, as_routing
from graphcaps.kernels.cpu.tiles import LANES
from graphcaps.routing import Dynamic

FUSED = [name for name in ROUTINGS if name not in ("inverted", "em")]


@pytest.fixture(autouse=True)
def threads():
    """Three threads share the children, which are one range in the tests of facts."""
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    with engine("fused"):
        yield
    torch.set_num_threads(before)


def assert_equals_oracle(graph, votes, leaves, routing="dynamic", prior=None, tolerance=1e-9):
    """Compare the value and the gradients of these leaves."""
    routing, built = as_routing(routing), votes.tensor(graph) if isinstance(votes, LinearVotes) else votes
    results = []
    for _, v, _, _ in (route(graph, votes, routing, prior=prior), oracle.route(graph, built, routing, prior=prior)):
        cotangent = torch.randn(v.shape, dtype=v.dtype, generator=torch.Generator().manual_seed(1))
        results.append([v, *torch.autograd.grad(v, leaves, cotangent)])
    torch.testing.assert_close(*results, rtol=tolerance, atol=tolerance)


@pytest.mark.fact(12)
@pytest.mark.parametrize(("images", "dim"), [(1, 3), (LANES - 1, 16), (3 * LANES + 5, 3), (200, 16)])
def test_batches_widths_and_degrees_that_no_tile_or_block_fits_equal_the_oracle(images, dim, draw):
    """From no edge to 80 per child: few images are sorted by child, many are in several tiles and blocks."""
    src = torch.repeat_interleave(torch.arange(6), torch.tensor([3, 0, LANES, 80, 1, LANES + 1]))
    graph = bipartite_graph(src[torch.randperm(len(src))], torch.randint(0, 7, (len(src),)), 6, 8)
    votes, prior = draw(len(src), images, dim).requires_grad_(), draw(len(src), images).requires_grad_()
    assert_equals_oracle(graph, votes, (votes, prior), prior=prior)


WEIGHTS = {"per edge": (35, 8, 16), "by index": (4, 8, 16)}


@pytest.mark.fact(12)
@pytest.mark.parametrize("kind", WEIGHTS)
@pytest.mark.parametrize("routing", FUSED)
def test_linear_votes_equal_the_oracle_in_value_and_every_gradient(routing, kind, draw):
    sparse = bipartite_graph(torch.arange(35) * 3 % 7, torch.arange(35) * 2 % 5, 7, 5)
    u, weight, prior = draw(7, LANES + 3, 8), draw(*WEIGHTS[kind]), draw(35)
    votes = LinearVotes(u, weight, torch.arange(35) * 3 % 4 if kind == "by index" else None)
    leaves = [x.requires_grad_() for x in (u, weight, prior)]
    for graph in (complete_graph(7, 5), sparse):
        assert_equals_oracle(graph, votes, leaves, routing, prior)


@pytest.mark.parametrize("index", [None, torch.arange(12) % 3], ids=["per edge", "by index"])
def test_linear_votes_are_never_built(index, monkeypatch):
    monkeypatch.setattr(LinearVotes, "build", lambda self, graph: pytest.fail("the votes were built"))
    u, weight = torch.randn(6, 4, 8, requires_grad=True), torch.randn(12 if index is None else 3, 8, 16)
    weight.requires_grad_()
    dynamic_routing(complete_graph(6, 2), LinearVotes(u, weight, index)).sum().backward()
    assert u.grad.any() and weight.grad.any()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_exp_of_a_vector_is_right_to_two_units_in_the_last_place(dtype):
    """Through a softmax of pairs (0, x): c of the second is exp(x) / (1 + exp(x)), and 0 from where exp(x) vanishes."""
    x = torch.cat([-torch.logspace(-6, 1.9, 4001, dtype=dtype), torch.tensor([-1e4, -torch.inf], dtype=dtype)])
    graph = bipartite_graph(torch.arange(len(x)).repeat_interleave(2), torch.arange(2).repeat(len(x)), len(x), 2)
    prior, seen = torch.stack([torch.zeros_like(x), x], dim=1).flatten(), []
    votes = torch.zeros(2 * len(x), 4, dtype=dtype)
    route(graph, votes, Dynamic(1), prior=prior, on_iteration=lambda r, b, c, v, agreement: seen.append(c))
    wanted = torch.exp(x.double()) / (1 + torch.exp(x.double()))
    torch.testing.assert_close(seen[0][1::2].double(), wanted, rtol=4 * torch.finfo(dtype).eps, atol=1e-37)


def test_four_python_threads_get_what_one_gets():
    graph, votes = complete_graph(64, 10), torch.randn(640, 20, 16)
    alone = dynamic_routing(graph, votes)
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(lambda _: dynamic_routing(graph, votes), range(12)))
    assert all(torch.equal(v, alone) for v in together)


def test_a_forked_process_can_route():
    code = (
        "import os, signal, torch; from graphcaps import complete_graph, dynamic_routing; torch.set_num_threads(2)\n"
        "graph, votes = complete_graph(64, 10), torch.randn(640, 20, 16)\n"
        "from graphcaps.kernels.cpu import passes; passes.pool(2).submit(int).result()\n"
        "child = os.fork()\n"
        "if not child: signal.alarm(60); print(passes.pool(2).submit(int).result(), flush=True); os._exit(0)\n"
        "raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))"
    )
    seen = small.python("-c", code)
    assert (seen.returncode, seen.stdout) == (0, "0\n"), seen.stderr


@pytest.mark.parametrize(("name", "kind"), [("fused", "transposed"), ("fused", "linear"), ("dgl", "given")])
def test_a_second_derivative_is_refused_not_wrong(name, kind, draw):
    x = draw(*{"given": (12, 4), "transposed": (4, 12), "linear": (12, 5)}[kind]).requires_grad_()
    votes = {"given": x, "transposed": x.t(), "linear": LinearVotes(x, draw(24, 5, 4))}[kind]
    with engine(name):
        v = route(complete_graph(12 if kind == "linear" else 6, 2), votes).v
    (gradient,) = torch.autograd.grad(v.sum(), x, create_graph=True)
    for loss in ((gradient * x).sum(), v.sum() + (gradient**2).sum()):
        with pytest.raises(RuntimeError, match="second derivative: expected routing on engine torch"):
            torch.autograd.grad(loss, x, retain_graph=True)


@pytest.mark.parametrize("number", [float("-inf"), float("nan")])
def test_a_prior_that_is_no_number_gives_nan(number):
    for prior in (number, torch.full((12, 2), number)):
        assert route(complete_graph(4, 3), torch.randn(12, 2, 5), prior=prior).v.isnan().all()


def test_a_second_backward_equals_the_first_and_changed_inputs_are_refused():
    """The first backward frees its sorted copy of the votes before it ends."""
    graph = bipartite_graph(torch.randint(0, 9, (60,)), torch.randint(0, 5, (60,)), 9, 5)
    u, index = torch.randn(9, 2, 8, requires_grad=True), torch.arange(60) % 3
    for votes, changed in ((torch.randn(60, 4, requires_grad=True), None), (u, index)):
        given = votes if changed is None else LinearVotes(u, torch.randn(3, 8, 16), index)
        v = route(graph, given).v
        first, second = (torch.autograd.grad(v.sum(), votes, retain_graph=True)[0] for _ in range(2))
        assert first.any() and torch.equal(first, second)
        with torch.no_grad():
            (votes if changed is None else changed).zero_()
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            v.sum().backward()
