"""CapsuleConv and CapsuleReadout: their formula, DGL's manners, and what must hold on any graph."""

from __future__ import annotations

import copy
import pickle
import warnings

import pytest
import torch
from dgl.nn.pytorch import GATConv, GraphConv, HeteroGraphConv

from graphcaps import InputError, dgl, margin_loss, squash
from graphcaps.graph import COMPETITIONS, expand, links, membership
from graphcaps.nn import CapsuleConv, CapsuleReadout
from graphcaps.routing.engines import engine_names

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


def by_loops(layer, graph, x, weights=None, along=None):
    """The formulas of the docstring for features (N, F) of one capsule per node, node by node."""
    capsules = layer.capsules
    src, dst = (end.tolist() for end in graph.edges(order="eid"))
    weights = [1.0] * len(src) if weights is None else weights.tolist()
    num_caps, num_nodes = capsules.weight.shape[2], graph.num_dst_nodes()
    z = [[x[u] @ capsules.weight[0, :, l] for l in range(num_caps)] for u in src]  # noqa: E741
    if along is not None:
        z = [[z[e][l] + along[e] @ capsules.weight_edge[0, :, l] for l in range(num_caps)] for e in range(len(src))]  # noqa: E741
    if capsules.unit_votes:
        z = [[each / each.norm() for each in of_edge] for of_edge in z]
    votes = [[w * z[e][l] for l in range(num_caps)] for e, w in enumerate(weights)]  # noqa: E741
    b = torch.zeros(len(src), num_caps, dtype=x.dtype)
    for _ in range(capsules.iterations):
        if capsules.competition == "capsules":
            c = b.softmax(1)
        else:
            c = b.clone()
            for u in range(len(x)):
                out = [e for e in range(len(src)) if src[e] == u]
                if out:
                    c[out] = b[out].flatten().softmax(0).view(len(out), num_caps)
        s = [[sum((c[e, l] * votes[e][l] for e in range(len(src)) if dst[e] == v), torch.zeros(D).double())
              for l in range(num_caps)] for v in range(num_nodes)]  # noqa: E741  # fmt: skip
        for e in range(len(src)):
            for l in range(num_caps):  # noqa: E741
                if capsules.routing == "dynamic":
                    b[e, l] += votes[e][l] @ squash(s[dst[e]][l])
                elif capsules.routing == "spherical":
                    rho = (
                        torch.stack([votes[k][l] for k in range(len(src)) if dst[k] == dst[e]]).norm()
                        / dst.count(dst[e]) ** 0.5
                    )
                    b[e, l] = capsules.learned().concentration * votes[e][l] @ s[dst[e]][l] / s[dst[e]][l].norm() / rho
    degree = [max(1, dst.count(v)) if capsules.competition == "capsules" else 1 for v in range(num_nodes)]
    heard = x[src] if along is None else torch.cat((x[src], along), 1)
    told = [heard[[e for e in range(len(src)) if dst[e] == v]] for v in range(num_nodes)]
    divided = capsules.squash_output and not capsules.unit_votes
    per = [1 / told[v].square().mean().sqrt() if divided else 1 for v in range(num_nodes)]
    rows = [torch.stack(row) * num_caps / d * p + capsules.bias for row, d, p in zip(s, degree, per, strict=True)]
    if capsules.weight_target is not None:
        scale = [x[v].square().mean().sqrt() if capsules.squash_output else 1 for v in range(num_nodes)]
        rows = [
            row + torch.einsum("f,fld->ld", x[v] / scale[v], capsules.weight_target[0]) for v, row in enumerate(rows)
        ]
    out = torch.stack(rows)
    return (squash(out) if capsules.squash_output else out), c


