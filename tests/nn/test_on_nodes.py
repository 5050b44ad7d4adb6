"""Capsules on nodes: the formulas of a convolution and a readout, DGL's manners, and what must hold on any graph."""

import copy
import importlib
import pickle
import warnings
from unittest.mock import MagicMock

import pytest
import torch
from dgl.nn.pytorch import HeteroGraphConv
from torch.utils._python_dispatch import TorchDispatchMode

import graphcaps
from graphcaps import InputError, dgl, squash
from graphcaps.kernels import dispatch
from graphcaps.nn import CapsuleConv, CapsuleReadout
from graphcaps.routing import Dynamic, Spherical, Uniform

pytestmark = pytest.mark.usefixtures("one_thread")

F, D, K, N, E = 6, 4, 3, 9, 29
# float64: sums of at most 30 terms of size 10, three iterations; see tests/test_facts.py.
EXACT = dict(rtol=1e-10, atol=1e-10)


def graph_of(seed=0, num_nodes=N, num_edges=20, both_ways=False):
    """Random edges and a self-loop for each node; with parallel edges."""
    generator = torch.Generator().manual_seed(seed)
    src, dst = torch.randint(num_nodes, (2, num_edges), generator=generator)
    if both_ways:
        half = num_edges // 2
        src, dst = torch.cat((src[:half], dst[:half])), torch.cat((dst[:half], src[:half]))
    return dgl.add_self_loop(dgl.graph((src, dst), num_nodes=num_nodes))


def conv(in_feats=F, **options):
    torch.manual_seed(0)
    layer = CapsuleConv(in_feats, D, K, **options).double()
    torch.nn.init.normal_(layer.capsules.bias)
    return layer


def backs(src, dst):
    """The reverse of each edge; of parallel edges, the first is paired with the first, and so on."""
    seen, count = [], len(src)
    for e in range(count):
        number = sum((src[k], dst[k]) == (src[e], dst[e]) for k in range(e))
        seen.append([k for k in range(count) if (src[k], dst[k]) == (dst[e], src[e])][number])
    return seen


def by_loops(layer, graph, x, weights, along=None):
    """The docstring's formulas node by node, for one capsule per node: features (N, F) -> h (N, K, D) and c (E, K)."""
    capsules, routing = layer.capsules, layer.capsules.routing
    src, dst = (end.tolist() for end in graph.edges(order="eid"))
    into = [[e for e in range(len(src)) if dst[e] == v] for v in range(graph.num_dst_nodes())]
    features = x[src] if along is None else torch.cat((x[src], along), 1)
    z = torch.einsum("ef,fkd->ekd", x[src], capsules.weight[0])
    if along is not None:
        z = z + torch.einsum("ef,fkd->ekd", along, capsules.weight_edge[0])
    z = z / z.norm(dim=-1, keepdim=True) if capsules.unit_votes else z
    votes = weights[:, None, None] * z  # (E, K, D)
    b = torch.zeros_like(votes[..., 0])
    for _ in range(routing.iterations):
        c = b.softmax(1)
        s = torch.stack([(c[of_v, :, None] * votes[of_v]).sum(0) for of_v in into])  # (N, K, D)
        change = torch.zeros_like(b)
        if isinstance(routing, Dynamic):
            change = (votes * squash(s)[dst]).sum(-1)
        elif isinstance(routing, Spherical):
            rho = torch.stack([votes[of_v].square().sum(-1).mean(0).sqrt() for of_v in into])  # (N, K)
            change = routing.kappa * (votes * s[dst]).sum(-1) / s[dst].norm(dim=-1) / rho[dst]
        change = change + change[backs(src, dst)] if capsules.mutual else change
        b = b + change if isinstance(routing, Dynamic) else change
    rows = []
    for v, of_v in enumerate(into):
        out = s[v] * b.shape[1] / len(of_v)
        if capsules.squash_output and not capsules.unit_votes:
            out = out / features[of_v].square().mean().sqrt()
        if capsules.weight_target is not None:
            own = x[v] / x[v].square().mean().sqrt() if capsules.squash_output else x[v]
            out = out + torch.einsum("f,fkd->kd", own, capsules.weight_target[0])
        rows.append(out + capsules.bias)
    return (squash(torch.stack(rows)) if capsules.squash_output else torch.stack(rows)), c


