"""CapsuleConv and CapsuleReadout: their formula, DGL's manners, and what must hold on any graph."""

from __future__ import annotations

import copy
import pickle
import warnings

import pytest
import torch
from dgl.nn.pytorch import GraphConv, HeteroGraphConv

import graphcaps
from graphcaps import InputError, dgl, squash
from graphcaps.graph import COMPETITIONS
from graphcaps.nn import CapsuleConv, CapsuleReadout
from graphcaps.routing import Dynamic, Spherical, Uniform

pytestmark = pytest.mark.usefixtures("one_thread")

F, D, K, N = 6, 4, 3, 9
# float64: sums of at most 30 terms of size 10, three iterations; see test_facts.py.
EXACT = dict(rtol=1e-10, atol=1e-10)


@pytest.fixture(params=COMPETITIONS)
def competition(request):
    return request.param


def graph_of(seed=0, num_nodes=N, num_edges=20):
    """Random edges and a self-loop for each node; with parallel edges."""
    generator = torch.Generator().manual_seed(seed)
    src, dst = torch.randint(num_nodes, (2, num_edges), generator=generator)
    return dgl.add_self_loop(dgl.graph((src, dst), num_nodes=num_nodes))


def conv(seed=0, in_feats=F, **options):
    torch.manual_seed(seed)
    layer = CapsuleConv(in_feats, D, K, **options).double()
    torch.nn.init.normal_(layer.capsules.bias)
    return layer


def by_loops(layer, graph, x, weights, along=None):
    """The formulas of the docstring for features (N, F) of one capsule per node, node by node; and c (E, K)."""
    capsules, routing = layer.capsules, layer.capsules.routing
    src, dst = (end.tolist() for end in graph.edges(order="eid"))
    edges, nodes = range(len(src)), range(graph.num_dst_nodes())
    into = [[e for e in edges if dst[e] == v] for v in nodes]
    features = x[src] if along is None else torch.cat((x[src], along), 1)
    z = torch.einsum("ef,fkd->ekd", x[src], capsules.weight[0])
    if along is not None:
        z = z + torch.einsum("ef,fkd->ekd", along, capsules.weight_edge[0])
    z = z / z.norm(dim=-1, keepdim=True) if routing.unit_votes else z
    votes = weights[:, None, None] * z  # (E, K, D)
    b = torch.zeros_like(votes[..., 0])
    for _ in range(routing.iterations):
        c = b.softmax(1)
        if capsules.competition == "neighbours":
            for out in ([e for e in edges if src[e] == u] for u in range(len(x))):
                c = c.index_put((torch.tensor(out),), b[out].flatten().softmax(0).view(-1, b.shape[1]))
        s = torch.stack([(c[of_v, :, None] * votes[of_v]).sum(0) for of_v in into])  # (N, K, D)
        if isinstance(routing, Dynamic):
            b = b + (votes * squash(s)[dst]).sum(-1)
        elif isinstance(routing, Spherical):
            rho = torch.stack([votes[of_v].square().sum(-1).mean(0).sqrt() for of_v in into])  # (N, K)
            b = routing.kappa * (votes * s[dst]).sum(-1) / s[dst].norm(dim=-1) / rho[dst]
    rows = []
    for v, of_v in enumerate(into):
        out = s[v] * b.shape[1] / (len(of_v) if capsules.competition == "capsules" else 1)
        if capsules.squash_output and not routing.unit_votes:
            out = out / features[of_v].square().mean().sqrt()
        if capsules.weight_target is not None:
            own = x[v] / x[v].square().mean().sqrt() if capsules.squash_output else x[v]
            out = out + torch.einsum("f,fkd->kd", own, capsules.weight_target[0])
        rows.append(out + capsules.bias)
    return (squash(torch.stack(rows)) if capsules.squash_output else torch.stack(rows)), c


@pytest.mark.parametrize("engine", ["auto", "torch", "dgl"])
@pytest.mark.parametrize(
    ("routing", "options"),
    [
        (Spherical(3), {}),
        (Spherical(3, concentration=4.0, unit_votes=True), {}),
        (Dynamic(3), {}),
        (Uniform(), {"squash_output": False}),
    ],
    ids=lambda value: str(value).partition("(")[0],
)
def test_a_convolution_is_the_formula_of_its_docstring(competition, routing, options, engine, draw):
    layer = conv(competition=competition, routing=routing, **options)
    graph, x, weights = graph_of(), draw(N, F).requires_grad_(), draw(29).abs()
    with graphcaps.engine(engine):
        got, coupling = layer(graph, x, weights, get_coupling=True)
    wanted, c = by_loops(layer, graph, x, weights)
    torch.testing.assert_close(got, wanted, **EXACT)
    torch.testing.assert_close(coupling, c.unsqueeze(1), **EXACT)
    learned, cotangent = [p for p in layer.parameters() if p.dim()], draw(N, K, D)
    for ours, theirs in zip(
        *(torch.autograd.grad(out, [x, *learned], cotangent) for out in (got, wanted)), strict=True
    ):
        torch.testing.assert_close(ours, theirs, **EXACT)


