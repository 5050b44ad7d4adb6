"""Routing by node equals routing along edges, whose votes are made: `graphcaps.routing.nodes`."""

from __future__ import annotations

import pytest
import torch

from graphcaps import dgl
from graphcaps.nn import CapsuleConv
from graphcaps.routing import SphericalParameters
from graphcaps.routing.fused.cpu import nodes as by_node
from graphcaps.routing.nodes import route_nodes

pytestmark = pytest.mark.usefixtures("one_thread")

EXACT = dict(rtol=1e-10, atol=1e-10)  # float64: a few hundred terms of size 1, four iterations
SOURCES, TARGETS, EDGES = 20, 13, 70


def graph_of(src, dst):
    ends = {("from", "votes", "to"): tuple(torch.as_tensor(end, dtype=torch.int64) for end in (src, dst))}
    return dgl.heterograph(ends, num_nodes_dict={"from": SOURCES, "to": TARGETS})


def random():
    """Parallel edges, and a node without any."""
    generator = torch.Generator().manual_seed(0)
    src = torch.randint(SOURCES, (EDGES,), generator=generator)
    return graph_of(src, torch.randint(TARGETS - 1, (EDGES,), generator=generator))


def star():
    """All edges end in one node."""
    return graph_of(range(SOURCES), [4] * SOURCES)


def of_engine(engine, graph, z, scale, kappa, how, weigh):
    """s, couplings and the gradients of z, scale and kappa on an engine."""
    given = [x.clone().requires_grad_() for x in (z, scale, kappa)]
    parameters = SphericalParameters(given[2]) if how["routing"] == "spherical" else None
    found = route_nodes(graph, *given[:2], **how, engine=engine, parameters=parameters, get_coupling=True)
    (found.s * weigh).sum().backward()
    zero = torch.zeros((), dtype=z.dtype)
    return found.s.detach(), found.c, *(x.grad if x.grad is not None else zero for x in given)


@pytest.fixture
def calls(monkeypatch):
    """The graphs on which the kernels ran."""
    seen, route = [], by_node.route_nodes
    monkeypatch.setattr(by_node, "route_nodes", lambda graph, *rest: seen.append(graph) or route(graph, *rest))
    return seen


# K and D that are powers of two and that aren't: their products are added up in different ways.
@pytest.mark.parametrize(("caps_in", "caps_out", "dim"), [(1, 8, 4), (2, 3, 5)])
@pytest.mark.parametrize("routing", ["spherical", "dynamic", "uniform"])
@pytest.mark.parametrize("graph", [random, star])
def test_by_node_equals_loops_over_edges(calls, graph, routing, caps_in, caps_out, dim):
    graph, generator = graph(), torch.Generator().manual_seed(1)
    z = torch.randn(SOURCES, caps_in, caps_out, dim, generator=generator, dtype=torch.float64)
    z[3] = 0  # says nothing
    scale = torch.rand(graph.num_edges(), caps_in, caps_out, generator=generator, dtype=torch.float64)
    kappa = torch.tensor(1.7, dtype=torch.float64)
    weigh = torch.randn(TARGETS, caps_out, dim, generator=generator, dtype=torch.float64)
    for iterations in (1, 2, 4):
        for threads in (1, 2):
            torch.set_num_threads(threads)
            how = {"routing": routing, "iterations": iterations}
            own, wanted = (of_engine(e, graph, z, scale, kappa, how, weigh) for e in ("fused", "naive"))
            for mine, theirs in zip(own, wanted, strict=True):
                torch.testing.assert_close(mine, theirs, **EXACT)
    assert len(calls) == 6


def test_float32_and_a_wide_node():
    graph, generator = random(), torch.Generator().manual_seed(1)
    z, scale = torch.randn(SOURCES, 1, 10, 16, generator=generator), torch.ones(EDGES, 1, 10)
    weigh = torch.randn(TARGETS, 10, 16, generator=generator)
    how = {"routing": "spherical", "iterations": 3}
    own, wanted = (of_engine(e, graph, z, scale, torch.tensor(2.0), how, weigh) for e in ("fused", "torch"))
    for mine, theirs in zip(own, wanted, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("routing", ["spherical", "dynamic"])
def test_votes_that_are_all_zero_have_finite_slopes(routing):
    z = torch.zeros(SOURCES, 1, 3, 4, requires_grad=True)
    how = {"routing": routing, "iterations": 3, "engine": "fused", "get_coupling": True}
    parameters = SphericalParameters() if routing == "spherical" else None
    found = route_nodes(random(), z, None, **how, parameters=parameters)
    found.s.sum().backward()
    assert not found.s.any() and z.grad.isfinite().all() and z.grad.any()
    torch.testing.assert_close(found.c, torch.full((EDGES, 1, 3), 1 / 3))


def test_a_graph_without_edges_gives_zeros():
    z = torch.randn(SOURCES, 1, 3, 4, requires_grad=True)
    graph = graph_of([], [])
    found = route_nodes(graph, z, None, "spherical", 3, "auto", SphericalParameters(), True)
    found.s.sum().backward()
    assert found.s.shape == (TARGETS, 3, 4) and not found.s.any() and not z.grad.any() and found.c.shape == (0, 1, 3)


def test_a_layer_reads_votes_by_node_unless_they_are_an_edges_own(calls):
    graph = dgl.add_self_loop(dgl.rand_graph(9, 20))
    x, along = torch.randn(9, 6), torch.randn(graph.num_edges(), 2)
    for options in ({}, {"routing": "dynamic"}, {"vote_drop": 0.5}):
        calls.clear()
        CapsuleConv(6, 4, 3, **options)(graph, x)
        assert len(calls) == 1
    calls.clear()
    CapsuleConv(6, 4, 3, competition="neighbours")(graph, x)
    CapsuleConv(6, 4, 3, engine="torch")(graph, x)
    CapsuleConv(6, 4, 3, edge_feats=2)(graph, x, edge_feat=along)
    CapsuleConv(6, 4, 3)(graph, torch.randn(9, 2, 6))
    assert not calls


def test_a_second_derivative_is_refused():
    layer, x = CapsuleConv(6, 4, 3), torch.randn(9, 6, requires_grad=True)
    out = layer(dgl.add_self_loop(dgl.rand_graph(9, 20)), x)
    (slope,) = torch.autograd.grad(out.sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="second derivative: .* engine='torch'"):
        slope.sum().backward()