@pytest.mark.parametrize(
    ("routing", "options"),
    [
        (Spherical(3), {}),
        (Spherical(3, concentration=4.0), {"unit_votes": True}),
        (Dynamic(3), {}),
        (Uniform(), {"squash_output": False}),
        (Spherical(3), {"squash_output": False, "edge_feats": 2, "residual": True}),
        (Spherical(3), {"unit_votes": True, "edge_feats": 2, "residual": True}),
        (Spherical(3, concentration=2.0), {"mutual": True}),
        (Spherical(4, concentration=2.0), {"mutual": True, "unit_votes": True}),
        (Dynamic(3), {"mutual": True}),
        (Uniform(), {"mutual": True}),
    ],
    ids=str,
)
def test_a_convolution_is_the_formula_of_its_docstring(routing, options, draw):
    layer, mutual = conv(routing=routing, **options), "mutual" in options
    graph, x = graph_of(both_ways=mutual), draw(N, F).requires_grad_()
    weights = draw(E).abs().requires_grad_()
    along = draw(E, 2) if "edge_feats" in options else None
    got, coupling = layer(graph, x, weights, get_coupling=True, edge_feat=along)
    wanted, c = by_loops(layer, graph, x, weights, along)
    torch.testing.assert_close(got, wanted, **EXACT)
    torch.testing.assert_close(coupling, c.unsqueeze(1), **EXACT)
    learned, cotangent = [x, weights, *layer.parameters()], draw(N, K, D)
    for ours, theirs in zip(*(torch.autograd.grad(out, learned, cotangent) for out in (got, wanted)), strict=True):
        torch.testing.assert_close(ours, theirs, **EXACT)


def test_a_dim_between_is_a_batch_on_the_same_graph_and_an_activation_comes_last(draw):
    layer, plain = (conv(edge_feats=2, squash_output=False, activation=last) for last in (torch.tanh, None))
    graph, x, along = graph_of(), draw(N, 2, F), draw(E, 2, 2)
    wanted = [plain(graph, x[:, k], edge_feat=along[:, k]).tanh() for k in range(2)]
    torch.testing.assert_close(layer(graph, x, edge_feat=along), torch.stack(wanted, 1), **EXACT)


@pytest.mark.parametrize(("routing", "edge_feats"), [(Spherical(4, 2.0), 2), (Dynamic(4), None)], ids=str)
def test_mutual_kernels_on_three_threads_give_what_torch_gives(routing, edge_feats, draw):
    graph = graph_of(num_nodes=300, num_edges=4000, both_ways=True)
    edges, results, before = graph.num_edges(), [], torch.get_num_threads()
    layer = conv(routing=routing, mutual=True, edge_feats=edge_feats)
    leaves = [draw(300, F), draw(edges).abs(), *([] if edge_feats is None else [draw(edges, edge_feats)])]
    x, weight, *along = (leaf.requires_grad_() for leaf in leaves)
    torch.set_num_threads(3)
    try:
        for name in ("torch", "fused"):
            with graphcaps.engine(name):
                out, c = layer(graph, x, weight, get_coupling=True, edge_feat=along[0] if along else None)
            results.append((out, c, *torch.autograd.grad(out.sin().sum(), [x, weight, *along, *layer.parameters()])))
    finally:
        torch.set_num_threads(before)
    torch.testing.assert_close(*results)


def test_a_hub_gets_from_ten_thousand_of_each_kind_what_it_gets_from_one(draw):
    """Routing must depend on the neighbours' votes and their proportions, not on degree alone."""
    layer, kinds = conv(routing=Spherical(concentration=4.0), allow_zero_in_degree=True), draw(3, F)
    answers = []
    for times in (1, 10_000):
        graph = dgl.graph((torch.arange(1, 3 * times + 1), torch.zeros(3 * times).long()))
        answers.append(layer(graph, torch.cat((kinds[:1], kinds.repeat(times, 1))), get_coupling=True))
    (wanted, c), (out, couplings) = answers
    torch.testing.assert_close(out[0], wanted[0], rtol=1e-9, atol=1e-9)  # means of 30,000 votes
    torch.testing.assert_close(couplings, c.repeat(10_000, 1, 1), rtol=1e-9, atol=1e-9)
    assert c.std() > 0.03  # couplings are not uniform


