"""``torch.compile``: the numbers of the network, as few pieces as can be, and no graph of DGL's made twice."""

from __future__ import annotations

import shutil
import subprocess
import sys

import pytest
import torch
from torch._dynamo.utils import counters

from graphcaps import complete_graph, dgl, route
from graphcaps.graph import bipartite
from graphcaps.models import from_preset
from graphcaps.nn import CapsuleConv, CapsuleLayer, CapsuleReadout, ConcurrentCaps, ConvCaps
from graphcaps.nn.routed import TRACES

from .test_export import LONG, QUICK, SIDES

traced_only = pytest.mark.skipif(not TRACES, reason="needs torch 2.9")
WAYS = [
    pytest.param(model, routing, marks=[] if (model, routing) == ("compact", "dynamic") else pytest.mark.long)
    for model, routing, _ in QUICK + LONG
]


@pytest.fixture(autouse=True)
def anew():
    torch._dynamo.reset()
    counters.clear()
    torch.set_num_threads(1)


def network(model: str, routing: str, engine: str):
    torch.manual_seed(0)
    side = SIDES.get(model, 17)
    options = {"routing": routing, "engine": engine, "prior": "learned"}
    if not model.startswith(("compact", "paper", "parts", "deep")):
        options = {} if routing == "none" else {"engine": engine}
    return from_preset(model, image_shape=(1, side, side), num_classes=3, **options)


def step(net, called) -> dict[str, torch.Tensor]:
    """Loss and gradients of a training step."""
    images = torch.rand(5, *net.image_shape, generator=torch.Generator().manual_seed(1))
    labels = torch.arange(5) % 3
    net.zero_grad()
    torch.manual_seed(2)  # dropout
    loss = net.loss(called(images, labels), images, labels)
    loss.backward()
    found = {name: p.grad.clone() for name, p in net.named_parameters() if p.grad is not None}
    return {"loss": loss.detach(), **found}


def agree(got: dict[str, torch.Tensor], wanted: dict[str, torch.Tensor]) -> None:
    assert got.keys() == wanted.keys()
    for name, value in wanted.items():  # float32 through batch normalisation of five images, in another order
        assert torch.allclose(got[name], value, rtol=1e-3, atol=1e-4 * float(value.abs().max()) + 1e-7), name


def breaks() -> int:
    """Pieces that don't hang together, less one."""
    return counters["stats"]["unique_graphs"] - 1


@traced_only
@pytest.mark.parametrize("model, routing", WAYS)
def test_by_engine_torch_a_network_is_one_graph_with_its_value_and_gradient(model, routing):
    net = network(model, routing, "torch")
    agree(step(net, torch.compile(net, backend="aot_eager", fullgraph=True)), step(net, net))
    assert breaks() == 0


@pytest.mark.parametrize(
    "model, engine, apart",
    [
        ("compact", "auto", 1),
        ("compact", "dgl", 1),
        pytest.param("deep", "auto", 3, marks=pytest.mark.long),
        pytest.param("matrix-small", "auto", 3, marks=pytest.mark.long),
        pytest.param("parts", "naive", 1, marks=pytest.mark.long),
    ],
)
def test_other_engines_are_called_apart_one_break_for_each_routed_layer(model, engine, apart):
    net = network(model, "dynamic", engine)
    agree(step(net, torch.compile(net, backend="eager")), step(net, net))
    assert breaks() <= apart and counters["stats"]["unique_graphs"] >= 2
    assert all("disable" in reason for reason in counters["graph_break"]), counters["graph_break"]


@pytest.mark.parametrize("engine", ["auto", "torch"])
def test_a_second_call_makes_no_graph_and_compiles_nothing(engine, monkeypatch):
    net = network("compact", "dynamic", engine)
    compiled = torch.compile(net, backend="eager")
    step(net, compiled)
    pieces = counters["stats"]["unique_graphs"]
    made = []
    monkeypatch.setattr(bipartite.dgl, "heterograph", lambda *args, **named: made.append(args))
    agree(step(net, compiled), step(net, net))
    assert not made and counters["stats"]["unique_graphs"] == pieces