@pytest.mark.parametrize("options", [{"squash_output": False}, {"routing": Spherical(unit_votes=True)}], ids=str)
def test_edge_features_and_residuals_are_the_formula_of_the_docstring(competition, options, draw):
    layer = conv(competition=competition, edge_feats=2, residual=True, activation=torch.tanh, **options)
    graph, x, weights, along = graph_of(), draw(N, F), draw(29).abs(), draw(29, 2)
    wanted, c = by_loops(layer, graph, x, weights, along)
    got, coupling = layer(graph, x, weights, get_coupling=True, edge_feat=along)
    torch.testing.assert_close(got, wanted.tanh(), **EXACT)
    torch.testing.assert_close(coupling, c.unsqueeze(1), **EXACT)
    twice = torch.stack((along, along.flip(0)), 1)  # (E, 2, edge_feats): of each of the dims between
    second = layer(graph, x, weights, edge_feat=along.flip(0))
    every = layer(graph, x[:, None].expand(-1, 2, -1), weights, edge_feat=twice)
    torch.testing.assert_close(every, torch.stack((got, second), 1), **EXACT)


@pytest.mark.parametrize("norm, competition", [("right", "capsules"), ("left", "neighbours")])
def test_one_iteration_is_dgls_graph_convolution(norm, competition, draw):
    layer = conv(competition=competition, routing=Uniform(), squash_output=False)
    plain = GraphConv(F, K * D, norm=norm).double()
    plain.weight.data = layer.capsules.weight.data.view(F, K * D)
    plain.bias.data = layer.capsules.bias.data.flatten()
    x, weights = draw(N, F), draw(29)
    for edge_weight in (None, weights):
        got, wanted = layer(graph_of(), x, edge_weight), plain(graph_of(), x, edge_weight=edge_weight)
        torch.testing.assert_close(got.flatten(1), wanted, **EXACT)


def test_a_batch_of_graphs_gives_what_each_alone_gives(competition, draw):
    layer, readout = conv(competition=competition), CapsuleReadout(F, D, 2).double()
    graphs = [graph_of(seed, size, 2 * size) for seed, size in enumerate((5, 1, 7))]
    x = draw(13, F)
    batch, parts = dgl.batch(graphs), x.split([5, 1, 7])
    alone = [layer(graph, part) for graph, part in zip(graphs, parts, strict=True)]
    torch.testing.assert_close(layer(batch, x), torch.cat(alone), **EXACT)
    alone = [readout(graph, part) for graph, part in zip(graphs, parts, strict=True)]
    torch.testing.assert_close(readout(batch, x), torch.cat(alone), **EXACT)


def test_several_capsules_in_vote_each_with_its_own_matrix(competition, draw):
    layer, graph, x = (
        conv(in_caps=2, competition=competition, routing=Uniform(), squash_output=False),
        graph_of(),
        draw(N, 2, F),
    )
    out, c = layer(graph, x, get_coupling=True)
    assert c.shape == (29, 2, K)
    flat = conv(in_feats=2 * F, competition=competition, routing=Uniform(), squash_output=False)
    flat.capsules.weight.data = layer.capsules.weight.data.reshape(1, 2 * F, K, D)
    flat.capsules.bias.data = layer.capsules.bias.data
    torch.testing.assert_close(out, flat(graph, x.flatten(1)), **EXACT)
    stacked = CapsuleConv(D, 5, 2, in_caps=K).double()
    assert stacked(graph, out).shape == (N, 2, 5)


def test_a_block_gives_what_the_whole_graph_gives(competition, draw):
    layer, graph, x = conv(competition=competition), graph_of(), draw(N, F)
    seeds = torch.tensor([4, 0, 7]) if competition == "capsules" else torch.arange(N)
    sampler = dgl.dataloading.MultiLayerFullNeighborSampler(1)
    nodes, _, (block,) = sampler.sample(graph, seeds)
    whole = layer(graph, x)[seeds]
    torch.testing.assert_close(layer(block, x[nodes]), whole, **EXACT)
    torch.testing.assert_close(layer(block, (x[nodes], x[seeds])), whole, **EXACT)
    layer = conv(competition=competition, residual=True, edge_feats=2)
    along = draw(29, 2)
    whole, of_block = layer(graph, x, edge_feat=along)[seeds], along[block.edata[dgl.EID]]
    torch.testing.assert_close(layer(block, x[nodes], edge_feat=of_block), whole, **EXACT)
    torch.testing.assert_close(layer(block, [x[nodes], x[seeds]], edge_feat=of_block), whole, **EXACT)