def test_a_block_gives_what_the_whole_graph_gives(draw):
    graph, x, along, seeds = graph_of(), draw(N, F), draw(E, 2), torch.tensor([4, 0, 7])
    nodes, _, (block,) = dgl.dataloading.MultiLayerFullNeighborSampler(1).sample(graph, seeds)
    layer = conv(residual=True, edge_feats=2)
    whole, of_block = layer(graph, x, edge_feat=along)[seeds], along[block.edata[dgl.EID]]
    for feat in (x[nodes], [x[nodes], x[seeds]]):
        torch.testing.assert_close(layer(block, feat, edge_feat=of_block), whole, **EXACT)


WORDS = dgl.heterograph({("word", "in", "text"): ([0, 0, 1, 2], [0, 1, 1, 0])})


def test_a_bipartite_graph_is_routed_from_its_sources(draw):
    x, own = draw(3, F), draw(2, 7)
    layer, added = conv(in_feats=(F, None)), conv(in_feats=[F, 7], residual=True)
    plain = layer(WORDS, (x, own))
    assert plain.shape == (2, K, D)
    torch.testing.assert_close(layer(WORDS, x), plain, **EXACT)
    torch.nn.init.zeros_(added.capsules.weight_target)
    added.load_state_dict(layer.state_dict(), strict=False)
    torch.testing.assert_close(added(WORDS, (x, own)), plain, **EXACT)
    added.reset_parameters()
    assert (added(WORDS, (x, own)) - added(WORDS, (x, own.flip(1)))).abs().max() > 1e-3
    relation = dgl.to_block(WORDS, {"text": [0, 1]})["word", "in", "text"]  # has nodes of two kinds, like the graph
    with pytest.raises(InputError, match=r"feat: expected a pair, with the destination's features"):
        added(relation, x)
    relations = HeteroGraphConv({"in": added}, aggregate="sum")
    torch.testing.assert_close(relations(WORDS, {"word": x, "text": own})["text"], added(WORDS, (x, own)), **EXACT)


def test_a_destinations_features_are_used_or_a_warning_says_that_they_are_not(draw):
    pair, layer = (draw(3, F), draw(2, F)), conv()
    with pytest.warns(UserWarning, match=r"feat: .* are not used.*residual=True.*in_feats=\(F, None\)") as seen:
        layer(WORDS, pair)
    assert seen[0].filename == __file__, "a warning points at the line that called graphcaps"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        layer(WORDS, pair)  # the warning comes once
        conv(in_feats=(F, None))(WORDS, pair)
        conv(in_feats=(F, F), residual=True)(WORDS, pair)


def test_a_node_without_in_edges_is_an_error_or_the_bias(draw):
    graph, x, layer = dgl.graph(([0], [1]), num_nodes=3), draw(3, F), conv()
    with pytest.raises(dgl.DGLError, match="expected an in-edge for every node.*dgl.add_self_loop"):
        layer(graph, x)
    layer.set_allow_zero_in_degree(True)
    out = layer(graph, x)
    torch.testing.assert_close(out[[0, 2]], squash(layer.capsules.bias).expand(2, K, D))
    assert (out[1] - out[0]).abs().max() > 1e-3
    torch.testing.assert_close(layer(dgl.graph(([0], [1])), x[:2]), out[:2], **EXACT)
    out, c = layer(dgl.graph(([], []), num_nodes=3), x, get_coupling=True)
    torch.testing.assert_close(out, squash(layer.capsules.bias).expand(3, K, D))
    assert c.shape == (0, 1, K)


def test_votes_are_dropped_in_training_alone(draw):
    layer = conv(routing=Uniform(), vote_drop=0.5, squash_output=False)
    graph, x = dgl.add_self_loop(dgl.graph(([0] * 4000, [1] * 4000))), draw(2, F)
    mean = layer.eval()(graph, x)[1]
    first, second = layer.train()(graph, x)[1], layer(graph, x)[1]
    torch.testing.assert_close(first, mean, rtol=0.1, atol=0.1)
    assert not torch.equal(first, second)


@pytest.mark.parametrize(
    "kind, rel, scale", [(torch.float16, 2e-3, 1e-4), (torch.float16, 2e-3, 1e3), (torch.bfloat16, 2e-2, 1)]
)
def test_half_precision_holds_features_of_any_scale(kind, rel, scale, draw):
    """Squares of features of 1000 are more than float16 holds, and those of 1e-4 less. Rounding is 5e-4, 4e-3."""
    layer, x = CapsuleConv(F, D, K), draw(N, F).float()
    wanted = layer(graph_of(), x)
    for got in (
        copy.deepcopy(layer).to(kind)(graph_of(), (scale * x).to(kind)),
        torch.autocast("cpu", dtype=kind)(layer)(graph_of(), scale * x),
    ):
        torch.testing.assert_close(got.float(), wanted, rtol=0, atol=rel)


