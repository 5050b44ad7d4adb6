"""``graphcaps.watch``: it records what a network's own call did, changes nothing, and says what it leaves out."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

import graphcaps
from graphcaps import RoutingTrace, complete_graph, dgl, route, watch
from graphcaps.cli import main
from graphcaps.errors import InputError
from graphcaps.nn import CapsuleConv, CapsuleLayer, CapsuleReadout, ConvCaps, SharedCaps
from graphcaps.nn.matrix_caps import MatrixClassCaps, Poses
from graphcaps.routing import Dynamic, Spherical


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
    "MatrixClassCaps": lambda: (
        MatrixClassCaps(4, torch.rand(9, 2), 10),
        (Poses(torch.randn(36, 3, 16), torch.rand(36, 3)),),
    ),
    **{
        f"CapsuleConv {options}": lambda options=options: (CapsuleConv(5, 4, 3, **options), (ring(), torch.randn(6, 5)))
        for options in ({}, {"routing": Spherical(mutual=True)}, {"competition": "neighbours"}, {"routing": "uniform"})
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
    torch.testing.assert_close(out, plain, rtol=1e-5, atol=1e-6)  # float32 summed in another order
    for got, wanted in zip(own, slopes, strict=True):
        torch.testing.assert_close(got, wanted, rtol=1e-4, atol=1e-5)
    trace = seen["layer"]
    trace.check()
    assert seen.names == ("layer",) and trace.about["layer"] == "layer"
    total = np.zeros((*trace.c.shape[:3], trace.num_children))
    np.add.at(total, (..., trace.src), trace.c.astype(float))
    assert np.allclose(total[..., np.unique(trace.src)], 1, atol=2e-3)  # couplings in float16
    assert not layer._forward_hooks and not layer._forward_pre_hooks


@pytest.mark.parametrize("squash", [True, False])
def test_the_last_iteration_is_the_layers_own(squash):
    torch.manual_seed(0)
    conv, graph, feat = CapsuleConv(5, 4, 3, squash_output=squash, routing="spherical"), ring(), torch.randn(6, 5)
    _, c = conv(graph, feat, get_coupling=True)
    with watch(nn.ModuleList([conv])) as seen:
        conv(graph, feat)
    assert np.allclose(seen["0"].c[0, -1, 0].reshape(18, 1, 3), c, atol=1e-3)


def test_a_bare_call_is_called_route_and_recorded_as_an_observer_sees_it(draw):
    graph, votes, states = complete_graph(4, 3), draw(12, 2, 5), []
    with watch() as seen:
        v, _ = route(graph, votes, Dynamic(4), on_iteration=lambda r, *state: states.append(state))
    trace = seen["route"]
    assert (trace.num_children, trace.num_parents, trace.trained_iterations) == (4, 3, 4) and trace.about == {}
    assert trace.src.tolist() == [i for i in range(4) for _ in range(3)] and trace.dst.tolist() == [0, 1, 2] * 4
    for r, (b, c, _, agreement) in enumerate(states):
        for got, wanted in ((trace.b, b), (trace.c, c), (trace.agreement, agreement)):
            np.testing.assert_array_equal(got[0, r], wanted.T.numpy().astype(np.float16))
    np.testing.assert_array_equal(trace.lengths[0, -1], v.norm(dim=-1).T.numpy().astype(np.float32))
    entropy = -(states[-1][1] * states[-1][1].log()).sum(0) / 4
    np.testing.assert_allclose(trace.entropy()[0, -1], entropy, rtol=1e-3)


def test_a_layers_last_call_counts_and_nothing_is_recorded_outside_the_block():
    layer = CapsuleLayer(4, 3)
    with watch(nn.Sequential(layer)) as seen:
        layer(torch.ones(4, 2, 8))
        layer(torch.ones(4, 5, 8))
    layer(torch.ones(4, 7, 8))
    assert seen["0"].num_images == 5


def test_an_error_in_a_layer_leaves_no_name_behind():
    layer = CapsuleLayer(4, 3)
    with watch(nn.Sequential(layer)) as seen:
        with pytest.raises(InputError):
            layer(torch.ones(5, 2, 8))
        route(complete_graph(2, 2), torch.ones(4, 3))
    assert seen.names == ("route",)
    with pytest.raises(InputError) as caught:
        seen["0"]
    assert str(caught.value) == "name: expected one of ('route',), which have routed, got '0'"


def test_what_is_left_out_is_said_and_children_keep_all_of_their_edges():
    with watch(images=2, edges=30) as seen:
        route(complete_graph(20, 10), torch.randn(200, 5, 4))
    trace = seen["route"]
    assert trace.about == {"images": "2 of 5", "edges": "30 of 200", "children": "3 of 20"}
    assert trace.c.shape == (1, 3, 2, 30) and trace.lengths.shape == (1, 3, 2, 10)
    assert np.allclose(trace.c[0, 1].reshape(2, 3, 10).sum(-1), 1, atol=1e-3)


def test_watching_in_a_watched_block_records_for_both():
    with watch() as outer, watch() as inner:
        route(complete_graph(2, 2), torch.ones(4, 3))
    assert outer.names == inner.names == ("route",)


def test_logits_beyond_float16_stay_finite_unless_they_are_not():
    votes = 100 * torch.randn(6, 1, 16, generator=torch.Generator().manual_seed(0))
    for factor, finite in ((1.0, True), (float("inf"), False)):
        with watch() as seen:
            route(complete_graph(3, 2), votes * factor, routing="em")
        assert np.isfinite(seen["route"].b).all() == finite


def test_what_is_saved_is_drawn_a_file_for_each_of_several_layers(tmp_path, capsys):
    net, graph = GraphNet(), ring()
    with watch(net) as seen:
        net(graph, torch.randn(6, 5))
    paths = seen.save(tmp_path / "routing.npz")
    assert [path.name for path in paths] == ["routing-conv.npz", "routing-readout.npz"]
    assert main(["viz", str(paths[0]), "--format", "svg"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 3
    trace = RoutingTrace.load(paths[1]).with_bonds(torch.stack(graph.edges(), 1))
    assert graphcaps.viz.MoleculePicture(trace).nodes.get_facecolors().shape == (6, 4)
    with watch() as none, pytest.raises(InputError, match="names: expected a layer that has routed, got none"):
        none.save(tmp_path / "none.npz")


def test_the_layers_of_pyg_are_recorded():
    torch_geometric = pytest.importorskip("torch_geometric")
    assert torch_geometric
    from graphcaps.pyg import CapsuleConv as Conv
    from graphcaps.pyg import CapsuleReadout as Readout

    net = nn.ModuleDict({"conv": Conv(5, 4, num_caps=3), "readout": Readout(12, 6, num_caps=2)})
    with watch(net) as seen:
        h = net["conv"](torch.randn(6, 5), torch.stack(ring().edges()))
        net["readout"](h.flatten(-2), torch.tensor([0, 0, 0, 1, 1, 1]))
    assert seen.names == ("conv", "readout") and seen["readout"].c.shape == (1, 3, 1, 12)
