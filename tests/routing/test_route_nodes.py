"""The kernels by node equal torch's operations along edges, and both equal routing on the graph of all capsules."""

import pytest
import torch

from graphcaps import InputError, dgl, engine
from graphcaps.algorithms.votes import NodeVotes
from graphcaps.graph import links_of_graph
from graphcaps.routing import Attention, Dynamic, Spherical, Uniform, route_nodes

pytestmark = pytest.mark.usefixtures("one_thread")

SOURCES, TARGETS, EDGES = 20, 13, 70


def graph_of(src, dst):
    ends = {("from", "votes", "to"): tuple(torch.as_tensor(end, dtype=torch.int64) for end in (src, dst))}
    return dgl.heterograph(ends, num_nodes_dict={"from": SOURCES, "to": TARGETS})


def random():
    """A graph with parallel edges, and a node without any edge."""
    draw = torch.Generator().manual_seed(0)
    ends = torch.randint(SOURCES, (EDGES,), generator=draw), torch.randint(TARGETS - 1, (EDGES,), generator=draw)
    return graph_of(*ends)


def star():
    """A graph whose edges all end in one node."""
    return graph_of(range(SOURCES), [4] * SOURCES)


def on_engine(name, graph, z, scale, routing, cotangent, per_edge):
    """s, couplings and the gradients of z, scale and kappa."""
    learned = [z.clone().requires_grad_(), scale.clone().requires_grad_(), *routing.parameters()]
    with engine(name):
        routed = route_nodes(links_of_graph(graph), NodeVotes(*learned[:2], per_edge), routing, coupling=True)
    slopes = torch.autograd.grad(routed.s, learned, cotangent, materialize_grads=True, allow_unused=True)
    return routed.s.detach(), routed.coupling, *slopes


@pytest.mark.parametrize(("per_edge", "rows"), [(False, TARGETS), (False, EDGES), (True, SOURCES)])
def test_votes_of_other_nodes_are_an_error_before_a_kernel_reads_them(per_edge, rows):
    with pytest.raises(InputError, match=f"votes.u: expected a row for each of .* got {rows}"):
        route_nodes(links_of_graph(random()), NodeVotes(torch.ones(rows, 3, 4), per_edge=per_edge), Spherical())


# K and D are powers of two or not: the kernels add up their products in different ways.
@pytest.mark.fact(12)
@pytest.mark.parametrize("kind", [Spherical, Dynamic, Uniform, Attention])
@pytest.mark.parametrize(
    ("graph", "per_edge", "sizes"), [(random, False, (8, 4)), (star, False, (3, 5)), (random, True, (3, 5))]
)
def test_three_ways_from_node_to_node_are_one(graph, per_edge, kind, sizes):
    graph, draw = graph(), torch.Generator().manual_seed(1)
    z = torch.randn(graph.num_edges() if per_edge else SOURCES, *sizes, generator=draw).double()
    z[3] = 0
    scale = torch.rand(graph.num_edges(), sizes[0], generator=draw).double()
    cotangent = torch.randn(TARGETS, *sizes, generator=draw).double()
    for iterations, threads in ((1, 1), (4, 2)):
        torch.set_num_threads(threads)
        routing = kind(iterations).double()
        kernels, *others = (
            on_engine(name, graph, z, scale, routing, cotangent, per_edge) for name in ("fused", "torch", "dgl")
        )
        for other in others:
            torch.testing.assert_close(kernels, other, rtol=1e-10, atol=1e-10)
