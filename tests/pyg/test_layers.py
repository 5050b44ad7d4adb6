"""graphcaps.pyg: the numbers of the DGL layers, PyG's manners, and graphs kept no longer than they are true."""

from __future__ import annotations

import copy
import gc
import importlib
import pickle
import subprocess
import sys

import pytest
import torch

torch_geometric = pytest.importorskip("torch_geometric", reason='needs pip install -e ".[pyg]"')

from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402
from torch_geometric.edge_index import EdgeIndex  # noqa: E402
from torch_geometric.explain import AttentionExplainer, Explainer, GNNExplainer  # noqa: E402
from torch_geometric.nn import (  # noqa: E402
    GATConv,
    HeteroConv,
    JumpingKnowledge,
    MeanAggregation,
    MultiAggregation,
    SAGEConv,
    Sequential,
    SimpleConv,
    global_add_pool,
    to_hetero,
)
from torch_geometric.utils import k_hop_subgraph, to_edge_index, to_torch_sparse_tensor  # noqa: E402

from graphcaps import GraphcapsError, InputError, bipartite_graph, dgl, nn, pyg, squash  # noqa: E402
from graphcaps.graph import COMPETITIONS  # noqa: E402
from graphcaps.pyg import kept  # noqa: E402

pytestmark = pytest.mark.usefixtures("one_thread")

F, D, K, N, E = 6, 4, 3, 9, 24
# float64: sums of at most 30 terms of size 10, three iterations; see test_facts.py.
EXACT = dict(rtol=1e-10, atol=1e-10)


@pytest.fixture(params=COMPETITIONS)
def competition(request):
    return request.param


def edges_of(seed=0, sources=N, targets=N, num_edges=E):
    """Random edges, with parallel ones and some self-loops; the last target has none."""
    generator = torch.Generator().manual_seed(seed)
    ends = [torch.randint(count, (num_edges,), generator=generator) for count in (sources, targets - 1)]
    ends[0][:2] = ends[1][:2]
    return torch.stack(ends)


def conv(seed=0, **options):
    """An engine that compiles nothing: what engines give is tested elsewhere."""
    torch.manual_seed(seed)
    layer = pyg.CapsuleConv(F, D, K, engine="dgl", **options).double()
    torch.nn.init.normal_(layer.capsules.bias)
    return layer


def readout_of(**options):
    torch.manual_seed(0)
    readout = pyg.CapsuleReadout(F, D, 2, engine="dgl", **options).double()
    torch.nn.init.normal_(readout.capsules.bias)
    return readout


def dgl_twin(layer, make, *sizes, **options):
    twin = make(*sizes, engine="dgl", **options).double()
    twin.load_state_dict(layer.state_dict())
    return twin


def assert_same(got, wanted):
    for one, other in zip(got, wanted, strict=True):
        torch.testing.assert_close(one, other, **EXACT)


@pytest.mark.parametrize("in_caps", [1, 2])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("loops", [False, True])
def test_a_convolution_gives_what_dgls_gives_in_value_coupling_and_gradient(
    competition, in_caps, weighted, loops, draw
):
    options = dict(competition=competition, in_caps=in_caps, iterations=2)
    layer = conv(add_self_loops=loops, **options)
    twin = dgl_twin(layer, nn.CapsuleConv, F, D, K, allow_zero_in_degree=True, **options)
    edge_index = edges_of()
    graph, is_loop = dgl.graph(tuple(edge_index), num_nodes=N), edge_index[0] == edge_index[1]
    x = draw(N, 2, *[in_caps] * (in_caps > 1), F).requires_grad_()
    leaves, weights = [x], (None, None)
    if weighted:
        leaves.append(draw(E).requires_grad_())
        weights = leaves[1], torch.cat((leaves[1][~is_loop], torch.ones(N))) if loops else leaves[1]
    if loops:
        graph = dgl.add_self_loop(dgl.remove_self_loop(graph))
    out, (routed, c) = layer(x, edge_index, weights[0], return_coupling=True)
    wanted = twin(graph, x, weights[1], get_coupling=True)
    assert_same((out, c), wanted)
    assert torch.equal(routed, torch.stack(graph.edges(order="eid")))
    cotangent = draw(N, 2, K, D)
    gradients = (
        torch.autograd.grad(found, (*leaves, *own.parameters()), cotangent)
        for found, own in ((out, layer), (wanted[0], twin))
    )
    assert_same(*gradients)


@pytest.mark.parametrize("in_caps", [1, 2])
def test_a_readout_gives_what_dgls_gives_in_value_coupling_and_gradient(in_caps, draw):
    readout = readout_of(in_caps=in_caps)
    twin = dgl_twin(readout, nn.CapsuleReadout, F, D, 2, in_caps=in_caps)
    sizes = torch.tensor([5, 0, 1, 7, 0])
    batch = dgl.batch([dgl.graph(([], []), num_nodes=size) for size in sizes.tolist()])
    x, cotangent = draw(13, *[in_caps] * (in_caps > 1), F).requires_grad_(), draw(5, 2, D)
    wanted = twin(batch, x, get_coupling=True)
    gradient = torch.autograd.grad(wanted[0], (x, *twin.parameters()), cotangent)

    index = torch.arange(5).repeat_interleave(sizes)
    order = torch.randperm(13, generator=torch.Generator().manual_seed(1))
    ptr = torch.cat((torch.zeros(1, dtype=torch.int64), sizes.cumsum(0)))
    by_ptr = readout(x, ptr=ptr, return_coupling=True)
    shuffled = readout(x[order], index[order], dim_size=5, return_coupling=True)
    for found in (readout(x, index, dim_size=5, return_coupling=True), by_ptr, shuffled):
        coupling = wanted[1][order] if found is shuffled else wanted[1]
        assert_same(found, (wanted[0], coupling))
        assert_same(torch.autograd.grad(found[0], (x, *readout.parameters()), cotangent), gradient)