@pytest.mark.parametrize("routing, iterations", [("spherical", 1), ("spherical", 3), ("dynamic", 3), ("uniform", 3)])
@pytest.mark.parametrize("options", [{}, {"squash_output": False}, {"unit_votes": True}], ids=str)
def test_a_convolution_is_the_formula_of_its_docstring(competition, routing, iterations, options, draw):
    layer = conv(competition=competition, routing=routing, iterations=iterations, **options)
    graph, x, weights = graph_of(), draw(N, F), draw(29).abs()
    with torch.no_grad():
        wanted, c = by_loops(layer, graph, x, weights)
        got, coupling = layer(graph, x, weights, get_coupling=True)
    torch.testing.assert_close(got, wanted, **EXACT)
    torch.testing.assert_close(coupling, c.unsqueeze(1), **EXACT)


@pytest.mark.parametrize("options", [{}, {"squash_output": False}, {"unit_votes": True}], ids=str)
def test_edge_features_and_residuals_are_the_formula_of_the_docstring(competition, options, draw):
    layer = conv(competition=competition, edge_feats=2, residual=True, activation=torch.tanh, **options)
    graph, x, weights, along = graph_of(), draw(N, F), draw(29).abs(), draw(29, 2)
    with torch.no_grad():
        wanted, c = by_loops(layer, graph, x, weights, along)
        got, coupling = layer(graph, x, weights, get_coupling=True, edge_feat=along)
    torch.testing.assert_close(got, wanted.tanh(), **EXACT)
    torch.testing.assert_close(coupling, c.unsqueeze(1), **EXACT)
    assert "edge features, residual, iterations=3" in repr(layer)
    every = layer(graph, x[:, None].expand(-1, 2, -1), weights, edge_feat=along)
    torch.testing.assert_close(every, wanted.tanh()[:, None].expand(-1, 2, -1, -1), **EXACT)
    apart = torch.stack((along, along.flip(0)), 1)  # (E, 2, edge_feats): of each of the dims between
    second = layer(graph, x, weights, edge_feat=along.flip(0))
    torch.testing.assert_close(
        layer(graph, x[:, None].expand(-1, 2, -1), weights, edge_feat=apart), torch.stack((got, second), 1), **EXACT
    )


def test_gradients_reach_edge_features_and_residuals(competition, draw):
    layer, graph = conv(competition=competition, edge_feats=2, residual=True), graph_of(num_nodes=4, num_edges=5)
    inputs = draw(4, F).requires_grad_(), draw(9, 2).requires_grad_()
    assert torch.autograd.gradcheck(lambda x, along: layer(graph, x, edge_feat=along), inputs)


@pytest.mark.parametrize("norm, competition", [("right", "capsules"), ("left", "neighbours")])
def test_one_iteration_is_dgls_graph_convolution(norm, competition, draw):
    layer = conv(competition=competition, iterations=1, squash_output=False)
    plain = GraphConv(F, K * D, norm=norm).double()
    plain.weight.data = layer.capsules.weight.data.view(F, K * D)
    plain.bias.data = layer.capsules.bias.data.flatten()
    x, weights = draw(N, F), draw(29)
    for edge_weight in (None, weights):
        got, wanted = layer(graph_of(), x, edge_weight), plain(graph_of(), x, edge_weight=edge_weight)
        torch.testing.assert_close(got.flatten(1), wanted, **EXACT)


@pytest.mark.parametrize("routing", ["spherical", "dynamic"])
def test_every_engine_gives_what_naive_gives_in_value_and_gradient(competition, routing, draw):
    graph, x, cotangent = graph_of(), draw(N, 2, F), draw(N, 2, K, D)
    results = {}
    for engine in engine_names(routing):
        layer, leaf = conv(competition=competition, routing=routing, engine=engine), x.clone().requires_grad_()
        out = layer(graph, leaf)
        results[engine] = out, *torch.autograd.grad(out, (leaf, *layer.parameters()), cotangent)
    for engine, found in results.items():
        for got, wanted in zip(found, results["naive"], strict=True):
            torch.testing.assert_close(got, wanted, msg=lambda text, engine=engine: f"{engine}: {text}", **EXACT)


