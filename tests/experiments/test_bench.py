"""The benchmarks: only what is right is timed, in rounds, and each target is judged by its own number."""

from __future__ import annotations

import json

import pytest
import torch

from experiments.bench import contention, first, markdown, memory, nodes, training
from experiments.bench.__main__ import NAMES, run
from experiments.bench.formulations import DGL, EINSUM, TORCH, results, why_not
from experiments.bench.inputs import Setup, Sizes, case
from graphcaps import GraphcapsError

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


def test_the_network_by_einsum_has_our_loss_and_gradient():
    images, labels, found = torch.rand(4, *TINY.image_shape), torch.tensor([0, 2, 1, 9]), []
    for network, _ in training.networks("paper", Setup("cpu", TINY, {})).values():
        loss = network.loss(network.train()(images, labels), images, labels)
        found.append([loss, *torch.autograd.grad(loss, list(network.parameters()))])
    for right, got in zip(found[0], found[1], strict=True):
        # float32 through two convolutions of 81 * 256 terms, and routing
        assert (got.flatten() - right.flatten()).abs().max() <= 1e-3 * right.abs().max()


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