def test_nodes_are_read_out_along_any_dim_and_into_one_graph_by_default(draw):
    readout, x = readout_of(), draw(N, 5, F)
    index = torch.tensor([0] * 4 + [1] * 5)
    wanted = readout(x, index)
    assert wanted.shape == (2, 5, 2, D)
    torch.testing.assert_close(readout(x.movedim(0, 1), index, dim=-2), wanted.movedim(0, 1), **EXACT)
    torch.testing.assert_close(readout(x[:4])[0], wanted[0], **EXACT)
    assert readout_of(in_caps=5)(x).shape == (1, 2, D)


def test_a_readout_is_an_aggregation_of_messages(draw):
    readout, x, edge_index = readout_of(), draw(N, F), edges_of()
    wanted = readout(x[edge_index[0]], edge_index[1], dim_size=N)
    torch.testing.assert_close(SimpleConv(aggr=readout)(x, edge_index), wanted, **EXACT)


FORMS = {
    "EdgeIndex": lambda edges: EdgeIndex(edges),
    "EdgeIndex_with_sizes": lambda edges: EdgeIndex(edges, sparse_size=(N, N)),
    "int32": lambda edges: edges.int(),
    "stored_by_edge": lambda edges: edges.t().contiguous().t(),
}


@pytest.mark.parametrize("loops", [False, True])
@pytest.mark.parametrize("form", FORMS)
def test_all_forms_of_an_edge_list_give_the_same(form, loops, draw):
    layer, x, weights, edge_index = conv(add_self_loops=loops), draw(N, F), draw(E), edges_of()
    for weight in (None, weights):
        wanted = layer(x, edge_index, weight)
        torch.testing.assert_close(layer(x, FORMS[form](edge_index), weight), wanted, **EXACT)


@pytest.mark.parametrize("loops", [False, True])
@pytest.mark.parametrize("layout", [torch.sparse_coo, torch.sparse_csr, torch.sparse_csc])
def test_the_transposed_adjacency_gives_what_its_edges_give(layout, loops, draw):
    layer, x, weights = conv(add_self_loops=loops), draw(N, F), draw(E)
    edge_index = torch.unique(edges_of(), dim=1)  # a matrix has no parallel edges
    weights = weights[: edge_index.size(1)]
    adj_t = to_torch_sparse_tensor(edge_index.flip(0), weights, size=(N, N), layout=layout)
    torch.testing.assert_close(layer(x, adj_t), layer(x, edge_index, weights), **EXACT)
    ones = torch.ones_like(weights)
    torch.testing.assert_close(layer(x, adj_t, ones), layer(x, edge_index), **EXACT)


def test_a_sparse_tensor_that_is_not_coalesced_is_read_right_and_left_as_it_was(draw):
    layer, x, weights, edges = conv(), draw(N, F), draw(E), edges_of()  # with parallel edges, in no order
    adj_t = torch.sparse_coo_tensor(edges.flip(0), weights, (N, N))
    once = adj_t.coalesce()
    wanted = layer(x, once.indices().flip(0), once.values())
    for _ in range(2):
        torch.testing.assert_close(layer(x, adj_t), wanted, **EXACT)
        assert not adj_t.is_coalesced() and torch.equal(adj_t._values(), weights)


def test_one_feature_of_an_edge_may_stand_where_gatconv_has_it(draw):
    layer, x, feature = conv(edge_dim=1), draw(N, F), draw(E)
    torch.testing.assert_close(layer(x, edges_of(), feature), layer(x, edges_of(), edge_attr=feature), **EXACT)


def test_capsules_kept_apart_are_named_where_they_were_to_be_joined(draw):
    kept = conv()(draw(N, F), edges_of())
    with pytest.raises(
        InputError, match=rf"x: expected \(N={N}, \*, {K * D}\), got .*in_caps={K} reads each by itself"
    ):
        pyg.CapsuleConv(K * D, 2, 1).double()(kept, edges_of())


def test_a_bipartite_graph_is_routed_from_its_sources_without_self_loops(competition, draw):
    layer, x = conv(competition=competition), draw(5, F)
    edge_index = edges_of(sources=5, targets=3)
    twin = dgl_twin(layer, nn.CapsuleConv, F, D, K, competition=competition, allow_zero_in_degree=True)
    wanted = twin(bipartite_graph(*edge_index, 5, 3), x)
    with pytest.warns(
        UserWarning, match=r"x: the second of the pair.*residual=True adds them; in_channels=\(F, None\)"
    ):
        paired = layer((x, draw(3, 99)), edge_index)
    for found in (paired, layer([x, None], edge_index, size=[5, 3])):
        torch.testing.assert_close(found, wanted, **EXACT)
    assert layer((x, None), edge_index).shape == (5, K, D)  # as many targets as sources where nothing says


