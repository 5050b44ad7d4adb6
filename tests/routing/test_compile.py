"""``torch.compile``: a network's numbers, one break of the compiled graph for each routed call, no graph made twice."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from torch._dynamo.utils import counters

from graphcaps import dgl, engine
from graphcaps.graph import bipartite
from graphcaps.models import from_preset
from graphcaps.nn import CapsuleConv, CapsuleReadout


@pytest.fixture(autouse=True)
def fresh_compiler():
    torch._dynamo.reset()
    counters.clear()
    torch.set_num_threads(1)


def step(net, called) -> dict[str, torch.Tensor]:
    """Loss and gradients of a training step."""
    images = torch.rand(5, *net.image_shape, generator=torch.Generator().manual_seed(1))
    labels = torch.arange(5) % 3
    net.zero_grad()
    loss = net.loss(called(images, labels), images, labels)
    loss.backward()
    found = {name: p.grad.clone() for name, p in net.named_parameters() if p.grad is not None}
    return {"loss": loss.detach(), **found}


@pytest.mark.parametrize(
    ("name", "routing"),
    [("auto", "dynamic"), ("torch", "em"), pytest.param("dgl", "spherical", marks=pytest.mark.long)],
)
def test_a_compiled_network_learns_as_it_does_alone_and_makes_no_graph_twice(name, routing, monkeypatch):
    torch.manual_seed(0)
    net = from_preset("compact", image_shape=(1, 17, 17), num_classes=3, routing=routing, prior="learned")
    compiled = torch.compile(net, backend="aot_eager")
    with engine(name):
        for _ in range(2):
            got, wanted = step(net, compiled), step(net, net)
            assert got.keys() == wanted.keys()
            for parameter, slope in wanted.items():  # float32, added up in another order
                torch.testing.assert_close(
                    got[parameter], slope, rtol=1e-3, atol=1e-4 * float(slope.abs().max()) + 1e-7
                )
            assert counters["stats"]["unique_graphs"] == 2  # before the routed layer and behind it
            monkeypatch.setattr(bipartite.dgl, "heterograph", lambda *args, **named: pytest.fail("a graph was made"))
    assert all("disable" in reason for reason in counters["graph_break"]), counters["graph_break"]


class OnNodes(torch.nn.Module):
    """Both layers for DGL's graphs, with something to compile before, between and behind them."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.into = torch.nn.Linear(6, 6)
        self.conv = CapsuleConv(6, 4, 3, residual=True, edge_feats=2)
        self.readout = CapsuleReadout(4, 4, 2, in_caps=3)

    def forward(self, graph, x, weight, attr):
        h, c = self.conv(graph, self.into(x).relu(), weight, get_coupling=True, edge_feat=attr)
        return self.readout(graph, h.sin()).norm(dim=-1), c


def test_layers_on_nodes_are_breaks_and_give_their_value_and_gradient(draw):
    net = OnNodes().double()
    compiled = torch.compile(net, backend="aot_eager")
    for nodes in ([5, 4], [3, 6]):  # compiled code looks at the graph too
        rings = [dgl.graph((torch.arange(number), torch.arange(number).roll(1))) for number in nodes]
        graph = dgl.batch([dgl.add_self_loop(ring) for ring in rings])
        arguments = graph, draw(9, 6).requires_grad_(), draw(graph.num_edges()), draw(graph.num_edges(), 2)
        found, cotangent = [], draw(2, 2)
        for called in (compiled, net):
            v, c = called(*arguments)
            found.append([v, c, *torch.autograd.grad(v, [arguments[1], *net.parameters()], cotangent)])
        torch.testing.assert_close(*found, rtol=1e-10, atol=1e-10)  # float64, of few terms
        assert counters["stats"]["unique_graphs"] == 3  # before, between and behind
    assert all("disable" in reason for reason in counters["graph_break"]), counters["graph_break"]


@pytest.mark.long
def test_a_compiled_network_in_a_fresh_process_loads_numba_and_dgl_outside_of_the_compiler(tmp_path):
    code = (
        "import torch, graphcaps\n"
        "net = graphcaps.CapsNet.from_preset('compact', (1, 12, 12), 3).eval()\n"
        "got = torch.compile(net, backend='eager')(torch.ones(2, 1, 12, 12))\n"
        "assert torch.equal(got.lengths, net(torch.ones(2, 1, 12, 12)).lengths)\n"
        "from torch._dynamo.utils import counters; print(counters['stats']['unique_graphs'])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert done.stdout.split() == ["2"] and "numba" not in done.stderr, done.stderr
