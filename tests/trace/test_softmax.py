"""``graphcaps.watch`` reads the softmax of any module: attention of PyG and DGL, a mixture's gate, slots."""

import numpy as np
import pytest
import torch
from torch import nn

from graphcaps import RoutingTrace, dgl, viz, watch
from graphcaps.errors import InputError
from graphcaps.nn import CapsuleLayer

from ..traces import words

EDGES, X = torch.tensor([[0, 1, 2, 2, 0, 3], [1, 2, 0, 1, 3, 1]]), torch.randn(4, 5)


def test_attention_of_pyg_and_of_dgl_is_recorded_and_the_output_is_unchanged():
    conv = pytest.importorskip("torch_geometric.nn").GATConv(5, 8, heads=4)
    out, (edges, alpha) = conv(X, EDGES, return_attention_weights=True)
    with watch(conv, softmax={"GATConv": "head: paper -> paper"}) as seen:
        assert torch.equal(conv(X, EDGES), out) and conv(X, EDGES, None, None, True)[1][0].equal(edges)
    trace = seen["GATConv"]
    assert (trace.dst.tolist(), trace.src.tolist()) == (edges[0].tolist(), edges[1].tolist())  # targets choose
    np.testing.assert_array_equal(trace.c[0, 0], alpha.detach().T.numpy().astype(np.float16))
    conv, graph = dgl.nn.pytorch.GATConv(5, 3, num_heads=2), dgl.add_self_loop(dgl.graph((EDGES[0], EDGES[1])))
    out, alpha = conv(graph, X, get_attention=True)
    with watch(conv, softmax={"GATConv": "head: node -> node"}) as seen:
        assert torch.equal(conv(graph, feat=X), out)
    assert repr(seen) == "Watched(GATConv: 10 edges, 1 iteration, 2 heads)"
    np.testing.assert_array_equal(seen["GATConv"].c[0, 0], alpha[..., 0].detach().T.numpy().astype(np.float16))
    conv.attn_drop.p = 0.5
    with seen, pytest.raises(InputError, match="softmax of GATConv: expected numbers >= 0 that sum to 1 .* eval mode"):
        conv(graph, X)


def test_a_gate_has_loads_dead_experts_names_and_pictures_in_its_words(tmp_path):
    logits, net = torch.randn(30, 4) + torch.tensor([2.0, 0.0, 1.0, -9.0]), nn.Sequential(nn.Softmax(-1))
    names = {"expert": ["ace", "bob", "cy", "dee"], "digit": [f"a{n}" for n in range(30)]}
    seen = watch(net, softmax={"0": "digit -> expert"}, names={"0": names})
    for epoch in (0, 1):
        with seen:
            c = net(epoch * logits)
        seen.snapshot(epoch)
    trace = RoutingTrace.load(*seen.save(tmp_path / "gate.npz"))
    np.testing.assert_allclose(trace.lengths[:, 0, 0], [[0.25] * 4, c.mean(0).tolist()], rtol=1e-5)
    assert trace.dead().tolist() == [[False] * 4, [False] * 3 + [True]] and trace.v is None
    entropy, load = torch.special.entr(c).sum(1).mean().item(), c.mean(0).max().item()
    chosen = torch.bincount(c.argmax(1)).max().item() / 30
    numbers = {"entropy": entropy, "undecided": entropy / np.log(4), "mass": load, "dispatch": chosen, "dead": 1}
    assert seen.scalars() == pytest.approx({f"0/{name}": number for name, number in numbers.items()}, rel=1e-3)
    picture = words(viz.GraphPicture(trace, "epochs").figure)
    wanted = ("choose ace", "Each digit divides itself among experts; dead (under a tenth of an equal load): 1 of 4")
    for text in (*wanted, "experts,\nand their loads", f"ace\n{load:.1%}", f"a{c.max(1)[0].argmax()} |"):
        assert text in picture


