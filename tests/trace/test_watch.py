"""``graphcaps.watch`` records a network's own call, changes nothing, and reports omissions."""

import numpy as np
import pytest
import small
import torch
from torch import nn

import graphcaps
from graphcaps import RoutingTrace, complete_graph, dgl, route, watch
from graphcaps.cli import main
from graphcaps.errors import InputError
from graphcaps.nn import CapsuleConv, CapsuleLayer, CapsuleReadout, ConvCaps, SharedCaps
from graphcaps.nn.matrix_caps import MatrixConvCaps, Poses
from graphcaps.routing import Dynamic


def ring(nodes=6):
    around = torch.arange(nodes)
    graph = dgl.graph((torch.cat([around, (around + 1) % nodes]), torch.cat([(around + 1) % nodes, around])))
    return dgl.add_self_loop(graph)


class GraphNet(nn.Module):
    def __init__(self, **options):
        super().__init__()
        self.conv, self.readout = CapsuleConv(5, 4, num_caps=3, **options), CapsuleReadout(12, 6, num_caps=2)

    def forward(self, graph, feat):
        return self.readout(graph, self.conv(graph, feat).flatten(-2)).norm(dim=-1)


NETWORKS = {
    "CapsuleLayer": lambda: (CapsuleLayer(20, 10), (torch.randn(20, 3, 8),)),
    "SharedCaps": lambda: (SharedCaps(4, torch.rand(9, 2), 10), (torch.randn(36, 3, 8),)),
    "ConvCaps": lambda: (ConvCaps(5, 2, 2, kernel=3), (torch.randn(50, 3, 8),)),
    "MatrixConvCaps": lambda: (
        MatrixConvCaps(5, 2, 2, kernel=3, stride=1),
        (Poses(torch.randn(50, 3, 16), torch.rand(50, 3)),),
    ),
    **{
        f"CapsuleConv {options}": lambda options=options: (CapsuleConv(5, 4, 3, **options), (ring(), torch.randn(6, 5)))
        for options in ({}, {"mutual": True})
    },
    "CapsuleReadout": lambda: (CapsuleReadout(5, 4, 2), (dgl.batch([ring(), ring(4)]), torch.randn(10, 5))),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_every_layer_is_recorded_and_its_values_and_gradients_are_unchanged(name):
    torch.manual_seed(0)
    layer, inputs = NETWORKS[name]()

    def called():
        layer.zero_grad()
        out = layer(*inputs)
        out = out if isinstance(out, torch.Tensor) else torch.cat([part.flatten() for part in out])
        out.square().sum().backward()
        return out.detach(), [weight.grad.clone() for weight in layer.parameters() if weight.grad is not None]

    (plain, slopes) = called()
    with watch(nn.ModuleDict({"layer": layer})) as seen:
        out, own = called()
    torch.testing.assert_close(out, plain, rtol=1e-5, atol=1e-6)  # float32, summed in another order
    for got, wanted in zip(own, slopes, strict=True):
        torch.testing.assert_close(got, wanted, rtol=1e-4, atol=1e-5)
    trace = seen["layer"]
    trace.check()
    assert seen.names == ("layer",) and trace.about["layer"] == "layer"
    total = np.zeros((*trace.c.shape[:3], trace.num_children))
    np.add.at(total, (..., trace.src), trace.c.astype(float))
    assert np.allclose(total[..., np.unique(trace.src)], 1, atol=2e-3)  # couplings in float16
    assert not layer._forward_hooks and not layer._forward_pre_hooks


def test_a_bare_call_is_called_route_and_recorded_as_an_observer_sees_it(draw):
    graph, votes, states = complete_graph(4, 3), draw(12, 2, 5), []
    with watch() as seen:
        v = route(graph, votes, Dynamic(4), on_iteration=lambda r, *state: states.append(state)).v
    trace = seen["route"]
    assert (trace.num_children, trace.num_parents, trace.trained_iterations) == (4, 3, 4) and trace.about == {}
    assert trace.src.tolist() == [i for i in range(4) for _ in range(3)] and trace.dst.tolist() == [0, 1, 2] * 4
    for r, (b, c, _, agreement) in enumerate(states):
        for got, wanted in ((trace.b, b), (trace.c, c), (trace.agreement, agreement)):
            np.testing.assert_array_equal(got[0, r], wanted.T.numpy().astype(np.float16))
    np.testing.assert_array_equal(trace.v[0, -1], v.transpose(0, 1).numpy().astype(np.float16))
    np.testing.assert_array_equal(trace.lengths[0, -1], v.norm(dim=-1).T.numpy().astype(np.float32))
    entropy = -(states[-1][1] * states[-1][1].log()).sum(0) / 4
    np.testing.assert_allclose(trace.entropy()[0, -1], entropy, rtol=1e-3)


def test_what_is_left_out_is_said_and_children_keep_all_of_their_edges():
    with watch(images=2, edges=30) as seen:
        route(complete_graph(20, 10), torch.randn(200, 5, 4))
    trace = seen["route"]
    left_out = {"images": "2 of 5", "edges": "30 of 200", "children": "3 of 20", "v": "none of 10 x 4 numbers"}
    assert trace.about == left_out and trace.v is None
    assert trace.c.shape == (1, 3, 2, 30) and trace.lengths.shape == (1, 3, 2, 10)
    assert np.allclose(trace.c[0, 1].reshape(2, 3, 10).sum(-1), 1, atol=1e-3)


def test_what_is_saved_is_drawn_a_file_for_each_of_several_layers(tmp_path, capsys):
    net, graph = GraphNet(), ring()
    with watch(net) as seen:
        net(graph, torch.randn(6, 5))
    paths = seen.save(tmp_path / "routing.npz")
    assert [path.name for path in paths] == ["routing-conv.npz", "routing-readout.npz"]
    assert main(["viz", str(paths[0]), "--format", "svg"]) == 0
    drawn = [line.rpartition("/")[2] for line in capsys.readouterr().out.splitlines()]
    assert drawn == ["entropy.svg", "graph.svg", "nodes.svg"]
    with watch() as none, pytest.raises(InputError, match="names: expected a layer that has routed, got none"):
        none.save(tmp_path / "none.npz")


def test_the_layers_of_pyg_are_recorded():
    pyg = small.pyg()
    net = nn.ModuleDict({"conv": pyg.CapsuleConv(5, 4, num_caps=3), "readout": pyg.CapsuleReadout(12, 6, num_caps=2)})
    with watch(net) as seen:
        h = net["conv"](torch.randn(6, 5), torch.stack(ring().edges()))
        net["readout"](h.flatten(-2), torch.tensor([0, 0, 0, 1, 1, 1]))
        net["conv"]((torch.randn(6, 5), torch.randn(6, 5)), torch.stack(ring().edges()))
    assert seen.names == ("conv", "readout") and seen["readout"].c.shape == (1, 3, 1, 12)
    assert seen["conv"].nodes is None and seen["readout"].nodes is None  # sources and targets are two kinds of nodes
    with watch(net["conv"]) as seen:
        net["conv"](torch.randn(6, 5), torch.tensor([[0, 1, 4], [1, 2, 3]]))
    assert seen.names == ("CapsuleConv",)
    edges = [[0, 1], [1, 2], [4, 3], *([node, node] for node in range(6))]
    assert seen["CapsuleConv"].nodes.tolist() == [edge for edge in edges for _ in range(3)]


def test_parents_beyond_the_limit_are_recorded_where_they_have_an_edge():
    graph = graphcaps.bipartite_graph([0, 0, 1, 1], [7, 2, 9, 5], 2, 40)
    with watch(edges=3) as seen:
        v = route(graph, torch.randn(4, 1)).v
    trace = seen["route"]
    assert trace.parents.tolist() == [2, 7] and trace.dst.tolist() == [1, 0] and trace.about["parents"] == "2 of 40"
    assert trace.parent_names == ("parent 2", "parent 7")
    np.testing.assert_allclose(trace.lengths[0, -1, 0], v[[2, 7]].norm(dim=-1), atol=1e-6)


def test_snapshots_are_the_epochs_of_one_trace(tmp_path):
    layer, u = CapsuleLayer(4, 3), torch.randn(4, 2, 8)
    seen, single = watch(nn.Sequential(layer)), []
    for epoch in (0, 1, 4):
        layer.weight.data.mul_(2)
        with seen:
            layer(u)
            layer(u)
        single.append(watch())
        with single[-1]:
            layer(u)
        seen.snapshot(epoch=epoch)
    trace = seen["0"]
    assert trace.epochs.tolist() == [0, 1, 4] and trace.about == {"layer": "0"}
    np.testing.assert_array_equal(trace.c, np.concatenate([each["route"].c for each in single]))
    assert RoutingTrace.load(*seen.save(tmp_path / "routing.npz")).epochs.tolist() == [0, 1, 4]
    with seen:
        layer(u[:, :1])
    with pytest.raises(InputError) as caught:
        seen.snapshot(epoch=5)
    assert str(caught.value) == "trace: c: expected (1, 3, 2, 12), as the epochs before, got (1, 3, 1, 12)"


def test_what_is_seen_shows_itself_and_gives_plain_numbers_and_networkx(tmp_path):
    net, graph = GraphNet(), ring()
    feat = torch.randn(6, 5)
    with watch(net) as seen:
        net(graph, feat)
    assert repr(seen) == "Watched(conv: 54 edges, 3 iterations, 1 image; readout: 12 edges, 3 iterations, 1 image)"
    shown = seen._repr_html_()
    assert shown.count('<img src="data:image/gif;base64,') == 2
    assert not any(part in shown for part in ("http:", "https:", "<script"))
    assert seen.graph(layer="conv", what="entropy")._repr_png_().startswith(b"\x89PNG")
    assert seen.graph(tmp_path / "graph.svg", "conv", over="iterations").exists()
    numbers, trace = seen.scalars(), seen["readout"]
    c = trace.c[0, -1, 0].astype(float)
    assert list(numbers) == [f"{n}/{k}" for n in seen.names for k in ("entropy", "undecided", "agreement", "length")]
    assert {type(number) for number in numbers.values()} == {float}
    assert numbers["readout/entropy"] == pytest.approx(-(c * np.log(c)).sum() / 6)
    assert numbers["readout/agreement"] == pytest.approx((c * trace.agreement[0, -1, 0]).sum() / 6, rel=1e-3)
    conv, votes = seen.to_networkx("conv"), seen.to_networkx()
    assert {*conv.edges} == {*zip(*(end.tolist() for end in graph.edges()), strict=True)}
    share = net.conv(graph, feat, get_coupling=True)[1].mean(1)[graph.edge_ids(1, 2)].detach()
    assert conv.edges[1, 2] == pytest.approx({"capsule": int(share.argmax()), "c": float(share.max())}, abs=1e-3)
    assert votes.edges[("child", 1), ("parent", 1), 3]["c"] == pytest.approx(c[3])
    with watch(net, edges=10) as limited:
        net(graph, torch.randn(6, 5))
    with pytest.warns(UserWarning, match="the graph has 9 of 54 votes. Record all: watch"):
        assert {*limited.to_networkx("conv")} == {*range(6)}
    assert repr(watch()) == "Watched()" and watch()._repr_html_() == "Nothing has routed in watch's block"