def test_the_gradient_is_that_of_finite_differences(competition, draw):
    layer, graph = conv(competition=competition), graph_of(num_nodes=4, num_edges=5)
    inputs = draw(4, F).requires_grad_(), draw(9).requires_grad_()
    assert torch.autograd.gradcheck(lambda x, weights: layer(graph, x, weights), inputs)
    readout = CapsuleReadout(F, D, 2).double()
    assert torch.autograd.gradcheck(lambda x: readout(graph, x), inputs[:1])


def test_permuted_nodes_give_permuted_capsules(competition, draw):
    layer, graph, x = conv(competition=competition), graph_of(), draw(N, F)
    order = torch.randperm(N, generator=torch.Generator().manual_seed(1))  # node i becomes order[i]
    src, dst = graph.edges(order="eid")
    permuted = dgl.graph((order[src], order[dst]), num_nodes=N)
    moved = torch.empty_like(x).index_copy_(0, order, x)
    torch.testing.assert_close(layer(permuted, moved)[order], layer(graph, x), **EXACT)
    readout = CapsuleReadout(F, D, 2).double()
    torch.testing.assert_close(readout(permuted, moved), readout(graph, x), **EXACT)


def test_a_batch_of_graphs_gives_what_each_alone_gives(competition, draw):
    layer, readout = conv(competition=competition), CapsuleReadout(F, D, 2).double()
    graphs = [graph_of(seed, size, 2 * size) for seed, size in enumerate((5, 1, 7))]
    x = draw(13, F)
    batch, parts = dgl.batch(graphs), x.split([5, 1, 7])
    alone = [layer(graph, part) for graph, part in zip(graphs, parts, strict=True)]
    torch.testing.assert_close(layer(batch, x), torch.cat(alone), **EXACT)
    alone = [readout(graph, part) for graph, part in zip(graphs, parts, strict=True)]
    torch.testing.assert_close(readout(batch, x), torch.cat(alone), **EXACT)


def test_couplings_compete_over_what_their_name_says(competition, draw):
    graph = graph_of()
    _, c = conv(competition=competition)(graph, draw(N, F), get_coupling=True)
    assert c.shape == (29, 1, K) and not c.requires_grad
    assert c.std() > 1e-3  # routing did route
    if competition == "capsules":
        torch.testing.assert_close(c.sum((1, 2)), torch.ones(29).double())
    else:
        leaving = torch.zeros(N).double().index_add(0, graph.edges(order="eid")[0], c.sum((1, 2)))
        torch.testing.assert_close(leaving, torch.ones(N).double())


def test_dims_between_nodes_and_features_are_routed_each_for_itself(competition, draw):
    layer, graph, x = conv(competition=competition), graph_of(), draw(N, 2, 5, F)
    out, c = layer(graph, x, get_coupling=True)
    assert out.shape == (N, 2, 5, K, D) and c.shape == (29, 2, 5, 1, K)
    alone, c_alone = layer(graph, x[:, 1, 3], get_coupling=True)
    torch.testing.assert_close(out[:, 1, 3], alone, **EXACT)
    torch.testing.assert_close(c[:, 1, 3], c_alone, **EXACT)


def test_several_capsules_in_vote_each_with_its_own_matrix(competition, draw):
    layer, graph, x = (
        conv(in_caps=2, competition=competition, iterations=1, squash_output=False),
        graph_of(),
        draw(N, 2, F),
    )
    out, c = layer(graph, x, get_coupling=True)
    assert c.shape == (29, 2, K)
    flat = conv(in_feats=2 * F, competition=competition, iterations=1, squash_output=False)
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


