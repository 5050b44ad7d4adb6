"""Edges whose two directions share their logits: what the layers' docstrings promise, against loops."""

from __future__ import annotations

import pytest
import torch

from graphcaps import bipartite_graph, dgl, engine
from graphcaps.errors import InputError
from graphcaps.graph import reverse_edges
from graphcaps.nn import CapsuleConv
from graphcaps.routing import Dynamic, Spherical, Uniform

pytestmark = pytest.mark.usefixtures("one_thread")

N, F, D, K = 6, 5, 4, 3
# twice between 0 and 1, a loop, and nodes with nothing but their own loop
SRC, DST = [0, 1, 0, 1, 1, 3, 3, 0, 4, 4, 2, 5], [1, 0, 1, 0, 3, 1, 3, 4, 0, 4, 2, 5]
GRAPH = dgl.graph((SRC, DST), num_nodes=N)


def by_loops(layer, x, weight=None):
    """(N, K, D) before bias and squash, and the couplings (E, K), of spherical routing edge by edge."""
    capsules, edges = layer.capsules, list(zip(SRC, DST, strict=True))
    z = torch.einsum("nf,fkd->nkd", x, capsules.weight[0])
    z = z / z.norm(dim=-1, keepdim=True) if capsules.unit_votes else z
    votes = [z[u] * (1 if weight is None else weight[e]) for e, (u, _) in enumerate(edges)]
    back = []
    for e, (u, v) in enumerate(edges):
        before = sum(edge == (u, v) for edge in edges[:e])  # it is so many-th of its kind
        back.append([e for e, edge in enumerate(edges) if edge == (v, u)][before])
    kappa, into = capsules.routing.kappa, [[e for e in range(len(edges)) if DST[e] == v] for v in range(N)]
    c, s = [torch.full((K,), 1 / K, dtype=x.dtype)] * len(edges), []
    for r in range(capsules.routing.iterations):
        if r > 0:
            own = []
            for e, (_, v) in enumerate(edges):
                rho = (sum(votes[k].square().sum(-1) for k in into[v]) / len(into[v])).sqrt()
                own.append(kappa * (votes[e] * s[v]).sum(-1) / s[v].norm(dim=-1) / rho)
            c = [(own[e] + own[back[e]]).softmax(-1) for e in range(len(edges))]
        s = [sum(c[e][:, None] * votes[e] for e in into[v]) for v in range(N)]
    return torch.stack([s[v] * K / len(into[v]) for v in range(N)]), torch.stack(c)


def layer_of(routing=None, **options):
    torch.manual_seed(3)
    options = {"mutual": True, "squash_output": False} | options
    return CapsuleConv(F, D, K, Spherical(concentration=2.0) if routing is None else routing, **options).double()


@pytest.mark.parametrize("unit_votes", [True, False])
@pytest.mark.parametrize("iterations", [1, 4])
def test_a_layer_and_its_gradients_are_those_of_loops_over_edges(unit_votes, iterations, draw):
    layer, x, weight = layer_of(Spherical(iterations, 2.0), unit_votes=unit_votes), draw(N, F), draw(len(SRC)).abs()
    x.requires_grad_()
    got, c = layer(GRAPH, x, edge_weight=weight, get_coupling=True)
    wanted, couplings = by_loops(layer, x, weight)
    torch.testing.assert_close(got, wanted)
    torch.testing.assert_close(c.squeeze(1), couplings)
    learned = [x, layer.capsules.weight] + [layer.capsules.routing.exponent] * (iterations > 1)
    slope = draw(N, K, D)
    for ours, theirs in zip(*(torch.autograd.grad(out, learned, slope) for out in (got, wanted)), strict=True):
        torch.testing.assert_close(ours, theirs)


def test_both_directions_of_an_edge_are_coupled_alike_and_only_so_with_mutual(draw):
    x, back = draw(N, F), reverse_edges(GRAPH)
    for shared in (True, False):
        c = layer_of(mutual=shared)(GRAPH, x, get_coupling=True)[1]
        assert torch.allclose(c, c[back]) == shared