def test_a_bipartite_graph_is_routed_from_its_sources(competition, draw):
    graph = dgl.heterograph({("word", "in", "text"): ([0, 0, 1, 2], [0, 1, 1, 0])})
    layer = conv(in_feats=(F, None), competition=competition)
    x, own = draw(3, F), draw(2, 7)
    told = layer(graph, (x, own))
    assert told.shape == (2, K, D)
    torch.testing.assert_close(layer(graph, x), told, **EXACT)
    added = conv(in_feats=[F, 7], competition=competition, residual=True)
    torch.nn.init.zeros_(added.capsules.weight_target)
    added.load_state_dict(layer.state_dict(), strict=False)
    torch.testing.assert_close(added(graph, (x, own)), told, **EXACT)
    added.reset_parameters()
    assert (added(graph, (x, own)) - added(graph, (x, own.flip(1)))).abs().max() > 1e-3
    relations = HeteroGraphConv({"in": added}, aggregate="sum")
    torch.testing.assert_close(relations(graph, {"word": x, "text": own})["text"], added(graph, (x, own)), **EXACT)


def test_a_destinations_features_are_used_or_refused_aloud(draw):
    graph = dgl.heterograph({("word", "in", "text"): ([0, 0, 1, 2], [0, 1, 1, 0])})
    with pytest.warns(UserWarning, match=r"in_feats: .*is not used.*residual=True adds them; in_feats=\(F, None\)"):
        conv(in_feats=(F, 99))
    layer = HeteroGraphConv({"in": conv()})
    nodes = {"word": draw(3, F), "text": draw(2, F)}
    with pytest.warns(UserWarning, match="feat: .*is not used"):
        layer(graph, nodes)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        layer(graph, nodes)  # said once
        conv(in_feats=(F, None))(graph, (nodes["word"], nodes["text"]))
        conv(in_feats=(F, F), residual=True)(graph, (nodes["word"], nodes["text"]))
    with pytest.raises(InputError, match="feat: expected a pair, with the destination's features"):
        conv(in_feats=(F, F), residual=True)(graph, nodes["word"])
    with pytest.raises(InputError, match=r"feat\[1\]: expected \(N=2, \*, 7\), got \(2, 6\)"):
        conv(in_feats=(F, 7), residual=True)(graph, (nodes["word"], nodes["text"]))


def test_a_node_without_in_edges_is_an_error_or_the_bias(competition, draw):
    graph, x = dgl.graph(([0], [1]), num_nodes=3), draw(3, F)
    layer = conv(competition=competition)
    with pytest.raises(dgl.DGLError, match="expected an in-edge for every node.*dgl.add_self_loop"):
        layer(graph, x)
    layer.set_allow_zero_in_degree(True)
    out = layer(graph, x)
    for v in (0, 2):
        torch.testing.assert_close(out[v], squash(layer.capsules.bias))
    assert (out[1] - out[0]).abs().max() > 1e-3
    out, c = layer(dgl.graph(([], []), num_nodes=3), x, get_coupling=True)
    torch.testing.assert_close(out, squash(layer.capsules.bias).expand(3, K, D))
    assert c.shape == (0, 1, K)


def test_votes_are_dropped_in_training_alone(competition, draw):
    layer = conv(competition=competition, routing=Uniform(), vote_drop=0.5, squash_output=False)
    graph, x = dgl.graph(([0] * 4000, [1] * 4000), num_nodes=2), draw(2, F)
    layer.set_allow_zero_in_degree(True)
    mean = layer.eval()(graph, x)[1]
    torch.testing.assert_close(layer.train()(graph, x)[1], mean, rtol=0.1, atol=0.1)
    votes = torch.stack([layer(graph_of(), x_9)[0] for x_9 in [draw(N, F)] for _ in range(2)])
    assert not torch.equal(*votes)


def test_graphs_without_nodes_and_of_one_node_are_read_out(draw):
    readout = CapsuleReadout(F, D, 2).double()
    torch.nn.init.normal_(readout.capsules.bias)
    empty, one = dgl.graph(([], []), num_nodes=0), dgl.graph(([], []), num_nodes=1)
    x = draw(1, F)
    out, c = readout(dgl.batch([empty, one, empty]), x, get_coupling=True)
    assert out.shape == (3, 2, D) and c.shape == (1, 1, 2)
    torch.testing.assert_close(out[0], squash(readout.capsules.bias))
    assert (out[1] - out[0]).abs().max() > 1e-3