def test_edges_of_relations_bring_their_weights_and_features(draw):
    ends = {("word", "in", "text"): ([0, 0, 1, 2], [0, 1, 1, 0]), ("text", "cites", "text"): ([0, 1], [1, 0])}
    graph, nodes = dgl.heterograph(ends), {"word": draw(3, F), "text": draw(2, F)}
    layers = {"in": conv(edge_feats=2), "cites": conv()}
    features, weights = {"in": {"edge_feat": draw(4, 2)}}, {"in": (draw(4),), "cites": (draw(2),)}
    both = HeteroGraphConv(layers, aggregate="sum")
    told = layers["in"](graph["in"], nodes["word"], *weights["in"], **features["in"])
    told = told + layers["cites"](graph["cites"], nodes["text"], *weights["cites"])
    out = both(graph, nodes, mod_args=weights, mod_kwargs=features)["text"]
    torch.testing.assert_close(out, told, **EXACT)
    for changed in ({"mod_args": {**weights, "in": (2 * weights["in"][0],)}, "mod_kwargs": features},):
        assert (both(graph, nodes, **changed)["text"] - told).abs().max() > 1e-3
    silent = {"in": {"edge_feat": torch.zeros(4, 2).double()}}
    assert (both(graph, nodes, mod_args=weights, mod_kwargs=silent)["text"] - told).abs().max() > 1e-3


def test_a_convolution_takes_the_place_of_gat_conv_by_one_line(draw):
    """The calls of docs/layers.md."""
    graph, x, heads, elu = graph_of(), draw(N, F).float(), 3, torch.nn.functional.elu
    first = CapsuleConv(F, 8, heads, feat_drop=0.6, vote_drop=0.6, squash_output=False, activation=elu)
    second = CapsuleConv(8 * heads, 5, 1, feat_drop=0.6, vote_drop=0.6, squash_output=False)
    one = GATConv(F, 8, heads, feat_drop=0.6, attn_drop=0.6, activation=elu)
    two = GATConv(8 * heads, 5, 1, feat_drop=0.6, attn_drop=0.6)
    h, wanted = first(graph, x), one(graph, x)
    assert h.shape == wanted.shape and second(graph, h.flatten(1)).shape == two(graph, wanted.flatten(1)).shape
    first.eval()
    activated, first.activation = first(graph, x), None
    assert torch.equal(activated, elu(first(graph, x))) and activated.min() < 0


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


def test_in_degrees_are_looked_at_once_per_structure(monkeypatch, draw):
    graph, layer, x, asked = graph_of(), conv(), draw(N, F), []
    in_degrees = type(graph).in_degrees
    monkeypatch.setattr(type(graph), "in_degrees", lambda self, *rest: asked.append(1) or in_degrees(self, *rest))
    for _ in range(3):
        layer(graph, x)
    assert len(asked) == 1
    graph.add_nodes(1)
    with pytest.raises(dgl.DGLError, match="expected an in-edge for every node"):
        layer(graph, draw(N + 1, F))


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


@pytest.mark.parametrize("num_nodes", [0, 1, 3])
def test_a_graph_without_edges_gives_the_bias(competition, num_nodes, draw):
    graph = dgl.graph(([], []), num_nodes=num_nodes)
    layer = conv(competition=competition, allow_zero_in_degree=True)
    out, c = layer(graph, draw(num_nodes, F), get_coupling=True)
    torch.testing.assert_close(out, squash(layer.capsules.bias).expand(num_nodes, K, D))
    assert c.shape == (0, 1, K)


def test_one_node_alone_hears_itself(competition, draw):
    layer, x = conv(competition=competition, iterations=1), draw(1, F)
    z = torch.einsum("f,fld->ld", x[0], layer.capsules.weight[0])
    out = layer(dgl.graph(([0], [0])), x)
    torch.testing.assert_close(out[0], squash(z / x.square().mean().sqrt() + layer.capsules.bias), **EXACT)


def test_votes_are_dropped_in_training_alone(competition, draw):
    layer = conv(competition=competition, iterations=1, vote_drop=0.5, squash_output=False)
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


def test_undecided_nodes_are_read_out_as_their_mean(draw):
    readout = CapsuleReadout(F, D, 2, iterations=1, squash_output=False).double()
    batch, x = dgl.batch([dgl.rand_graph(3, 2), dgl.rand_graph(5, 2)]), draw(8, F)
    z = torch.einsum("nf,fld->nld", x, readout.capsules.weight[0])
    torch.testing.assert_close(readout(batch, x), torch.stack([z[:3].mean(0), z[3:].mean(0)]), **EXACT)