def test_a_node_without_in_edges_gives_the_bias(competition, draw):
    layer = conv(competition=competition, add_self_loops=False)
    out = layer(draw(N, F), edges_of())
    torch.testing.assert_close(out[-1], squash(layer.capsules.bias))
    assert (out[0] - out[-1]).abs().max() > 1e-3
    for num_nodes in (0, 1, 3):
        out, (_, c) = layer(draw(num_nodes, F), torch.empty(2, 0, dtype=torch.int64), return_coupling=True)
        torch.testing.assert_close(out, squash(layer.capsules.bias).expand(num_nodes, K, D))
        assert c.shape == (0, 1, K)


def test_a_sampled_neighbourhood_gives_its_seeds_what_the_whole_graph_gives(draw):
    first, second = conv(), pyg.CapsuleConv(D, 2, K, in_caps=K, engine="dgl").double()
    x, edge_index, seeds = draw(N, F), edges_of(), torch.tensor([4, 0])
    whole = second(first(x, edge_index), edge_index)[seeds]
    nodes, within, places, _ = k_hop_subgraph(seeds, 2, edge_index, relabel_nodes=True)
    torch.testing.assert_close(second(first(x[nodes], within), within)[places], whole, **EXACT)


def test_couplings_come_back_in_the_form_of_the_edges(draw):
    edges = torch.unique(edges_of(), dim=1).contiguous()
    x, weights = draw(N, F), draw(edges.size(1))
    for loops in (False, True):
        layer = conv(add_self_loops=loops)
        out, (routed, c) = layer(x, edges, weights, return_coupling=True)
        dense = torch.zeros(N, N, 1, K).double().index_put((routed[1], routed[0]), c)
        for layout in (torch.sparse_coo, torch.sparse_csr, torch.sparse_csc):
            adj_t = to_torch_sparse_tensor(edges.flip(0), weights, size=(N, N), layout=layout)
            got, (matrix, values) = layer(x, adj_t, return_coupling=True)
            torch.testing.assert_close(got, out, **EXACT)
            assert matrix.layout == layout and matrix.shape == dense.shape
            torch.testing.assert_close(matrix.to_dense() if layout == torch.sparse_coo else _dense(matrix), dense)
        held = EdgeIndex(edges, sparse_size=(N, N))
        _, (same, of_same) = layer(x, held, weights, return_coupling=True)
        assert isinstance(same, EdgeIndex) and same.sparse_size() == (N, N)
        assert torch.equal(same.as_tensor(), routed) and torch.equal(of_same, c)


def _dense(matrix):
    edges, values = to_edge_index(matrix)
    return torch.zeros(matrix.shape, dtype=values.dtype).index_put(tuple(edges), values)


def test_couplings_come_under_the_word_for_attention_too(draw):
    x, edges = draw(N, F), edges_of()
    for in_caps in (1, 2):
        layer, x = conv(in_caps=in_caps), draw(N, *[in_caps] * (in_caps > 1), F)
        out, (routed, c) = layer(x, edges, return_coupling=True)
        got, (same, alpha) = layer(x, edges, return_attention_weights=True)
        assert torch.equal(got, out) and torch.equal(same, routed)
        assert torch.equal(alpha, c.squeeze(1) if in_caps == 1 else c)
        assert isinstance(layer(x, edges, return_attention_weights=False), torch.Tensor)


@pytest.mark.parametrize("loops", [False, True])
@pytest.mark.parametrize("in_caps", [1, 2])
def test_edge_features_vote_as_features_of_their_source_along_the_edge(loops, in_caps, draw):
    """The same as a graph in which each edge has a source of its own, with the features of both."""
    layer = conv(edge_dim=2, in_caps=in_caps, add_self_loops=loops)
    x, attr, edges = draw(N, *[in_caps] * (in_caps > 1), F), draw(E, 2), edges_of()
    weight, seen, heard = draw(E), edges, attr
    if loops:
        stays = edges[0] != edges[1]
        seen = torch.cat((edges[:, stays], torch.arange(N).expand(2, -1)), 1)
        told = [attr[stays & (edges[1] == v)] for v in range(N)]
        heard = torch.cat((attr[stays], torch.stack([each.mean(0) if len(each) else each.sum(0) for each in told])))
        weights = torch.cat((weight[stays], torch.ones(N)))
    else:
        weights = weight
    joint = pyg.CapsuleConv(F + 2, D, K, in_caps=in_caps, add_self_loops=False, engine="dgl").double()
    state = layer.state_dict()
    state["capsules.weight"] = torch.cat((state["capsules.weight"], state.pop("capsules.weight_edge")), 1)
    joint.load_state_dict(state)
    spoken = heard[:, None].expand(-1, in_caps, -1) if in_caps > 1 else heard
    of_edges = torch.cat((x[seen[0]], spoken), -1)
    wanted = joint((of_edges, None), torch.stack((torch.arange(len(heard)), seen[1])), weights, size=(len(heard), N))
    torch.testing.assert_close(layer(x, edges, weight, edge_attr=attr), wanted, **EXACT)
    plain = layer(x, edges, edge_attr=attr)
    torch.testing.assert_close(layer(x, edges, attr), plain, **EXACT)  # third, as GATConv has it
    assert (plain - layer(x, edges, torch.zeros_like(attr))).abs().max() > 1e-3
    one = conv(edge_dim=1, in_caps=in_caps, add_self_loops=loops)
    torch.testing.assert_close(one(x, edges, edge_attr=attr[:, 0]), one(x, edges, attr[:, :1]), **EXACT)