def test_calls_in_one_call_of_the_network_are_iterations_and_the_set_is_what_sums_to_1():
    logits, attend = torch.randn(2, 3, 5), nn.Softmax(dim=1)  # of 2 images, 3 slots and 5 inputs
    net = nn.Sequential(attend, nn.Threshold(-1, 0), attend)
    for given in ("input -> slot", ("input -> slot", lambda module, args, output: output + 0)):
        with watch(net, softmax={"0": given}) as seen:
            net(-logits)
            net(logits)
        trace, once = seen["0"], logits.softmax(1)
        wanted = torch.stack((once, once.softmax(1))).transpose(2, 3).flatten(2)
        np.testing.assert_array_equal(trace.c[0], wanted.numpy().astype(np.float16))
        assert (trace.num_children, trace.num_parents, trace.parent_names[0]) == (5, 3, "slot 0")
    net[1] = nn.LSTM(5, 5)  # returns a tuple
    with watch(net, softmax={"1": "input -> slot"}), pytest.raises(InputError, match="Give a function that returns"):
        net(logits)
    with pytest.raises(InputError, match="words such as 'token -> expert'"), watch(net, softmax={"0": "input, slot"}):
        pass
    with pytest.raises(InputError, match="softmax: expected one of Sequential, 0, 1"), watch(net, softmax={"gate": ""}):
        pass
    assert not net._forward_hooks and not attend._forward_hooks and not attend._forward_pre_hooks


class Attention(nn.Module):
    """Equal attention of each query to all keys that a mask allows."""

    def __init__(self, blocked):
        super().__init__()
        self.blocked = blocked

    def forward(self, x):
        return torch.zeros(*x.shape, x.shape[-1]).masked_fill(self.blocked, -torch.inf).softmax(-1)


def test_masked_keys_are_no_choices_and_mass_and_dispatch_are_told_apart():
    blocked = torch.ones(5, 5).triu(1).bool() | (torch.arange(5) == 3)  # later keys, and a key of padding
    with watch(attention := Attention(blocked), softmax={"Attention": "query -> key"}) as seen:
        attention(torch.rand(2, 5))
    assert seen.scalars()["Attention/undecided"] == pytest.approx(1, abs=1e-3) and not seen["Attention"].dead().any()
    dispatched = torch.eye(4)[torch.tensor([0, 0, 0, 1, 1, 2])]
    for c, mass, dispatch, dead in ((0.1 * dispatched + 0.225, 0.275, 0.5, 0), (dispatched, 0.5, 0.5, 1)):
        with watch(gate := nn.Identity(), softmax={"Identity": ("token -> expert", None, -1)}) as seen:
            gate(c)
        numbers = [seen.scalars()[f"Identity/{name}"] for name in ("mass", "dispatch", "dead")]
        assert numbers == pytest.approx([mass, dispatch, dead], rel=1e-3)


def test_what_fits_twice_is_asked_for_and_names_are_counted():
    attention, gate, words = Attention(torch.tensor(False)), nn.Identity(), {"Identity": "a -> b"}
    asked = [
        (attention, (2, 3, 5), {"Attention": "a -> b"}, {}, r"a word for each of the dims \(2, 3\), got 'image'"),
        (gate, (4, 4), words, {}, r"one dim over which numbers sum to 1, got dims \[0, 1\]. Give the dim"),
        (gate, (6, 4), words, {"Identity": {"b": ["x"] * 3}}, "names of Identity: expected 4 of b, got 3"),
    ]
    for module, shape, softmax, names, text in asked:
        with pytest.raises(InputError, match=text), watch(module, softmax=softmax, names=names):
            module(torch.full(shape, 0.25))
    for names, text in (({"0": {"parent": ["x"]}}, "expected 3 of parent, got 1"), ({"1": {}}, "expected one of")):
        with pytest.raises(InputError, match=text), watch(nn.Sequential(CapsuleLayer(4, 3)), names=names):
            pass