class Operations(TorchDispatchMode):
    """Counts operations that compute: on a GPU, each is a launch."""

    count = 0

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        result = operation(*args, **(kwargs or {}))
        if torch.is_tensor(result) and result.numel() and not operation.is_view:
            free = "aten.detach", "aten.scalar_tensor", "aten.new_empty", "aten.empty"
            self.count += not str(operation).startswith(free)
        return result


@pytest.mark.parametrize(
    ("device", "options", "most"),
    [("cpu", {"routing": "dynamic"}, 60), ("gpu", {}, 18), ("gpu", {"residual": True}, 27)],
)
def test_a_training_step_is_few_operations_around_the_kernels(draw, monkeypatch, device, options, most):
    layer, x, launch = CapsuleConv(F, D, K, **options), draw(N, F, dtype=torch.float32).requires_grad_(), MagicMock()
    if device == "gpu":
        if not dispatch.has_triton():
            pytest.skip("no Triton that compiles the kernels")
        nodes = importlib.import_module("graphcaps.kernels.gpu.nodes")
        monkeypatch.setattr("graphcaps.kernels.dispatch.on_gpu", lambda votes: True)
        monkeypatch.setattr("graphcaps.nn.node_caps.warn_of_nan", lambda *x, **named: None)  # as on a GPU
        for kernel in ("route_node", "route_segment", "finish_hub", "finish_node"):
            monkeypatch.setattr(nodes.kernels, kernel, launch)
    learned, graph = [x, *layer.parameters()], graph_of()
    for _ in range(2):  # the first call sorts the edges
        launch.reset_mock()
        with Operations() as operations:
            h = layer(graph, x)
            torch.autograd.grad(h, learned, h)
    assert operations.count + launch.__getitem__.return_value.call_count <= most


@pytest.mark.parametrize(("name", "squash_output"), [("fused", True), ("fused", False), ("torch", True)])
def test_float32_holds_features_up_to_1e17_and_gradients_up_to_1e11(name, squash_output, draw):
    layer, x = conv(squash_output=squash_output), draw(N, F)
    for scale, trains in ((1e-11, True), (1e11, True), (1e17, False)):
        found = []
        for kind in (torch.float32, torch.float64):
            twin, given = copy.deepcopy(layer).to(kind), (scale * x).to(kind).requires_grad_()
            with graphcaps.engine(name):
                out = twin(graph_of(), given)
            learned = torch.autograd.grad(out.sum(), [given, *twin.parameters()]) if trains else []
            found.append([each.double() / each.abs().max().double() for each in (out, *learned)])
        torch.testing.assert_close(*found, rtol=0, atol=1e-3)


@pytest.mark.parametrize("kind", [CapsuleConv, CapsuleReadout])
def test_unit_votes_forget_how_long_features_are(kind, draw):
    """A node whose features are zero has nothing to say, and its gradient is finite."""
    torch.manual_seed(0)
    layer, x = kind(F, D, K, unit_votes=True).double(), draw(N, F)
    longer = x * torch.logspace(-4, 4, N).double()[:, None]
    torch.testing.assert_close(layer(graph_of(), longer), layer(graph_of(), x), **EXACT)
    silent = torch.zeros(N, F, dtype=torch.float64, requires_grad=True)
    out = layer(graph_of(), silent)
    slopes = torch.autograd.grad(out.sum(), (silent, *layer.parameters()))
    assert not out.any() and all(slope.isfinite().all() and slope.abs().max() < 1e3 for slope in slopes)


def test_layers_can_be_copied_pickled_printed_and_reset(draw):
    layer, x = conv(unit_votes=True), draw(N, F)
    for twin in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        torch.testing.assert_close(twin(graph_of(), x), layer(graph_of(), x))
    assert "6 -> 3 x 4, unit_votes=True, squash_output=True, normalise=False" in repr(layer)
    assert "(routing): Spherical(iterations=3, concentration=0.1" in repr(layer)
    before = layer.capsules.weight.clone()
    torch.nn.init.constant_(layer.capsules.routing.exponent, 3)
    assert conv(routing=layer.capsules.routing).capsules.routing.exponent.item() == 3  # a copy of what was learned
    layer.reset_parameters()
    assert layer.capsules.routing.kappa.item() == pytest.approx(0.1)
    assert not torch.equal(before, layer.capsules.weight) and not layer.capsules.bias.any()
    assert layer.capsules.weight.std().item() == pytest.approx((2 * 2 / (F + K * D)) ** 0.5, rel=0.25)