def test_a_residual_adds_a_nodes_own_features(draw):
    x, own, edges = draw(5, F), draw(3, 7), edges_of(sources=5, targets=3)
    for squash_output in (False, True):
        layer = pyg.CapsuleConv((F, 7), D, K, residual=True, squash_output=squash_output, engine="dgl").double()
        bare = pyg.CapsuleConv((F, None), D, K, squash_output=False, engine="dgl").double()
        torch.nn.init.normal_(layer.capsules.bias)
        bare.load_state_dict({key: value for key, value in layer.state_dict().items() if "target" not in key})
        scale = own.square().mean(1, keepdim=True).sqrt() if squash_output else 1
        told = bare((x, None), edges, size=(5, 3)) - bare.capsules.bias
        if squash_output:
            heard = torch.stack([x[edges[0, edges[1] == v]].square().mean().sqrt() for v in range(2)])
            told[:2] = told[:2] / heard[:, None, None]
        s = told + bare.capsules.bias + torch.einsum("nf,fkd->nkd", own / scale, layer.capsules.weight_target[0])
        torch.testing.assert_close(layer((x, own), edges), squash(s) if squash_output else s, **EXACT)
    square, x = conv(residual=True, bias=True), draw(N, F)
    torch.testing.assert_close(square(1e3 * x, edges_of()), square(x, edges_of()), **EXACT)


def test_features_are_counted_at_the_first_input(draw):
    x, own, attr, edges = draw(5, F), draw(3, 7), draw(E, 2), edges_of(sources=5, targets=3)
    lazy = pyg.CapsuleConv([-1, -1], D, K, residual=True, edge_dim=-1, engine="dgl").double()
    assert repr(lazy) == "CapsuleConv([-1, -1], 4, num_caps=3, edge_dim=-1, residual=True)" and "-1 -> 3 x 4" in repr(
        lazy.capsules
    )
    lazy.reset_parameters()
    twin, early = copy.deepcopy(lazy), lazy.state_dict()
    optimizer = torch.optim.SGD(lazy.parameters(), 0.1)
    out = lazy((x, own), edges, attr)
    known = pyg.CapsuleConv((F, 7), D, K, residual=True, edge_dim=2, engine="dgl").double()
    assert {key: value.shape for key, value in lazy.state_dict().items()} == {
        key: value.shape for key, value in known.state_dict().items()
    }
    for layer in (known, twin):  # weights that were not there yet take the shape of those they are given
        layer.load_state_dict(lazy.state_dict())
        torch.testing.assert_close(layer((x, own), edges, attr), out, **EXACT)
    assert lazy.capsules.weight.std() > 0.1 and early.keys() == lazy.state_dict().keys()
    before = lazy.capsules.weight.clone()
    out.sum().backward()
    optimizer.step()
    assert not torch.equal(lazy.capsules.weight, before)
    readout = pyg.CapsuleReadout(-1, D, 2, engine="dgl").double()
    assert readout(x).shape == (1, 2, D) and readout.capsules.weight.shape == (1, F, 2, D)
    with pytest.raises(ValueError, match=r"expected \(N=5, \*, 6\), got \(5, 7\)"):
        readout(draw(5, 7))


# What is kept


def kept_graph(layer, edge_index, monkeypatch):
    """The graph that the layer routes on."""
    seen = []
    forward = type(layer.capsules).forward
    with monkeypatch.context() as patch:
        patch.setattr(
            type(layer.capsules),
            "forward",
            lambda self, graph, *rest: seen.append(graph) or forward(self, graph, *rest),
        )
        layer(torch.ones(N, F).double(), edge_index)
    return seen[0]._graph


def test_a_graph_is_made_once_per_edge_index_and_freed_with_it(monkeypatch):
    edge_index, layers = edges_of(), (conv(), conv(), conv(add_self_loops=False))
    gc.collect()
    before = len(kept._kept)
    one, two, bare = (kept_graph(layer, edge_index, monkeypatch) for layer in layers)
    assert one is two and one is not bare
    assert kept_graph(layers[0], edge_index, monkeypatch) is one
    assert kept_graph(layers[2], edge_index, monkeypatch) is bare
    assert kept_graph(layers[0], edge_index.clone(), monkeypatch) is not one
    assert len(kept._kept) == before + 1
    del edge_index
    gc.collect()
    assert len(kept._kept) == before


CHANGES = {
    "in_place": lambda edges: edges.__setitem__((0, 5), (edges[0, 5] + 1) % (N - 1)),
    "by_a_view": lambda edges: edges[1].copy_(edges[1].flip(0)),
    "by_numpy": lambda edges: edges.numpy().__setitem__((1, 7), (int(edges[1, 7]) + 1) % (N - 1)),
    "by_data": lambda edges: edges.data.copy_(edges.flip(0)),
}


