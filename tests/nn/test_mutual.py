"""Edges whose two directions share their logits: what the layers' docstrings promise, against loops."""

from __future__ import annotations

import pytest
import torch

import graphcaps
from graphcaps import bipartite_graph, dgl
from graphcaps.errors import InputError
from graphcaps.graph import reverse_edges
from graphcaps.nn import CapsuleConv
from graphcaps.routing import Spherical

pytestmark = pytest.mark.usefixtures("one_thread")

N, F, D, K = 6, 5, 4, 3
# twice between 0 and 1, a loop, and nodes with nothing but their own loop
SRC, DST = [0, 1, 0, 1, 1, 3, 3, 0, 4, 4, 2, 5], [1, 0, 1, 0, 3, 1, 3, 4, 0, 4, 2, 5]
GRAPH = dgl.graph((SRC, DST), num_nodes=N)


def by_loops(layer, x, weight):
    """(N, K, D) before bias and squash, and the couplings (E, K), of spherical routing edge by edge."""
    routing, edges = layer.capsules.routing, list(zip(SRC, DST, strict=True))
    z = torch.einsum("nf,fkd->nkd", x, layer.capsules.weight[0])
    z = z / z.norm(dim=-1, keepdim=True) if routing.unit_votes else z
    votes = [z[u] * weight[e] for e, (u, _) in enumerate(edges)]
    back = []
    for e, (u, v) in enumerate(edges):
        before = sum(edge == (u, v) for edge in edges[:e])  # it is so many-th of its kind
        back.append([e for e, edge in enumerate(edges) if edge == (v, u)][before])
    into = [[e for e in range(len(edges)) if DST[e] == v] for v in range(N)]
    c, s = [torch.full((K,), 1 / K, dtype=x.dtype)] * len(edges), []
    for r in range(routing.iterations):
        if r > 0:
            own = []
            for e, (_, v) in enumerate(edges):
                rho = torch.stack([votes[k] for k in into[v]]).square().sum(-1).mean(0).sqrt()  # (K,)
                own.append(routing.kappa * (votes[e] * s[v]).sum(-1) / s[v].norm(dim=-1) / rho)
            c = [(own[e] + own[back[e]]).softmax(-1) for e in range(len(edges))]
        s = [sum(c[e][:, None] * votes[e] for e in into[v]) for v in range(N)]
    return torch.stack([s[v] * K / len(into[v]) for v in range(N)]), torch.stack(c)


def layer_of(routing=None, **options):
    torch.manual_seed(3)
    routing = routing or Spherical(concentration=2.0, mutual=True)
    return CapsuleConv(F, D, K, routing, squash_output=False, **options).double()


@pytest.mark.parametrize(("iterations", "unit_votes"), [(1, False), (4, False), (3, True)])
def test_a_layer_and_its_gradients_are_those_of_loops_over_edges(iterations, unit_votes, draw):
    layer = layer_of(Spherical(iterations, concentration=2.0, unit_votes=unit_votes, mutual=True))
    x, weight = draw(N, F).requires_grad_(), draw(len(SRC)).abs()
    got, c = layer(GRAPH, x, edge_weight=weight, get_coupling=True)
    wanted, couplings = by_loops(layer, x, weight)
    torch.testing.assert_close(got, wanted)
    torch.testing.assert_close(c.squeeze(1), couplings)
    assert torch.allclose(c, c[reverse_edges(GRAPH)])
    learned = [x, layer.capsules.weight] + [layer.capsules.routing.exponent] * (iterations > 1)
    cotangent = draw(N, K, D)
    for ours, theirs in zip(*(torch.autograd.grad(out, learned, cotangent) for out in (got, wanted)), strict=True):
        torch.testing.assert_close(ours, theirs)


def test_without_mutual_the_two_directions_of_an_edge_differ(draw):
    c = layer_of(Spherical(concentration=2.0))(GRAPH, draw(N, F), get_coupling=True)[1]
    assert not torch.allclose(c, c[reverse_edges(GRAPH)])


@pytest.mark.parametrize(
    "graph, options, text",
    [
        (dgl.graph(([0, 1], [1, 2])), {}, "a reverse for each edge, got edges without. Add them: dgl.to_bidirected"),
        (dgl.to_block(GRAPH, torch.tensor([0, 1])), {}, "edges that go both ways, with mutual=True, got a block. Give"),
        (bipartite_graph([0], [0], 1, 1), {}, "with mutual=True, got sources and destinations. Give it mutual"),
        (None, {"competition": "neighbours"}, "competition: expected 'capsules' with mutual=True, got 'neighbours'"),
        (None, {"in_caps": 2}, "in_caps: expected 1 with mutual=True, got 2"),
    ],
)
def test_what_can_not_be_mutual_is_refused(graph, options, text):
    with pytest.raises(InputError, match=text.replace(".", r"\.")):
        layer = CapsuleConv(F, D, K, Spherical(mutual=True), allow_zero_in_degree=True, **options)
        layer(graph, torch.ones(graph.num_src_nodes(), F))


def test_another_engine_than_torch_is_refused(draw):
    wanted = "engine: expected 'auto' or 'torch' with mutual=True, got 'fused'"
    with graphcaps.engine("fused"), pytest.raises(InputError, match=wanted):
        layer_of()(GRAPH, draw(N, F))
    with pytest.raises(InputError, match="routing: expected one without mutual=True"):
        graphcaps.route(GRAPH, draw(len(SRC), D), Spherical(mutual=True))
