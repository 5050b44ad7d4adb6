"""The engine torch's own gradient of dynamic routing: the oracle's, with less memory; autograd's where it must be."""

from __future__ import annotations

import oracle
import pytest
import torch

from graphcaps import LinearVotes, complete_graph, engine, route
from graphcaps.graph import links
from graphcaps.routing import Dynamic, Uniform
from graphcaps.routing.edges import DenseEdges
from graphcaps.routing.engines import run_on

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(autouse=True)
def on_torch():
    with engine("torch"):
        yield


@pytest.fixture(params=[True, False], ids=["rows copied", "rows apart"])
def copied(request, monkeypatch):
    """Both layouts of dense votes: that of a CPU, and that of a GPU."""
    init = DenseEdges.__init__
    monkeypatch.setattr(DenseEdges, "__init__", lambda self, ends, dims: init(self, ends, dims, request.param))


SHAPES = {"given": (24,), "per type": (2, 3, 8, 16)}


@pytest.mark.parametrize("kind", SHAPES)
@pytest.mark.parametrize("learned", ["both", "prior"])
@pytest.mark.parametrize("routing", [Dynamic(3), Uniform()], ids=["dynamic", "uniform"])
def test_both_layouts_route_as_the_oracle_in_value_and_gradient(copied, kind, learned, routing, draw):
    batch = (2, 3)
    graph, prior = complete_graph(8, 3), draw(24, *batch)
    leaves = [draw(24, *batch, 16)] if kind == "given" else [draw(8, *batch, 8), draw(*SHAPES[kind])]
    votes = leaves[0] if kind == "given" else LinearVotes(*leaves)
    leaves = {"both": [*leaves, prior], "votes": leaves, "prior": [prior]}[learned]
    for x in leaves:
        x.requires_grad_()
    v = route(graph, votes, routing, prior=prior).v
    exact, _ = oracle.route(graph, votes if kind == "given" else votes.tensor(graph), routing, prior=prior)
    slope = draw(3, *batch, 16)
    torch.testing.assert_close(v, exact, rtol=1e-10, atol=1e-10)
    found = [torch.autograd.grad(x, leaves, slope) for x in (v, exact)]
    torch.testing.assert_close(*found, rtol=1e-10, atol=1e-10)


def test_couplings_and_sums_are_all_that_is_saved(draw):
    u_hat = draw(24, 5, 6).requires_grad_()
    edges, saved = DenseEdges(links(complete_graph(8, 3)), 3), []
    votes, prior = edges.vectors_in(u_hat), torch.zeros(3, 5, 8, dtype=u_hat.dtype)
    with torch.autograd.graph.saved_tensors_hooks(lambda x: saved.append(x) or x, lambda x: x):
        run_on(edges, Dynamic(3), votes, prior)
    of_votes = {x.data_ptr() for x in saved if x.numel() == u_hat.numel()}
    assert of_votes == {votes.data_ptr()}


@pytest.mark.parametrize("routing", [Dynamic(3), Uniform()], ids=["dynamic", "uniform"])
@pytest.mark.parametrize("name", ["complete", "sparse_7x5"])
def test_a_second_derivative_is_the_oracles(graphs, name, routing, draw):
    graph, found = graphs[name], []
    votes, prior = draw(graph.num_edges(), 2, 4).requires_grad_(), draw(graph.num_edges(), 2).requires_grad_()
    for each in (route, oracle.route):
        v, _ = each(graph, votes, routing, prior=prior)
        first = torch.autograd.grad(v.square().sum(), (votes, prior), create_graph=True)
        found.append(torch.autograd.grad(sum(x.square().sum() for x in first), (votes, prior)))
    torch.testing.assert_close(*found, rtol=1e-9, atol=1e-9)