@pytest.mark.parametrize("routing", [Dynamic(3), Uniform()], ids=["dynamic", "uniform"])
def test_other_routings_share_logits_too(routing, draw):
    layer, x = layer_of(routing), draw(N, F)
    c = layer(GRAPH, x, get_coupling=True)[1]
    torch.testing.assert_close(c, c[reverse_edges(GRAPH)])
    assert torch.allclose(c, torch.full_like(c, 1 / K)) == isinstance(routing, Uniform)


def test_pyg_gives_the_same(draw):
    pyg = pytest.importorskip("graphcaps.pyg")
    ours, x = layer_of(), draw(N, F)
    options = {"routing": Spherical(concentration=2.0), "mutual": True, "squash_output": False}
    theirs = pyg.CapsuleConv(F, D, K, add_self_loops=False, **options).double()
    theirs.load_state_dict(ours.state_dict())
    edges = torch.tensor([SRC, DST])
    torch.testing.assert_close(theirs(x, edges), ours(GRAPH, x))
    with pytest.raises(InputError, match="x: expected the features of nodes .* with mutual=True, got a pair"):
        theirs((x, x), edges)


def block():
    return dgl.to_block(GRAPH, torch.tensor([0, 1]))


@pytest.mark.parametrize(
    "graph, options, text",
    [
        (dgl.graph(([0, 1], [1, 2])), {}, "a reverse for each edge, got the edge 0 -> 1 without. Add them: dgl.to_"),
        (dgl.graph(([0, 0, 1], [1, 1, 0])), {}, "graph: expected a reverse for each edge"),
        (block, {}, "graph: expected edges that go both ways, with mutual=True, got a block. Give it mutual=False"),
        (lambda: bipartite_graph([0], [0], 1, 1), {}, "with mutual=True, got sources and destinations. Give it mutual"),
        (None, {"in_caps": 2}, "in_caps: expected 1 with mutual=True, got 2"),
    ],
)
def test_what_can_not_be_mutual_is_refused(graph, options, text):
    graph = graph() if callable(graph) else graph
    with pytest.raises(InputError, match=text.replace(".", r"\.")):
        layer = layer_of(allow_zero_in_degree=True, **options).float()
        layer(graph, torch.ones(graph.num_src_nodes(), F))


@pytest.mark.parametrize(("threads", "edge_feats"), [(1, None), (3, None), (3, 2)])
@pytest.mark.parametrize("routing", [Spherical(4, 2.0), Dynamic(4), Uniform()], ids=["spherical", "dynamic", "uniform"])
def test_engine_fused_gives_what_engine_torch_does_on_a_larger_graph(routing, threads, edge_feats, draw):
    graph = dgl.to_bidirected(dgl.rand_graph(300, 2000))
    graph = dgl.add_nodes(dgl.remove_nodes(graph, 299), 1)  # the last has no edges
    layer, x = layer_of(routing, allow_zero_in_degree=True, edge_feats=edge_feats), draw(300, F)
    along = {} if edge_feats is None else {"edge_feat": draw(graph.num_edges(), edge_feats)}
    weight, slope = draw(graph.num_edges()).abs(), draw(300, K, D)
    before, found = torch.get_num_threads(), []
    torch.set_num_threads(threads)
    try:
        for name in ("torch", "fused"):
            with engine(name):
                given = [x.clone().requires_grad_(), weight.clone().requires_grad_()]
                out, c = layer(graph, *given, get_coupling=True, **along)
                learned = [*given, *(p for name, p in layer.named_parameters() if "bias" not in name)]
                slopes = torch.autograd.grad(out, learned, slope, materialize_grads=True)
                found.append((out, c, *slopes, layer(graph, *given, **along)))
    finally:
        torch.set_num_threads(before)
    for ours, theirs in zip(*found, strict=True):
        torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("name", ["dgl", "fused"])
def test_another_engine_is_refused(name):
    x = torch.ones(N, 2, F) if name == "fused" else torch.ones(N, F)  # which takes one image of features alone
    text = f"engine: expected 'auto' or 'torch' with mutual=True, got '{name}'"
    with pytest.raises(InputError, match=text), engine(name):
        layer_of()(GRAPH, x.double())