@pytest.mark.parametrize("scale", [1.0, 30.0])
def test_readouts_learn_ten_classes_of_graphs_of_all_sizes_as_well_as_their_control(scale):
    """Graphs of 10 to 500 nodes, every third of its graph's class; with dynamic routing this ends at chance."""
    share = {routing: _readout_accuracy(routing, scale) for routing in ("uniform", "spherical")}
    assert share["spherical"] > 0.85
    assert share["spherical"] > share["uniform"] - 0.05


def _readout_accuracy(routing: str, scale: float) -> float:
    source = torch.Generator().manual_seed(0)
    kinds, others = torch.randn(10, F, generator=source), torch.randn(20, F, generator=source)
    batch, x, labels = [], [], torch.arange(200) % 10
    for label in labels:
        size = int(10 * 50 ** torch.rand((), generator=source))
        of_class = torch.rand(size, 1, generator=source) < 1 / 3
        noise = others[torch.randint(20, (size,), generator=source)] + 0.3 * torch.randn(size, F, generator=source)
        x.append(torch.where(of_class, kinds[label], noise) * scale)
        batch.append(dgl.graph(([], []), num_nodes=size))
    torch.manual_seed(0)
    readout = CapsuleReadout(F, 8, 10, routing=routing)
    adam = torch.optim.Adam(readout.parameters(), lr=0.02)
    parts = [(dgl.batch(batch[k : k + 50]), torch.cat(x[k : k + 50]), labels[k : k + 50]) for k in range(0, 200, 50)]
    for _ in range(25):
        for graphs, features, wanted in parts[:3]:
            loss = margin_loss(readout(graphs, features).norm(dim=-1), wanted)
            adam.zero_grad()
            loss.backward()
            adam.step()
    graphs, features, wanted = parts[3]
    return (readout(graphs, features).norm(dim=-1).argmax(dim=1) == wanted).double().mean().item()


def test_lengths_are_class_scores_and_learn():
    torch.manual_seed(0)
    batch = dgl.batch([dgl.rand_graph(5, 4) for _ in range(20)])
    labels = torch.arange(20) % 2
    x = torch.randn(100, F) + labels.repeat_interleave(5).unsqueeze(1)
    readout = CapsuleReadout(F, 16, 2)
    optimizer = torch.optim.Adam(readout.parameters(), 0.02)
    for _ in range(60):
        lengths = readout(batch, x).norm(dim=-1)
        assert bool((lengths < 1).all())
        optimizer.zero_grad()
        margin_loss(lengths, labels).backward()
        optimizer.step()
    assert (lengths.argmax(1) == labels).float().mean() > 0.9


def test_readouts_follow_the_batch_and_not_the_structure(draw):
    """Two batches may share one structure object; whose a node is must then come from the batch."""
    readout, x = CapsuleReadout(F, D, 2).double(), draw(6, F)
    graph = dgl.batch([dgl.graph(([], []), num_nodes=3)] * 2)
    two = readout(graph, x)
    graph.set_batch_num_nodes(torch.tensor([6]))
    graph.set_batch_num_edges(torch.tensor([0]))
    assert (two.shape, readout(graph, x).shape) == ((2, 2, D), (1, 2, D))


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_expanded_graphs_link_every_capsule_in_the_order_of_the_couplings(dtype):
    graph = dgl.graph((torch.tensor([2, 0], dtype=dtype), torch.tensor([1, 2], dtype=dtype)), num_nodes=3)
    for competition in COMPETITIONS:
        edges = links(expanded := expand(graph, 2, 3, competition))
        assert expanded.idtype == dtype
        source = [0, 1] if competition == "capsules" else [2, 0]  # edge or node
        wanted = [(2 * a + k, 3 * v + l) for a, v in zip(source, (1, 2)) for k in range(2) for l in range(3)]  # noqa: B905, E741
        assert list(zip(edges.src.tolist(), edges.dst.tolist(), strict=True)) == wanted
        assert (edges.num_children, edges.num_parents) == (2 * (2 if competition == "capsules" else 3), 9)


