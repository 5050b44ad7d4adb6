"""The benchmarks: only what is right is timed, in rounds, and each target is judged by its own number."""

from __future__ import annotations

import json

import pytest
import torch

from experiments.bench import contention, first, markdown, memory, nodes, training
from experiments.bench.__main__ import NAMES, run
from experiments.bench.formulations import DGL, EINSUM, TORCH, results, why_not
from experiments.bench.inputs import Setup, Sizes, case
from experiments.bench.plain import Plain, fast, readable
from graphcaps import CapsNet, GraphcapsError
from graphcaps.routing import Dynamic

TINY = Sizes(
    images=3, children=12, parents=4, edges=300, growth=(300, 600), node_edges=(200, 400), batch=4,
    image_shape=(1, 17, 17), copied=2**16, square=16, seconds=0.01, rounds=(2, 3), epoch_images=10,
)  # fmt: skip
pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.mark.parametrize("kind", ["given", "linear"])
def test_einsum_equals_the_engines_in_float64(kind):
    own = case(kind, TINY).to("cpu", torch.float64)
    torch.testing.assert_close(results(EINSUM, own), results(DGL, own), rtol=1e-6, atol=1e-6)


def scaled(v):
    return v * 1.001


def wrong_gradient(v):
    return v.detach() + scaled(v - v.detach())


def not_finite(v):
    return v * float("nan")


@pytest.mark.parametrize(("change", "what"), [(scaled, "value"), (wrong_gradient, "gradient"), (not_finite, "value")])
def test_an_engine_with_wrong_numbers_is_named_and_not_timed(change, what):
    own = case("sparse", TINY)
    broken = TORCH._replace(route=lambda *arguments: change(TORCH.route(*arguments)))
    assert why_not(TORCH, own, results(DGL, own), "float32") == ""
    with pytest.raises(GraphcapsError, match=f"torch: expected the {what} of engine dgl, .* It is not timed"):
        why_not(broken, own, results(DGL, own), "float32")


@pytest.mark.parametrize("preset", training.PRESETS)
def test_a_network_in_plain_pytorch_has_our_loss_and_gradient(preset):
    torch.manual_seed(0)
    own = CapsNet.from_preset(preset, TINY.image_shape, 5, Dynamic(3)).train()
    plain = [Plain(own, routing).double() for routing in (fast, readable)]
    own.double()
    images, labels = torch.rand(4, *TINY.image_shape).double(), torch.tensor([0, 2, 1, 4])
    loss = own.loss(own(images, labels), images, labels)
    wanted = [loss, *torch.autograd.grad(loss, list(own.parameters()))]
    for network in plain:
        loss = network(images, labels)
        got = [loss, *torch.autograd.grad(loss, network.in_order())]
        for x, right in zip(got, wanted, strict=True):
            assert (x - right).norm() <= 1e-5 * right.norm()  # CapsNet routes in float32


def test_steps_with_other_gradients_are_named_and_not_timed():
    found = training.ways("compact", Setup("cpu", TINY, {}))
    batch = torch.rand(4, *TINY.image_shape), torch.arange(4)
    training.check({name: found[name] for name in (training.OURS_FLOAT32, training.READABLE)}, *batch)
    broken = found[training.READABLE]._replace(loss=lambda *batch: 1.5 * found[training.READABLE].loss(*batch))
    with pytest.raises(GraphcapsError, match="readable PyTorch: expected the loss and gradients of .* It is not timed"):
        training.check({training.OURS_FLOAT32: found[training.OURS_FLOAT32], training.READABLE: broken}, *batch)


@pytest.mark.long
def test_every_benchmark_makes_the_tables_of_the_docs(monkeypatch, tmp_path):
    for module in (first, memory, nodes):
        monkeypatch.setattr(module, "in_process", lambda call, *rest, device: (call(*rest, device), ""))
        monkeypatch.setattr(module, "peak", lambda call, device: (call(), 1000)[1], raising=False)
    monkeypatch.setattr(torch, "compile", lambda function, **options: function)
    monkeypatch.setattr("experiments.bench.machine._mallopt", lambda *settings: False)
    monkeypatch.setattr(contention, "training_speed", lambda device, environment: 100.0)
    monkeypatch.setattr(contention, "affinity", lambda: set())
    found = run((*NAMES, "epoch"), "cpu", tmp_path / "x.json", TINY, say=lambda line: None)
    assert json.loads((tmp_path / "x.json").read_text()) == json.loads(json.dumps(found))
    for made in (markdown.bench_tables, markdown.nodes_table, markdown.busy_table):
        assert "| " in made(found)