@pytest.mark.parametrize("loops", [False, True])
@pytest.mark.parametrize("change", CHANGES)
def test_an_edge_index_that_changed_is_routed_anew(change, loops, draw):
    layer, x, edge_index = conv(add_self_loops=loops), draw(N, F), edges_of()
    before = layer(x, edge_index)
    CHANGES[change](edge_index)
    after = layer(x, edge_index)
    assert (after - before).abs().max() > 1e-3
    torch.testing.assert_close(after, layer(x, edge_index.clone()), **EXACT)


def test_edge_lists_that_take_each_others_place_in_memory_are_routed_each_for_itself(draw):
    layer, x = conv(), draw(N, F)
    wanted = [layer(x, edges_of(seed)) for seed in range(20)]
    for seed in (*range(20), *range(20)):
        torch.testing.assert_close(layer(x, edges_of(seed)), wanted[seed], **EXACT)


def test_inference_mode_gives_the_same(draw):
    layer, x = conv(), draw(N, F)
    wanted = layer(x, edges_of())
    with torch.inference_mode():
        edge_index = edges_of()
        for _ in range(2):
            torch.testing.assert_close(layer(x, edge_index), wanted, **EXACT)
    edge_index = edge_index.clone()
    with torch.inference_mode():
        layer(x, edge_index)
    out = layer(x.requires_grad_(), edge_index)  # what was made meanwhile can be trained with
    assert torch.autograd.grad(out.sum(), x)[0].any()


def test_windows_that_slide_over_one_tensor_do_not_add_up(draw):
    layer, x, stream = conv(), draw(N, F), torch.randint(N - 1, (2, 600))
    for k in range(100):
        layer(x, stream[:, k : k + 500])
    assert 10 < len(kept._kept[stream]) < 30


class Waits(TorchDispatchMode):
    """What the host must wait for on a device that computes by itself: numbers, and sizes that depend on numbers."""

    KINDS = ("_local_scalar_dense", "aten.equal", "nonzero", "unique", "masked_select", "bincount", "is_nonzero")

    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = str(func)
        by_mask = name.startswith("aten.index.") and any(t is not None and t.dtype == torch.bool for t in args[1])
        if by_mask or any(kind in name for kind in self.KINDS):
            self.seen.append(name)
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("loops", [False, True])
def test_the_host_waits_once_per_structure(loops, monkeypatch, draw):
    """As on a device: edges are not compared there, but counted as changed or not. On the CPU comparing is no wait."""
    monkeypatch.setattr(kept, "_changes", lambda held: held._version)
    layer = pyg.CapsuleConv(F, D, K, edge_dim=2, residual=True, add_self_loops=loops, engine="torch")
    readout = pyg.CapsuleReadout(D, D, 2, in_caps=K, engine="torch")
    x, edges, attr, index = draw(N, F).float(), edges_of(), draw(E, 2).float(), torch.tensor([1] * 4 + [0] * 5)
    ptr = torch.tensor([0, 4, 9])

    def step():
        with Waits() as waits:
            h = layer(x, edges, attr)
            (readout(h, index).sum() + readout(h).sum() + readout(h, ptr=ptr).sum()).backward()
        return waits.seen

    monkeypatch.setattr("graphcaps.errors.ends_of", lambda values: None)  # looks at numbers on the CPU alone
    assert step() and not step()
    edges[0, 3] = (edges[0, 3] + 1) % N
    before = layer(x, edges, attr)
    assert torch.equal(before, layer(x, edges.clone(), attr)) and not step()


# PyG's tools


