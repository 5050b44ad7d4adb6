"""Routing by node equals routing along edges, whose votes are made: `graphcaps.routing.nodes`."""

from __future__ import annotations

import pytest
import torch

from graphcaps import dgl, engine
from graphcaps.nn import CapsuleConv
from graphcaps.routing import Dynamic, Spherical, Uniform
from graphcaps.routing.fused.cpu import nodes as by_node
from graphcaps.routing.nodes import route_nodes

pytestmark = pytest.mark.usefixtures("one_thread")

SOURCES, TARGETS, EDGES = 20, 13, 70
ENGINES = "fused", "torch"


def graph_of(src, dst):
    ends = {("from", "votes", "to"): tuple(torch.as_tensor(end, dtype=torch.int64) for end in (src, dst))}
    return dgl.heterograph(ends, num_nodes_dict={"from": SOURCES, "to": TARGETS})


def random():
    """Parallel edges, and a node without any."""
    draw = torch.Generator().manual_seed(0)
    ends = torch.randint(SOURCES, (EDGES,), generator=draw), torch.randint(TARGETS - 1, (EDGES,), generator=draw)
    return graph_of(*ends)


def star():
    """All edges end in one node."""
    return graph_of(range(SOURCES), [4] * SOURCES)


def on_engine(name, graph, z, scale, routing, cotangent, own):
    """s, couplings and the gradients of z, scale and kappa."""
    learned = [z.clone().requires_grad_(), scale.clone().requires_grad_(), *routing.parameters()]
    with engine(name):
        found = route_nodes(graph, *learned[:2], routing, True, own)
    slopes = torch.autograd.grad(found.s, learned, cotangent, materialize_grads=True, allow_unused=True)
    return found.s.detach(), found.c, *slopes


@pytest.fixture
def calls(monkeypatch):
    """The graphs on which the kernels ran."""
    seen, route = [], by_node.route_nodes
    monkeypatch.setattr(by_node, "route_nodes", lambda graph, *rest: seen.append(graph) or route(graph, *rest))
    return seen


# K and D that are powers of two and that aren't: their products are added up in different ways.
@pytest.mark.parametrize(("caps_in", "caps_out", "dim"), [(1, 8, 4), (2, 3, 5)])
@pytest.mark.parametrize("kind", [Spherical, Dynamic, Uniform])
@pytest.mark.parametrize(("graph", "own"), [(random, False), (star, False), (random, True)])
@pytest.mark.parametrize("dtype", [torch.float64, pytest.param(torch.float32, marks=pytest.mark.long)], ids=str)
def test_by_node_equals_routing_along_edges(calls, graph, own, kind, caps_in, caps_out, dim, dtype):
    graph, draw = graph(), torch.Generator().manual_seed(1)
    rows = graph.num_edges() if own else SOURCES
    z = torch.randn(rows, caps_in, caps_out, dim, generator=draw, dtype=torch.float64).to(dtype)
    z[3] = 0
    scale = torch.rand(graph.num_edges(), caps_in, caps_out, generator=draw, dtype=torch.float64).to(dtype)
    cotangent = torch.randn(TARGETS, caps_out, dim, generator=draw, dtype=torch.float64).to(dtype)
    tolerance = 1e-10 if dtype == torch.float64 else 1e-3  # a few hundred terms of size 1, four iterations
    for iterations, threads in ((1, 1), (2, 2), (4, 1), (4, 2)):
        torch.set_num_threads(threads)
        routing = kind(iterations).to(dtype)
        found = [on_engine(name, graph, z, scale, routing, cotangent, own) for name in ENGINES]
        torch.testing.assert_close(*found, rtol=tolerance, atol=tolerance)
    assert len(calls) == 4


@pytest.mark.parametrize("routing", [Spherical(), Dynamic()], ids=["spherical", "dynamic"])
def test_votes_that_are_all_zero_have_finite_slopes(calls, routing):
    z = torch.zeros(SOURCES, 1, 3, 4, requires_grad=True)
    found = route_nodes(random(), z, None, routing, True)
    found.s.sum().backward()
    assert calls and not found.s.any() and z.grad.isfinite().all() and z.grad.any()
    torch.testing.assert_close(found.c, torch.full((EDGES, 1, 3), 1 / 3))


def test_a_graph_without_edges_gives_zeros(calls):
    z = torch.randn(SOURCES, 1, 3, 4, requires_grad=True)
    found = route_nodes(graph_of([], []), z, None, Spherical(), True)
    found.s.sum().backward()
    assert found.s.shape == (TARGETS, 3, 4) and not found.s.any() and not z.grad.any() and found.c.shape == (0, 1, 3)


def test_a_layer_is_routed_by_node(calls):
    graph = dgl.add_self_loop(dgl.rand_graph(9, 20))
    x, along = torch.randn(9, 6), torch.randn(graph.num_edges(), 2)
    for options in ({}, {"routing": "dynamic"}, {"vote_drop": 0.5}):
        calls.clear()
        CapsuleConv(6, 4, 3, **options)(graph, x)
        assert len(calls) == 1
    CapsuleConv(6, 4, 3, edge_feats=2)(graph, x, edge_feat=along)
    assert len(calls) == 2
    calls.clear()
    with engine("torch"):
        CapsuleConv(6, 4, 3)(graph, x)
    assert not calls


def test_a_second_derivative_is_refused():
    layer, x = CapsuleConv(6, 4, 3), torch.randn(9, 6, requires_grad=True)
    out = layer(dgl.add_self_loop(dgl.rand_graph(9, 20)), x)
    (slope,) = torch.autograd.grad(out.sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="second derivative: .*engine.'torch'"):
        slope.sum().backward()
