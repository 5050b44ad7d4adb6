"""``torch.compile``: eager's numbers and gradients, with one break in the graph for each call that routes."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from torch._dynamo.utils import counters

from graphcaps import dgl
from graphcaps.models import from_preset
from graphcaps.nn import CapsuleConv, CapsuleReadout
from graphcaps.routing import Spherical


@pytest.fixture(autouse=True)
def anew():
    torch._dynamo.reset()
    counters.clear()
    torch.set_num_threads(1)


def pieces() -> int:
    """Graphs that torch has compiled; all breaks between them were asked for."""
    assert all("disable" in reason for reason in counters["graph_break"]), counters["graph_break"]
    return counters["stats"]["unique_graphs"]


def step(net, called) -> list[torch.Tensor]:
    """Loss and gradients of a training step."""
    images = torch.rand(5, *net.image_shape, generator=torch.Generator().manual_seed(1))
    labels = torch.arange(5) % 3
    loss = net.loss(called(images, labels), images, labels)
    learned = [p for p in net.parameters() if p.requires_grad]
    return [loss, *torch.autograd.grad(loss, learned, allow_unused=True)]


def assert_same_step(net, compiled) -> None:
    for got, wanted in zip(step(net, compiled), step(net, net), strict=True):
        if wanted is None:  # as kappa's, of a single iteration
            assert got is None
            continue
        # float32 through batch normalisation of five images, added up in another order
        torch.testing.assert_close(got, wanted, rtol=1e-3, atol=1e-4 * float(wanted.detach().abs().max()) + 1e-7)


@pytest.mark.parametrize(
    ("model", "side", "options", "layers"),
    [
        ("compact", 12, {"routing": Spherical(3), "prior": "learned"}, 1),
        ("deep", 23, {}, 3),
        pytest.param("matrix-small", 17, {}, 3, marks=pytest.mark.long),
    ],
)
def test_a_compiled_network_takes_the_step_of_the_network(model, side, options, layers):
    torch.manual_seed(0)
    net = from_preset(model, image_shape=(1, side, side), num_classes=3, **options)
    compiled = torch.compile(net, backend="aot_eager")
    assert_same_step(net, compiled)
    before = pieces()
    assert 2 <= before <= layers + 1
    assert_same_step(net, compiled)
    assert pieces() == before  # a second call compiles nothing


class OnNodes(torch.nn.Module):
    """Both layers for DGL's graphs, with code to compile before, between and after them."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.into = torch.nn.Linear(6, 6)
        self.conv = CapsuleConv(6, 4, 3, residual=True, edge_feats=2)
        self.readout = CapsuleReadout(4, 4, 2, in_caps=3)

    def forward(self, graph, x, weight, attr):
        h, c = self.conv(graph, self.into(x).relu(), weight, get_coupling=True, edge_feat=attr)
        return self.readout(graph, h.sin()).norm(dim=-1), c


def test_compiled_layers_on_nodes_give_their_value_coupling_and_gradient(draw):
    net = OnNodes().double()
    compiled = torch.compile(net, backend="aot_eager")
    for nodes in ([5, 4], [3, 6]):  # compiled code looks at the graph too
        rings = [dgl.graph((torch.arange(number), torch.arange(number).roll(1))) for number in nodes]
        graph = dgl.batch([dgl.add_self_loop(ring) for ring in rings])
        x, attr = draw(9, 6).requires_grad_(), draw(graph.num_edges(), 2)
        weight, cotangent = draw(graph.num_edges()), draw(2, 2)
        (got, c), (wanted, own) = (called(graph, x, weight, attr) for called in (compiled, net))
        gradients = [torch.autograd.grad(each, (x, *net.parameters()), cotangent) for each in (got, wanted)]
        for one, other in zip((got, c, *gradients[0]), (wanted, own, *gradients[1]), strict=True):
            torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-10)  # float64, of few terms
        assert pieces() == 3  # before, between and behind


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