@pytest.mark.parametrize("routing", [Dynamic(5), Spherical(5)])
def test_one_capsule_has_nothing_to_compete_with_and_learns_no_concentration(routing, draw):
    layer = CapsuleConv(F, D, 1, routing).double()
    plain, x = copy.deepcopy(layer), draw(N, F)
    plain.capsules.routing = Uniform()
    torch.testing.assert_close(layer(graph_of(), x), plain(graph_of(), x), **EXACT)
    assert {name for name, _ in layer.named_parameters()} == {"capsules.weight", "capsules.bias"}


def test_sparse_features_are_routed_as_dense_ones(draw):
    layer, x = conv(in_feats=-1, residual=True, feat_drop=0.5), draw(N, F) * (draw(N, F) > 0)
    with pytest.raises(InputError, match=r"feat: expected \(N=9, \*, features\), got \(4,\)"):
        layer(graph_of(), draw(4))  # a call that is refused doesn't fix the number of features
    layer(graph_of(), x)
    wanted = torch.autograd.grad(layer.eval()(graph_of(), x).square().sum(), list(layer.parameters()))
    got = torch.autograd.grad(layer(graph_of(), x.to_sparse_csr()).square().sum(), list(layer.parameters()))
    torch.testing.assert_close(got, wanted, **EXACT)
    graph, layer.feat_drop.p = dgl.in_subgraph(graph_of(), [0, 1]), 0.0
    block = dgl.to_block(graph, [0, 1])
    of_block = x[block.srcdata[dgl.NID]]
    for sparse in (of_block.to_sparse_csr(), of_block.to_sparse_coo()):
        torch.testing.assert_close(layer(block, sparse), layer(block, of_block), **EXACT)
    layer.train().feat_drop.p = 1.0  # all features are dropped
    torch.testing.assert_close(layer(graph_of(), x.to_sparse_csr()), layer(graph_of(), 0 * x), **EXACT)


# CapsuleReadout


def test_graphs_without_nodes_and_of_one_node_are_read_out(draw):
    readout = CapsuleReadout(F, D, 2).double()
    torch.nn.init.normal_(readout.capsules.bias)
    empty, one = dgl.graph(([], []), num_nodes=0), dgl.graph(([], []), num_nodes=1)
    out, c = readout(dgl.batch([empty, one, empty]), draw(1, F), get_coupling=True)
    assert out.shape == (3, 2, D) and c.shape == (1, 1, 2)
    torch.testing.assert_close(out[0], squash(readout.capsules.bias))
    assert (out[1] - out[0]).abs().max() > 1e-3


@pytest.mark.parametrize(
    ("engine", "routing"),
    [("auto", Dynamic(2)), ("auto", Uniform()), *((name, Spherical(3, 4.0)) for name in ("auto", "torch", "dgl"))],
    ids=str,
)
def test_a_readout_with_one_matrix_and_a_prior_is_route_divided_by_the_number_of_nodes(routing, engine, draw):
    sizes = torch.tensor([5, 1, 7])
    batch = dgl.batch([dgl.graph(([], []), num_nodes=size) for size in sizes.tolist()])
    readout = CapsuleReadout(F, D, K, routing, normalise=False, bias=False, shared=True).double()
    x, prior, cotangent = draw(13, F).requires_grad_(), draw(13, K).requires_grad_(), draw(3, K, D)
    with graphcaps.engine(engine):
        got, c = readout(batch, x, get_coupling=True, prior=prior)
    parents = K * torch.arange(3).repeat_interleave(sizes)[:, None] + torch.arange(K)
    graph = graphcaps.bipartite_graph(torch.arange(13).repeat_interleave(K), parents.flatten(), 13, 3 * K)
    votes = (x @ readout.capsules.weight[0, :, 0]).repeat_interleave(K, 0)
    routed = graphcaps.route(graph, votes, readout.capsules.routing, prior=prior.flatten())
    wanted = squash(routed.pose.view(3, K, D) * K / sizes[:, None, None])
    torch.testing.assert_close((got, c), (wanted, routed.coupling.view(13, 1, K)), **EXACT)
    learned = [x, prior, *readout.parameters()]
    torch.testing.assert_close(*(torch.autograd.grad(out, learned, cotangent) for out in (got, wanted)), **EXACT)