def test_expanded_graphs_are_made_once_and_freed_with_their_graph():
    from graphcaps.graph import nodes

    graph = graph_of()
    before = set(nodes._expanded.kept)
    assert expand(graph, 1, K)._graph is expand(graph, 1, K)._graph
    assert expand(graph, 1, K)._graph is not expand(graph, 1, K, "capsules")._graph
    assert membership(graph)._graph is membership(graph)._graph
    del graph
    assert set(nodes._expanded.kept) <= before


@pytest.mark.parametrize("scale", [1e-4, 1, 1e3])
@pytest.mark.parametrize("kind, rel", [(torch.float16, 2e-3), (torch.bfloat16, 2e-2)])
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
    layer = (CapsuleReadout if readout else CapsuleConv)(F, D, K, unit_votes=True).double()
    x = draw(N, F)
    longer = x * torch.logspace(-4, 4, N).double()[:, None]
    torch.testing.assert_close(layer(graph_of(), longer), layer(graph_of(), x), **EXACT)
    assert "unit_votes=True" in repr(layer)
    silent = torch.zeros(N, F, dtype=torch.float64, requires_grad=True)
    assert not layer(graph_of(), silent).any()
    slopes = torch.autograd.grad(layer(graph_of(), silent).sum(), (silent, *layer.parameters()))
    assert all(slope.isfinite().all() and slope.abs().max() < 1e3 for slope in slopes)


def test_layers_copy_pickle_and_print(draw):
    layer = conv(competition="neighbours")
    for twin in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        torch.testing.assert_close(twin(graph_of(), x := draw(N, F)), layer(graph_of(), x))
    said = "6 -> 3 x 4, iterations=3, routing='spherical', concentration=0.5, competition='neighbours', "
    assert said + "squash_output=True, normalise=True, engine='auto'" in repr(layer)
    before = layer.capsules.weight.clone()
    torch.nn.init.constant_(layer.capsules.learned.exponent, 3)
    layer.reset_parameters()
    assert layer.capsules.learned().concentration == 0.5
    assert not torch.equal(before, layer.capsules.weight)
    assert not layer.capsules.bias.any()
    assert layer.capsules.weight.std().item() == pytest.approx((2 * 2 / (F + K * D)) ** 0.5, rel=0.25)


@pytest.mark.parametrize(
    "wrong, text",
    [
        (lambda: CapsuleConv(F, 0, K), "out_feats: expected an integer >= 1, got 0"),
        (lambda: CapsuleConv(F, D, K, iterations=0), "iterations: expected an integer >= 1, got 0"),
        (
            lambda: CapsuleConv(F, D, K, competition="all"),
            "competition: expected one of capsules, neighbours, got 'all'",
        ),
        (
            lambda: CapsuleReadout(F, D, 2, routing="dynamic", engine="fuse"),
            "engine: expected one of .*Did you mean 'fused'?",
        ),
        (lambda: CapsuleConv(F, D, K, routing="em"), "routing: expected one of spherical, dynamic, uniform, got 'em'"),
        (lambda: CapsuleConv(F, D, K)(graph_of(), torch.ones(N, 5)), r"feat: expected \(N=9, \*, 6\), got \(9, 5\)"),
        (lambda: CapsuleConv(F, D, K)(graph_of(), torch.ones(8, F)), r"feat: expected \(N=9, \*, 6\), got \(8, 6\)"),
        (lambda: CapsuleConv(F, D, K, in_caps=2)(graph_of(), torch.ones(N, F)), r"feat: expected \(N=9, \*, 2, 6\)"),
        (
            lambda: CapsuleConv(F, D, K)(graph_of(), torch.ones(N, F, dtype=torch.int64)),
            "feat: expected torch.float32",
        ),
        (lambda: CapsuleConv(F, D, K)(graph_of(), torch.ones(N, F), torch.ones(3)), r"edge_weight: expected \(E=29,\)"),
        (lambda: CapsuleConv(F, D, K)(torch.zeros(2, 3), torch.ones(N, F)), "graph: expected a DGLGraph, got Tensor"),
        (lambda: CapsuleConv(-1, D, K), "in_feats: expected an integer >= 1, got -1"),
        (lambda: CapsuleConv(F, D, K, 0.6, 0.6), "iterations: .*got 0.6. Arguments after num_caps are given by name"),
        (
            lambda: conv(edge_feats=2)(graph_of(), torch.ones(N, F).double()),
            r"edge_feat: expected \(E=29, 2\), got none",
        ),
        (
            lambda: conv(edge_feats=2)(graph_of(), torch.ones(N, F).double(), edge_feat=torch.ones(29, 3).double()),
            r"edge_feat: expected \(E=29, 2\), got \(29, 3\)",
        ),
        (
            lambda: conv()(graph_of(), torch.ones(N, F).double(), edge_feat=torch.ones(29, 3)),
            "edge_feat: expected none, as the layer has no edge_feats, got some. Give it edge_feats=3",
        ),
        (lambda: CapsuleConv(F, D, K, competition="neighbors"), "Did you mean 'neighbours'?"),
        (lambda: expand(graph_of(), 0, 1), "caps_in: expected an integer >= 1, got 0"),
    ],
)
def test_wrong_arguments_are_named(wrong, text):
    with pytest.raises(InputError, match=text):
        wrong()


