"""graphcaps.pyg: the numbers of the DGL layers, PyG's manners, and its tools."""

import copy
import importlib
import sys

import pytest
import torch

torch_geometric = pytest.importorskip("torch_geometric", reason='needs pip install -e ".[pyg]"')

from torch_geometric.edge_index import EdgeIndex  # noqa: E402
from torch_geometric.explain import AttentionExplainer, Explainer, GNNExplainer  # noqa: E402
from torch_geometric.explain.algorithm.utils import set_masks  # noqa: E402
from torch_geometric.nn import HeteroConv, MeanAggregation  # noqa: E402
from torch_geometric.utils import to_edge_index, to_torch_sparse_tensor  # noqa: E402

from graphcaps import GraphcapsError, InputError, bipartite_graph, dgl, nn, pyg  # noqa: E402
from graphcaps.routing import Spherical, Uniform  # noqa: E402

pytestmark = pytest.mark.usefixtures("one_thread")

F, D, K, N, E = 6, 4, 3, 9, 24
# float64: sums of at most 30 terms of size 10, three iterations; see tests/test_facts.py.
EXACT = dict(rtol=1e-10, atol=1e-10)


def edges_of(sources=N, targets=N, both_ways=False):
    """Random edges, with parallel ones and some self-loops; the last target has none."""
    generator = torch.Generator().manual_seed(0)
    ends = [torch.randint(count, (E,), generator=generator) for count in (sources, targets - 1)]
    ends[0][:2] = ends[1][:2]
    edges = torch.stack(ends)
    return torch.cat((edges[:, : E // 2], edges[:, : E // 2].flip(0)), 1) if both_ways else edges


def made(kind, *sizes, **options):
    torch.manual_seed(0)
    layer = kind(*sizes, **options).double()
    torch.nn.init.normal_(layer.capsules.bias)
    return layer


def conv(**options):
    return made(pyg.CapsuleConv, F, D, K, **options)


@pytest.mark.parametrize(
    ("loops", "options"),
    [
        (False, {}),
        (True, {}),
        (False, {"routing": Spherical(2, concentration=4.0), "unit_votes": True}),
        (True, {"edge_dim": 2, "residual": True}),
        (True, {"mutual": True}),
    ],
    ids=str,
)
def test_a_convolution_gives_what_dgls_gives_in_value_coupling_and_gradient(loops, options, draw):
    """A batch of two on one graph; self-loops come last."""
    layer, options = conv(add_self_loops=loops, **options), dict(options)
    edge_dim = options.pop("edge_dim", None)
    twin = nn.CapsuleConv(F, D, K, allow_zero_in_degree=True, edge_feats=edge_dim, **options).double()
    twin.load_state_dict(layer.state_dict())
    edges, x = edges_of(both_ways="mutual" in options), draw(N, 2, F).requires_grad_()
    weight, attr = draw(E).abs().requires_grad_(), None if edge_dim is None else draw(E, edge_dim)
    graph, weights, attrs = dgl.graph(tuple(edges), num_nodes=N), weight, attr
    if loops:  # a loop has weight 1 and the mean features of the node's other in-edges
        stays = edges[0] != edges[1]
        graph, weights = dgl.add_self_loop(dgl.remove_self_loop(graph)), torch.cat((weight[stays], torch.ones(N)))
        if attr is not None:
            into = [attr[stays & (edges[1] == v)] for v in range(N)]
            means = torch.stack([each.mean(0) if len(each) else each.sum(0) for each in into])
            attrs = torch.cat((attr[stays], means))
    out, (routed, c) = layer(x.movedim(0, -2), edges, weight, return_coupling=True, edge_attr=attr)
    out = out.movedim(-3, 0)
    wanted = twin(graph, x, weights, get_coupling=True, edge_feat=attrs)
    torch.testing.assert_close((out, c), wanted, **EXACT)
    assert torch.equal(routed, torch.stack(graph.edges(order="eid")))
    cotangent = draw(N, 2, K, D)
    torch.testing.assert_close(
        torch.autograd.grad(out, (x, weight, *layer.parameters()), cotangent),
        torch.autograd.grad(wanted[0], (x, weight, *twin.parameters()), cotangent),
        **EXACT,
    )


def test_a_readout_gives_what_dgls_gives_in_value_coupling_and_gradient(draw):
    readout = made(pyg.CapsuleReadout, F, D, 2, shared=True)
    twin = nn.CapsuleReadout(F, D, 2, shared=True).double()
    twin.load_state_dict(readout.state_dict())
    sizes = torch.tensor([5, 0, 1, 7, 0])
    batch = dgl.batch([dgl.graph(([], []), num_nodes=size) for size in sizes.tolist()])
    x, prior, cotangent = draw(13, F).requires_grad_(), draw(13, 2), draw(5, 2, D)
    wanted = twin(batch, x, get_coupling=True, prior=prior)
    gradient = torch.autograd.grad(wanted[0], (x, *twin.parameters()), cotangent)
    index = torch.arange(5).repeat_interleave(sizes)
    order = torch.randperm(13, generator=torch.Generator().manual_seed(1))
    ptr = torch.cat((torch.zeros(1, dtype=torch.int64), sizes.cumsum(0)))
    by_ptr = readout(x, ptr=ptr, return_coupling=True, prior=prior)
    shuffled = readout(x[order], index[order], dim_size=5, return_coupling=True, prior=prior[order])
    for got in (readout(x, index, dim_size=5, return_coupling=True, prior=prior), by_ptr, shuffled):
        torch.testing.assert_close(got, (wanted[0], wanted[1][order] if got is shuffled else wanted[1]), **EXACT)
        torch.testing.assert_close(
            torch.autograd.grad(got[0], (x, *readout.parameters()), cotangent), gradient, **EXACT
        )


@pytest.mark.parametrize("loops", [False, True])
def test_every_form_of_the_edges_gives_the_same_and_comes_back_with_the_couplings(loops, draw):
    edges = torch.unique(edges_of(), dim=1).contiguous()  # a matrix has no parallel edges
    layer, x, weights = conv(add_self_loops=loops), draw(N, F), draw(edges.size(1)).abs()
    out, (routed, c) = layer(x, edges, weights, return_coupling=True)
    for form in (EdgeIndex(edges, sparse_size=(N, N)), edges.int(), edges.t().contiguous().t()):
        got, (same, of_same) = layer(x, form, weights, return_coupling=True)
        torch.testing.assert_close(got, out, **EXACT)
        assert isinstance(same, type(form)) and torch.equal(torch.as_tensor(same), routed.to(same.dtype))
        assert torch.equal(of_same, c)
    dense = torch.zeros(N, N, 1, K).double().index_put((routed[1].long(), routed[0].long()), c)
    for layout in (torch.sparse_coo, torch.sparse_csr, torch.sparse_csc):
        adj_t = to_torch_sparse_tensor(edges.flip(0), weights, size=(N, N), layout=layout)
        got, (matrix, _) = layer(x, adj_t, return_coupling=True)
        torch.testing.assert_close(got, out, **EXACT)
        assert matrix.layout == layout and matrix.shape == dense.shape
        ends, values = to_edge_index(matrix)
        torch.testing.assert_close(torch.zeros_like(dense).index_put(tuple(ends), values), dense)


def test_a_sparse_tensor_that_is_not_coalesced_is_read_right_and_left_as_it_was(draw):
    layer, x, weights, edges = conv(), draw(N, F), draw(E).abs(), edges_of()  # parallel edges, in no order
    adj_t = torch.sparse_coo_tensor(edges.flip(0), weights, (N, N))
    once = adj_t.coalesce()
    wanted = layer(x, once.indices().flip(0), once.values())
    for _ in range(2):
        torch.testing.assert_close(layer(x, adj_t), wanted, **EXACT)
        assert not adj_t.is_coalesced() and torch.equal(adj_t._values(), weights)


def test_a_bipartite_graph_is_routed_from_its_sources_without_self_loops(draw):
    layer, x, edge_index = conv(), draw(5, F), edges_of(sources=5, targets=3)
    twin = nn.CapsuleConv(F, D, K, allow_zero_in_degree=True).double()
    twin.load_state_dict(layer.state_dict())
    wanted = twin(bipartite_graph(*edge_index, 5, 3), x)
    with pytest.warns(UserWarning, match=r"x: target .*residual=True adds them; in_channels=\(F, None\)"):
        paired = layer((x, draw(3, 99)), edge_index)
    for got in (paired, layer([x, None], edge_index, size=[5, 3])):
        torch.testing.assert_close(got, wanted, **EXACT)
    assert layer((x, None), edge_index).shape == (5, K, D)  # by default there are as many targets as sources


def test_features_are_counted_at_the_first_input(draw):
    x, own, attr, edges = draw(5, F), draw(3, 7), draw(E, 2), edges_of(sources=5, targets=3)
    lazy = pyg.CapsuleConv([-1, -1], D, K, residual=True, edge_dim=-1).double()
    lazy.reset_parameters()
    twin, known = copy.deepcopy(lazy), pyg.CapsuleConv((F, 7), D, K, residual=True, edge_dim=2).double()
    out = lazy((x, own), edges, attr)
    for layer in (known, twin):  # lazy weights take the shape of those that are loaded
        layer.load_state_dict(lazy.state_dict())
        torch.testing.assert_close(layer((x, own), edges, attr), out, **EXACT)
    assert lazy.capsules.weight.std() > 0.1


def test_a_cached_layer_equals_one_that_is_not_and_keeps_the_edges_of_its_first_call(draw):
    x, edges, weight = draw(N, F), edges_of(), draw(E).abs()
    for loops in (False, True):
        cached, plain = conv(add_self_loops=loops, cached=True), conv(add_self_loops=loops)
        wanted = plain(x, edges, weight)
        for given in (edges, edges.flip(1)):  # the second call's edges aren't read
            torch.testing.assert_close(cached(x, given, weight), wanted, **EXACT)
        state = plain.state_dict()
        cached.reset_parameters()
        cached.load_state_dict(state)
        torch.testing.assert_close(cached(x, edges.flip(1), weight), plain(x, edges.flip(1), weight), **EXACT)


def test_a_hetero_conv_gives_what_dgls_gives_and_sparse_gradients_equal_dense_ones(draw):
    """Users have an embedding instead of features."""
    nodes, sizes, convs, twins, edges = {"user": N, "item": 5}, {"user": F, "item": 7}, {}, {}, {}
    for src, name, dst in ("user", "buys", "item"), ("item", "bought by", "user"), ("user", "follows", "user"):
        edges[src, name, dst] = edges_of(nodes[src], nodes[dst])
        pair = sizes[src], sizes[dst]
        layer = convs[src, name, dst] = pyg.CapsuleConv(pair, D, K, residual=True, add_self_loops=False)
        twins[name] = nn.CapsuleConv(pair, D, K, residual=True)
        twins[name].load_state_dict(layer.state_dict())
    ours, theirs = HeteroConv(convs).double(), dgl.nn.pytorch.HeteroGraphConv(twins).double()
    graph, x = dgl.heterograph({each: tuple(ends) for each, ends in edges.items()}, nodes), draw(5, 7)
    table, users, wanted = torch.nn.Embedding(20, F, sparse=True).double(), torch.randperm(20)[:N], None
    for table.sparse in (True, False):
        for call in (lambda h: ours(h, edges), lambda h: theirs(graph, h)):
            out = call({"user": table(users), "item": x})
            (gradient,) = torch.autograd.grad(out["user"].sin().sum() + out["item"].sin().sum(), table.weight)
            assert gradient.is_sparse == table.sparse
            wanted = wanted or (out, gradient.to_dense())
            torch.testing.assert_close((out, gradient.to_dense()), wanted, **EXACT)


# PyG's tools


def explained(net, algorithm, x, edges):
    config = dict(mode="multiclass_classification", task_level="node", return_type="raw")
    explainer = Explainer(net, algorithm, explanation_type="model", edge_mask_type="object", model_config=config)
    return explainer(x, edges).edge_mask


@pytest.mark.parametrize("loops", [False, True])
def test_an_explainers_edge_mask_multiplies_the_votes(loops, draw):
    layer, x, edges, weights = conv(add_self_loops=loops, concat=True), draw(N, F), edges_of(), draw(E).abs()
    mask = torch.rand(E, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    wanted = layer(x, edges, weights * mask)
    assert explained(layer, GNNExplainer(epochs=2), x, edges).shape == (E,)
    set_masks(layer, mask, edges, apply_sigmoid=False)
    torch.testing.assert_close(layer(x, edges, weights), wanted, **EXACT)


def test_an_explainer_of_attention_reads_the_couplings(draw):
    layer = conv(add_self_loops=False, squash_output=False, concat=True)
    x, edges = draw(N, F), edges_of()
    mask = explained(
        torch_geometric.nn.Sequential("x, edge_index", [(layer, "x, edge_index -> x")]), AttentionExplainer(), x, edges
    )
    c = layer(x, edges, return_coupling=True)[1][1]
    torch.testing.assert_close(mask, c.flatten(1).max(1).values)
    assert not layer._message_forward_hooks


def test_a_weight_that_is_negative_or_nan_is_refused_with_the_number_that_the_edge_was_given(draw):
    for wrong, named in ((-1.0, "-1"), (float("nan"), "nan")):
        weights = torch.ones(E).double().index_fill(0, torch.tensor([3]), wrong)
        with pytest.raises(InputError, match=f"edge_weight: expected numbers from 0, got {named} at edge 3"):
            conv(add_self_loops=True)(draw(N, F), edges_of(), weights)


def test_a_message_hooks_result_scales_the_votes(draw):
    layer, x, edges, scale = conv(add_self_loops=False), draw(N, F), edges_of(), draw(E).abs()
    wanted = layer(x, edges, scale)
    layer.register_message_forward_hook(lambda module, inputs, messages: messages * scale[:, None])
    torch.testing.assert_close(layer(x, edges), wanted, **EXACT)


def test_a_readout_keeps_the_contract_of_aggregations(draw):
    """One iteration with an identity and no squash equals PyG's mean, however it is called."""
    readout = pyg.CapsuleReadout(4, 4, 1, routing=Uniform(), squash_output=False, concat=True).double()
    readout.capsules.weight.data.copy_(torch.eye(4)[None, :, None])
    mean, x = MeanAggregation(), draw(3, N, 4)
    index, ptr = torch.tensor([2, 0, 0, 5, 2, 2, 0, 5, 2]), torch.tensor([0, 0, 3, 3, 9])
    for given in (dict(index=index), dict(index=index, dim_size=8), dict(ptr=ptr), dict(ptr=ptr, dim_size=4), {}):
        by_index = {"index": torch.tensor([1, 1, 1, 3, 3, 3, 3, 3, 3]), "dim_size": 4} if "ptr" in given else given
        for dim, values in ((-2, x), (1, x), (0, x[0]), (-2, x[0]), (0, x.movedim(1, 0)), (-3, x.movedim(1, 0))):
            wanted = mean(values, **by_index, dim=dim)
            torch.testing.assert_close(readout(values, **given, dim=dim), wanted, **EXACT)
        torch.testing.assert_close(readout(x, **given), mean(x, **by_index), **EXACT)
    nothing = torch.empty(0, 4).double()
    assert readout(nothing).shape == mean(nothing).shape == (0, 4)
    of_nobody = dict(index=torch.empty(0).long(), dim_size=2)
    assert torch.equal(readout(nothing, **of_nobody), mean(nothing, **of_nobody))
    for wrong in (dict(ptr=ptr, dim_size=2), dict(index=index, dim_size=3), dict(index=index, dim=2)):
        for aggregation in (readout, mean):
            with pytest.raises(ValueError):
                aggregation(x[0], **wrong)
    for wrong in (torch.tensor([0, 4, 2]), torch.empty(0).long(), ptr.float(), ptr[None]):
        with pytest.raises(InputError, match="ptr: expected"):
            readout(x[0], ptr=wrong)


def test_without_torch_geometric_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch_geometric", None)
    monkeypatch.delitem(sys.modules, "graphcaps.pyg")
    with pytest.raises(GraphcapsError, match=r'got no torch_geometric. Run: pip install -e "\.\[pyg\]"') as caught:
        importlib.import_module("graphcaps.pyg")
    assert isinstance(caught.value, ImportError)


def test_on_a_gpu_the_graph_of_a_tensor_of_edges_is_kept_until_the_edges_change():
    on_gpu = type("OnGPU", (torch.Tensor,), {"is_cuda": True})  # a tensor on the CPU that claims to be on a GPU
    edges, routed = edges_of().as_subclass(on_gpu), pyg.edges.links_of_edges
    for loops in (False, True):
        first = routed(edges, (N, N), loops)
        assert routed(edges, (N, N), loops) is first
        edges[0, 0] = 5
        assert routed(edges, (N, N), loops) is not first
    del edges, first
    assert not pyg.edges._of_tensors