@pytest.mark.parametrize("loops", [False, True])
def test_an_edge_mask_multiplies_the_votes(loops, draw):
    layer, x, edge_index = conv(add_self_loops=loops), draw(N, F), edges_of()
    mask = torch.rand(E, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    weights = draw(E)
    wanted = layer(x, edge_index, weights * mask)
    layer.explain, layer._edge_mask, layer._apply_sigmoid = True, mask, False
    layer._loop_mask = edge_index[0] != edge_index[1]
    torch.testing.assert_close(layer(x, edge_index, weights), wanted, **EXACT)


def test_an_explainer_finds_the_edge_that_matters():
    torch.manual_seed(0)

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = pyg.CapsuleConv(F, D, 2, add_self_loops=False, squash_output=False, engine="dgl")

        def forward(self, x, edge_index):
            return self.conv(x, edge_index).norm(dim=-1)

    x = torch.zeros(N, F)
    x[0] = 3.0  # the only node that says something
    edge_index = torch.tensor([[0, 1, 2, 3], [4, 4, 4, 4]])
    explainer = Explainer(
        Net(),
        GNNExplainer(epochs=30, lr=0.1),
        explanation_type="model",
        edge_mask_type="object",
        model_config=dict(mode="multiclass_classification", task_level="node", return_type="raw"),
    )
    mask = explainer(x, edge_index, index=4).edge_mask
    assert mask.shape == (4,) and mask.argmax() == 0 and mask[0] > 0


def test_layers_stand_among_pygs_own(draw):
    both = HeteroConv({("word", "in", "text"): conv(residual=True), ("text", "cites", "text"): conv()}, aggr="sum")
    nodes = {"word": draw(5, F), "text": draw(N, F)}
    edges = {("word", "in", "text"): edges_of(sources=5), ("text", "cites", "text"): edges_of()}
    wanted = both.convs[("word", "in", "text")]((nodes["word"], nodes["text"]), edges[("word", "in", "text")])
    wanted = wanted + both.convs[("text", "cites", "text")](nodes["text"], edges[("text", "cites", "text")])
    torch.testing.assert_close(both(nodes, edges)["text"], wanted, **EXACT)


def test_to_hetero_takes_a_network_as_it_is(draw):
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.first = pyg.CapsuleConv((-1, -1), D, K, residual=True, concat=True, engine="dgl")
            self.second = pyg.CapsuleConv((-1, -1), 5, 1, residual=True, concat=True, engine="dgl")

        def forward(self, x, edge_index):
            return self.second(self.first(x, edge_index).relu(), edge_index)

    types = [("word", "in", "text"), ("text", "has", "word"), ("text", "cites", "text")]
    net = to_hetero(Net(), (["word", "text"], types)).double()
    x = {"word": draw(5, F), "text": draw(N, 7)}
    edges = dict(zip(types, (edges_of(sources=5), edges_of(targets=5), edges_of()), strict=True))
    out = net(x, edges)
    assert out["word"].shape == (5, 5) and out["text"].shape == (N, 5)
    out["text"].sum().backward()
    assert all(weight.grad is not None for name, weight in net.named_parameters() if "first" in name)


def test_capsules_stand_one_after_another_in_pygs_own_models(draw):
    layer, apart, x, edges = conv(concat=True), conv(), draw(N, F), edges_of()
    torch.testing.assert_close(layer(x, edges), apart(x, edges).flatten(1), **EXACT)
    out, (_, c) = layer(x, edges, return_attention_weights=True)
    assert out.shape == (N, K * D) and c.shape[1:] == (K,)
    net = Sequential(
        "x, edges, batch",
        [
            (pyg.CapsuleConv(F, D, K, concat=True, engine="dgl"), "x, edges -> one"),
            (pyg.CapsuleConv(K * D, D, K, concat=True, engine="dgl"), "one, edges -> two"),
            (lambda one, two: [one, two], "one, two -> both"),
            (JumpingKnowledge("cat"), "both -> both"),
            (pyg.CapsuleReadout(2 * K * D, 5, 2, engine="dgl"), "both, batch -> both"),
        ],
    ).double()
    assert net(x, edges, torch.tensor([0] * 4 + [1] * 5)).shape == (2, 2, 5)


def test_layers_take_the_place_of_gat_conv_and_of_a_pooling_by_one_line_each():
    """The calls of docs/layers.md, the dropout of which is off in ``eval``."""
    torch.manual_seed(0)
    heads, classes, x, edges = 3, 5, torch.randn(N, F), edges_of()
    first = pyg.CapsuleConv(F, 8, heads, dropout=0.6, concat=True)
    second = pyg.CapsuleConv(8 * heads, classes, num_caps=1, concat=True, dropout=0.6, squash_output=False)
    one, two = GATConv(F, 8, heads, dropout=0.6), GATConv(8 * heads, classes, heads=1, concat=False, dropout=0.6)
    h, wanted = first(x, edges), one(x, edges)
    assert h.shape == wanted.shape and second(h, edges).shape == two(wanted, edges).shape == (N, classes)
    y = x[:, :classes].argmax(1)
    optimizer = torch.optim.Adam([*first.parameters(), *second.parameters()], 0.02)
    first.eval(), second.eval()
    for _ in range(60):
        loss = torch.nn.functional.cross_entropy(second(torch.nn.functional.elu(first(x, edges)), edges), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert loss < 0.8 < torch.log(torch.tensor(5.0))  # of chance
    batch = torch.tensor([0] * 4 + [1] * 5)
    pool = pyg.CapsuleReadout(8 * heads, 8 * heads // 4, num_caps=4, concat=True)
    assert pool(h, batch).shape == global_add_pool(h, batch).shape


def test_a_readout_keeps_the_contract_of_aggregations(draw):
    """Beside PyG's mean in all ways of calling it, which one iteration, an identity and no squash are."""
    readout = pyg.CapsuleReadout(4, 4, 1, iterations=1, squash_output=False, concat=True, engine="dgl").double()
    readout.capsules.weight.data.copy_(torch.eye(4)[None, :, None])
    mean, x = MeanAggregation(), draw(3, N, 4)
    index, ptr = torch.tensor([2, 0, 0, 5, 2, 2, 0, 5, 2]), torch.tensor([0, 0, 3, 3, 9])
    for given in (dict(index=index), dict(index=index, dim_size=8), dict(ptr=ptr), dict(ptr=ptr, dim_size=4), {}):
        by_index = {"index": torch.tensor([1, 1, 1, 3, 3, 3, 3, 3, 3]), "dim_size": 4} if "ptr" in given else given
        for dim, values in ((-2, x), (1, x), (0, x[0]), (-2, x[0]), (0, x.movedim(1, 0)), (-3, x.movedim(1, 0))):
            wanted = mean(values, **by_index, dim=dim)
            torch.testing.assert_close(readout(values, **given, dim=dim), wanted, **EXACT)
    nothing = torch.empty(0, 4).double()
    assert readout(nothing).shape == mean(nothing).shape == (0, 4)
    of_nobody = dict(index=torch.empty(0).long(), dim_size=2)
    assert torch.equal(readout(nothing, **of_nobody), mean(nothing, **of_nobody))
    for wrong in (dict(ptr=ptr, dim_size=2), dict(index=index, dim_size=3), dict(index=index, dim=2)):
        for aggregation in (readout, mean):
            with pytest.raises(ValueError):
                aggregation(x[0], **wrong)


def test_a_readout_stands_among_aggregations_and_in_convolutions(draw):
    x, edges = draw(N, 8), edges_of()
    readout = pyg.CapsuleReadout(8, 4, 2, concat=True, engine="dgl").double()
    index = torch.tensor([0] * 4 + [1] * 5)
    both = MultiAggregation(["mean", readout])
    torch.testing.assert_close(both(x, index), torch.cat((MeanAggregation()(x, index), readout(x, index)), 1), **EXACT)
    sage = SAGEConv(8, 5, aggr=readout).double()
    told = readout(x[edges[0]], edges[1], dim_size=N)
    torch.testing.assert_close(sage(x, edges), sage.lin_l(told) + sage.lin_r(x), **EXACT)
    assert SAGEConv(8, 5, aggr=["mean", copy.deepcopy(readout)]).double()(x, edges).shape == (N, 5)


def test_an_explainer_of_attention_finds_the_couplings(draw):
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = conv(add_self_loops=False, squash_output=False, iterations=2, concat=True)

        def forward(self, x, edge_index):
            return self.conv(x, edge_index)

    net, x, edges = Net(), draw(N, F), edges_of()
    explainer = Explainer(
        net,
        AttentionExplainer(),
        explanation_type="model",
        edge_mask_type="object",
        model_config=dict(mode="multiclass_classification", task_level="node", return_type="raw"),
    )
    mask = explainer(x, edges).edge_mask
    _, (_, c) = net.conv(x, edges, return_attention_weights=True)
    torch.testing.assert_close(mask, c.max(1).values)
    assert not net.conv._message_forward_hooks


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16])
def test_autocast_gives_what_single_precision_gives(kind, draw):
    """Rounding is 5e-4 and 4e-3 of each number; capsules are of length < 1."""
    layer = pyg.CapsuleConv(F, D, K, edge_dim=2, residual=True, engine="dgl")
    readout = pyg.CapsuleReadout(D, D, 2, in_caps=K, engine="dgl")
    x, attr, edges = draw(N, F).float(), draw(E, 2).float(), edges_of()
    wanted = readout(layer(x, edges, attr))
    with torch.autocast("cpu", dtype=kind):
        got = readout(layer(x, edges, attr))
    torch.testing.assert_close(got.float(), wanted, rtol=0, atol=2e-3 if kind == torch.float16 else 2e-2)


def test_layers_copy_pickle_and_print(draw):
    layer, readout = conv(), pyg.CapsuleReadout(F, 16, 2)
    assert repr(pyg.CapsuleConv(8, 32, num_caps=2)) == "CapsuleConv(8, 32, num_caps=2)"
    assert repr(pyg.CapsuleConv((8, None), 32, 2)) == "CapsuleConv((8, None), 32, num_caps=2)"
    whole = pyg.CapsuleConv(8, 32, 2, edge_dim=3, residual=True, concat=True)
    assert repr(whole) == "CapsuleConv(8, 32, num_caps=2, edge_dim=3, residual=True, concat=True)"
    with pytest.warns(UserWarning, match="in_channels: the second of the pair.*is not used"):
        pyg.CapsuleConv((8, 5), 32, 2)
    assert repr(readout) == "CapsuleReadout(6, 16, num_caps=2)"
    for twin in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        torch.testing.assert_close(twin(x := draw(N, F), edges_of()), layer(x, edges_of()))
    before = layer.capsules.weight.clone()
    layer.reset_parameters()
    assert not torch.equal(before, layer.capsules.weight)
    assert not layer.capsules.bias.any()


def test_votes_are_dropped_in_training_only_and_as_dgls_layers_drop_them(draw):
    x, edge_index, batch = draw(N, F), edges_of(), torch.tensor([0] * 4 + [1] * 5)
    layer, plain = conv(dropout=0.5, add_self_loops=False), conv(add_self_loops=False)
    twin = dgl_twin(layer, nn.CapsuleConv, F, D, K, vote_drop=0.5, allow_zero_in_degree=True)
    readout, pooled = readout_of(dropout=0.5), readout_of()
    torch.manual_seed(1)
    dropped = layer(x, edge_index), readout(x, batch)
    torch.manual_seed(1)
    torch.testing.assert_close(dropped[0], twin(dgl.graph(tuple(edge_index), num_nodes=N), x), **EXACT)
    wanted = plain(x, edge_index), pooled(x, batch)
    for one, other in zip(dropped, wanted, strict=True):
        assert (one - other).abs().max() > 1e-3
    layer.eval(), readout.eval()
    assert torch.equal(layer(x, edge_index), wanted[0]) and torch.equal(readout(x, batch), wanted[1])


@pytest.mark.parametrize(
    "wrong, text",
    [
        (lambda: pyg.CapsuleConv(0, D, K), "in_channels: expected an integer >= 1, got 0"),
        (lambda: pyg.CapsuleConv(F, -1, K), "out_channels: expected an integer >= 1, got -1"),
        (lambda: pyg.CapsuleConv(F, D, K, edge_dim=0), "edge_dim: expected an integer >= 1, got 0"),
        (lambda: pyg.CapsuleConv((F, 5, 4), D, K), "in_channels: expected a number, or a pair"),
        (lambda: pyg.CapsuleConv((F, None), D, K, residual=True), "in_channels: expected a target's features"),
        (lambda: pyg.CapsuleConv(F, D, K, 0.6), "iterations: .*Arguments after num_caps are given by name"),
        (lambda: conv(residual=True)((torch.ones(N, F), None), edges_of()), "x: expected a pair with the target"),
        (lambda: conv(edge_dim=2)(torch.ones(N, F).double(), edges_of()), r"edge_attr: expected \(E, 2\), .* got none"),
        (lambda: conv()(torch.ones(N, F), edges_of(), edge_attr=torch.ones(E, 2)), "edge_attr: .*Give it edge_dim="),
        (lambda: conv()(torch.ones(N, F), edges_of(), torch.ones(E, 2)), r"edge_weight: expected \(E,\).*edge_dim="),
        (lambda: pyg.CapsuleConv(F, D, K, competition="all"), "competition: expected one of capsules, neighbours"),
        (lambda: conv()(torch.ones(N, 5), edges_of()), r"x: expected \(N=9, \*, 6\), got \(9, 5\)"),
        (lambda: conv()(torch.ones(4, F), edges_of()), r"edge_index: .*indices in \[0, .*=4\), got 0 to 8"),
        (lambda: conv()(torch.ones(N, F), edges_of() - 1), r"edge_index: .*got -1 to"),
        (lambda: conv()(torch.ones(N, F), edges_of().double()), "'edge_index' to be of integer type"),
        (lambda: conv()((torch.ones(N, F), None), edges_of(), size=(8, 8)), "tensor with size 9 .* expected size 8"),
        (lambda: conv()(torch.ones(N, F), edges_of(), torch.ones(3)), r"edge_weight: expected \(E=24, .*got \(3,\)"),
        (
            lambda: pyg.CapsuleReadout(F, 16, 2)(torch.ones(3, F), torch.tensor([0, 1, 2]), dim_size=2),
            r"index: .*indices in \[0, .*=2\), got 0 to 2",
        ),
        (lambda: pyg.CapsuleReadout(F, 16, 2)(torch.ones(3, F), torch.tensor([0, 1])), r"x: expected \(N=2, "),
        (lambda: pyg.CapsuleReadout(F, 16, 2)(torch.ones(3, F), ptr=torch.tensor([0, 2])), r"x: expected \(N=2, "),
    ],
)
def test_wrong_arguments_are_named(wrong, text):
    with pytest.raises(ValueError, match=text):
        wrong()


@pytest.mark.parametrize(
    "wrong, text",
    [
        (lambda: pyg.CapsuleConv(F, D, heads=8), "heads: .* got heads=8. Its name is num_caps here"),
        (lambda: pyg.CapsuleConv(in_feats=F, out_channels=D, num_caps=K), "Its name is in_channels here"),
        (lambda: pyg.CapsuleConv(F, D, K, attn_drop=0.6), "attn_drop: .*Its name is dropout here"),
        (lambda: pyg.CapsuleConv(F, D, K, feat_drop=0.6), r"feat_drop: .*before the layer: dropout\(x\)"),
        (lambda: pyg.CapsuleConv(F, D, K, negative_slope=0.2), "routing has no LeakyReLU"),
        (lambda: pyg.CapsuleConv(F, D, K, fill_value="mean"), "a self-loop has weight 1"),
        (lambda: pyg.CapsuleConv(F, D, K, competitions="capsules"), "Did you mean 'competition'?"),
        (lambda: pyg.CapsuleReadout(F, D, num_classes=2), "num_classes: .*Its name is num_caps here"),
        (lambda: conv()(torch.ones(N, F), edges_of(), get_attention=True), "Its name is return_coupling here"),
        (lambda: readout_of()(torch.ones(N, F), batch=torch.zeros(N).long()), "batch: .*Its name is index here"),
    ],
)
def test_words_of_other_layers_are_errors_that_name_ours(wrong, text):
    with pytest.raises(TypeError, match=text) as caught:
        wrong()
    assert isinstance(caught.value, GraphcapsError)


def test_without_torch_geometric_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch_geometric", None)
    monkeypatch.delitem(sys.modules, "graphcaps.pyg")
    with pytest.raises(GraphcapsError, match=r'got no torch_geometric. Run: pip install -e "\.\[pyg\]"') as caught:
        importlib.import_module("graphcaps.pyg")
    assert isinstance(caught.value, ImportError)


def test_nothing_else_imports_torch_geometric():
    code = "import sys, graphcaps.nn; sys.exit('torch_geometric' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