@traced_only
def test_layers_that_route_at_the_same_time_and_a_call_of_route_are_compiled_too():
    torch.manual_seed(0)
    ways = [ConvCaps(4, 2, 2, kernel=3, routing="inverted"), CapsuleLayer(8, 3, routing="inverted")]
    both = ConcurrentCaps(ways)
    u = torch.rand(32, 2, 8)
    assert torch.allclose(torch.compile(both, backend="eager")(u), both(u), atol=1e-6)
    graph, u_hat = complete_graph(4, 3), torch.rand(12, 2, 5)
    twice = torch.compile(lambda votes: route(graph, votes).v * 2, backend="eager")
    assert torch.allclose(twice(u_hat), 2 * route(graph, u_hat).v)


class OnNodes(torch.nn.Module):
    """Both layers for DGL's graphs, with something to compile before, between and behind them."""

    def __init__(self, engine: str):
        super().__init__()
        torch.manual_seed(0)
        self.into = torch.nn.Linear(6, 6)
        self.conv = CapsuleConv(6, 4, 3, residual=True, edge_feats=2, engine=engine)
        self.readout = CapsuleReadout(4, 4, 2, in_caps=3, engine=engine)

    def forward(self, graph, x, weight, attr):
        h, c = self.conv(graph, self.into(x).relu(), weight, get_coupling=True, edge_feat=attr)
        return self.readout(graph, h.sin()).norm(dim=-1), c


@traced_only
@pytest.mark.parametrize("engine", ["auto", "torch", "dgl"])
def test_layers_on_nodes_are_called_apart_and_give_their_value_and_gradient(engine, draw):
    net = OnNodes(engine).double()
    compiled = torch.compile(net, backend="aot_eager")
    for nodes in ([5, 4], [3, 6]):  # compiled code looks at the graph too
        rings = [dgl.graph((torch.arange(number), torch.arange(number).roll(1))) for number in nodes]
        graph = dgl.batch([dgl.add_self_loop(ring) for ring in rings])
        x, attr = draw(9, 6).requires_grad_(), draw(graph.num_edges(), 2)
        weight, cotangent = draw(graph.num_edges()), draw(2, 2)
        leaves = x, *net.parameters()
        (got, c), (wanted, own) = (called(graph, x, weight, attr) for called in (compiled, net))
        gradients = [torch.autograd.grad(each, leaves, cotangent) for each in (got, wanted)]
        for one, other in zip((got, c, *gradients[0]), (wanted, own, *gradients[1]), strict=True):
            torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-10)  # float64, of few terms
        assert counters["stats"]["unique_graphs"] == 3  # before, between and behind
    assert all("disable" in reason for reason in counters["graph_break"]), counters["graph_break"]


def test_a_compiled_layer_on_nodes_gives_what_the_layer_gives():
    graph, x = dgl.graph(([0, 1, 2, 2], [1, 2, 0, 1])), torch.rand(3, 6)
    for layer in (CapsuleConv(6, 4, 3), CapsuleReadout(6, 4, 3)):
        assert torch.equal(torch.compile(layer, backend="eager")(graph, x), layer(graph, x))


@pytest.mark.long
def test_a_compiled_network_in_a_fresh_process_loads_numba_and_dgl_outside_of_the_compiler(tmp_path):
    code = (
        "import torch, graphcaps\n"
        "net = graphcaps.CapsNet.from_preset('compact', (1, 12, 12), 3).eval()\n"
        "got = torch.compile(net, backend='eager')(torch.ones(2, 1, 12, 12))\n"
        "assert torch.equal(got.lengths, net(torch.ones(2, 1, 12, 12)).lengths)\n"
        "from torch._dynamo.utils import counters; print(counters['stats']['unique_graphs'])"
    )
    where = {"cwd": tmp_path, "capture_output": True, "text": True}
    done = subprocess.run([sys.executable, "-c", code], **where)
    assert done.stdout.split() == ["2"] and "numba" not in done.stderr, done.stderr


@pytest.mark.long
@pytest.mark.skipif(shutil.which("g++") is None, reason="inductor compiles with g++")
def test_inductor_gives_the_networks_value_and_gradient():
    net = network("compact", "dynamic", "auto")
    agree(step(net, torch.compile(net)), step(net, net))
    assert breaks() == 1