@pytest.mark.parametrize(
    "wrong, text",
    [
        (lambda: CapsuleConv(F, D, num_heads=8), "num_heads: .* got num_heads=8. Its name is num_caps here"),
        (lambda: CapsuleConv(F, D, heads=8), "Its name is num_caps here"),
        (lambda: CapsuleConv(in_channels=F, out_channels=D, num_caps=K), "in_channels: .*Its name is in_feats here"),
        (lambda: CapsuleConv(F, out_channels=D, num_caps=K), "Its name is out_feats here"),
        (lambda: CapsuleConv(F, D, K, attn_drop=0.6), "attn_drop: .*Its name is vote_drop here"),
        (lambda: CapsuleConv(F, D, K, dropout=0.6), "dropout: .*Its name is vote_drop here"),
        (lambda: CapsuleConv(F, D, K, negative_slope=0.2), "Leave it out: routing has no LeakyReLU"),
        (lambda: CapsuleConv(F, D, K, concat=True), r"Flatten the result: h.flatten\(-2\)"),
        (lambda: CapsuleConv(F, D, K, add_self_loops=True), r"dgl.add_self_loop\(graph\)"),
        (lambda: CapsuleConv(F, D, K, iteration=3), "Did you mean 'iterations'?"),
        (lambda: CapsuleConv(F, D, K, lr=3), "They are in_feats, out_feats, num_caps, iterations"),
        (lambda: CapsuleReadout(F, D, num_classes=2), "num_classes: .*Its name is num_caps here"),
        (lambda: conv()(graph_of(), torch.ones(N, F), get_attention=True), "Its name is get_coupling here"),
        (lambda: conv()(g=graph_of(), feat=torch.ones(N, F)), "g: .* got g. Its name is graph here"),
    ],
)
def test_words_of_other_layers_are_errors_that_name_ours(wrong, text):
    with pytest.raises(TypeError, match=text) as caught:
        wrong()
    assert isinstance(caught.value, InputError)


def test_a_layer_and_its_features_share_their_precision(draw):
    with pytest.raises(InputError, match="feat: expected torch.float32, as the layer's weights, got torch.float64"):
        CapsuleConv(F, D, K)(graph_of(), draw(N, F))
    with torch.autocast("cpu"):
        out = CapsuleConv(F, D, K)(graph_of(), torch.ones(N, F, dtype=torch.bfloat16))
    assert out.isfinite().all()


def test_one_capsule_has_nothing_to_compete_with(draw):
    one, nine = (conv_of_one(iterations) for iterations in (1, 9))
    torch.testing.assert_close(one(graph_of(), x := draw(N, F)), nine(graph_of(), x))


def conv_of_one(iterations):
    torch.manual_seed(0)
    return CapsuleConv(F, D, 1, iterations=iterations).double()