@pytest.mark.parametrize(
    "kind, rel, scale", [(torch.float16, 2e-3, 1e-4), (torch.float16, 2e-3, 1e3), (torch.bfloat16, 2e-2, 1)]
)
def test_half_precision_holds_features_of_any_scale(kind, rel, scale, draw):
    """Of length 1000 their squares are more than float16 holds, and of 1e-4 less. Rounding is 5e-4, 4e-3."""
    layer, x = CapsuleConv(F, D, K), draw(N, F).float()
    wanted = layer(graph_of(), x)
    for got in (
        copy.deepcopy(layer).to(kind)(graph_of(), (scale * x).to(kind)),
        torch.autocast("cpu", dtype=kind)(layer)(graph_of(), scale * x),
    ):
        torch.testing.assert_close(got.float(), wanted, rtol=0, atol=rel)


@pytest.mark.parametrize("readout", [False, True])
def test_unit_votes_forget_how_long_features_are(readout, draw):
    """A node whose features are zero has nothing to say, and its slopes are finite."""
    torch.manual_seed(0)
    layer = (CapsuleReadout if readout else CapsuleConv)(F, D, K, routing=Spherical(unit_votes=True)).double()
    x = draw(N, F)
    longer = x * torch.logspace(-4, 4, N).double()[:, None]
    torch.testing.assert_close(layer(graph_of(), longer), layer(graph_of(), x), **EXACT)
    silent = torch.zeros(N, F, dtype=torch.float64, requires_grad=True)
    assert not layer(graph_of(), silent).any()
    slopes = torch.autograd.grad(layer(graph_of(), silent).sum(), (silent, *layer.parameters()))
    assert all(slope.isfinite().all() and slope.abs().max() < 1e3 for slope in slopes)


def test_layers_copy_pickle_print_and_begin_anew(draw):
    layer, x = conv(competition="neighbours"), draw(N, F)
    for twin in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        torch.testing.assert_close(twin(graph_of(), x), layer(graph_of(), x))
    assert "6 -> 3 x 4, competition='neighbours', squash_output=True, normalise=True" in repr(layer)
    assert "(routing): Spherical(iterations=3, concentration=0.1, " in repr(layer)
    before = layer.capsules.weight.clone()
    torch.nn.init.constant_(layer.capsules.routing.exponent, 3)
    layer.reset_parameters()
    assert layer.capsules.routing.kappa.item() == pytest.approx(0.1)
    assert not torch.equal(before, layer.capsules.weight) and not layer.capsules.bias.any()
    assert layer.capsules.weight.std().item() == pytest.approx((2 * 2 / (F + K * D)) ** 0.5, rel=0.25)
    alone = CapsuleConv(F, D, 1, Dynamic(5)).capsules.routing
    assert isinstance(alone, Uniform) and alone.iterations == 5  # one capsule has nothing to compete with


def test_sparse_features_are_routed_as_dense_ones(draw):
    layer, x = conv(residual=True, feat_drop=0.5), draw(N, F) * (draw(N, F) > 0)
    wanted = torch.autograd.grad(layer.eval()(graph_of(), x).square().sum(), list(layer.parameters()))
    found = torch.autograd.grad(layer(graph_of(), x.to_sparse_csr()).square().sum(), list(layer.parameters()))
    torch.testing.assert_close(found, wanted, **EXACT)
    layer.train().feat_drop.p = 1.0  # nothing is left
    torch.testing.assert_close(layer(graph_of(), x.to_sparse_csr()), layer(graph_of(), 0 * x), **EXACT)


ONES = torch.ones(N, F).double()


@pytest.mark.parametrize(
    "wrong, text",
    [
        (lambda: CapsuleConv(-1, D, K), "in_feats: expected an integer >= 1, got -1"),
        (lambda: CapsuleConv(F, D, K, competition="neighbors"), "Did you mean 'neighbours'?"),
        (lambda: CapsuleConv(F, D, K, routing="em"), "routing: expected one whose poses are sums of votes"),
        (lambda: CapsuleConv(F, D, K, 0.6), "routing: expected a Routing such as .*got 0.6"),
        (lambda: conv()(graph_of(), torch.ones(N, 5)), r"feat: expected \(N=9, \*, 6\), got \(9, 5\)"),
        (lambda: conv()(graph_of(), ONES.long()), "feat: expected torch.float64"),
        (lambda: conv()(graph_of(), ONES, torch.ones(3)), r"edge_weight: expected \(E=29,\)"),
        (lambda: conv()(torch.zeros(2, 3), ONES), "graph: expected a DGLGraph, got Tensor"),
        (lambda: conv()(graph_of().formats("csc"), ONES), "graph: expected a graph whose formats include coo, got csc"),
        (lambda: conv(edge_feats=2)(graph_of(), ONES), r"edge_feat: expected \(E=29, 2\), got none"),
        (
            lambda: conv()(graph_of(), ONES, edge_feat=torch.ones(29, 3)),
            "edge_feat: expected none.*Give it edge_feats=3",
        ),
    ],
)
def test_wrong_arguments_are_named(wrong, text):
    with pytest.raises(InputError, match=text):
        wrong()
