"""Benchmarks: wrong results aren't timed, and all benchmarks make the tables of the docs."""

from __future__ import annotations

import dataclasses
import json

import pytest
import torch

from experiments.bench import markdown, memory, nodes, training
from experiments.bench.__main__ import NAMES, ON_GPU, run
from experiments.bench.inputs import Setup, Sizes
from graphcaps import GraphcapsError

TINY = Sizes(
    images=3, children=12, parents=4, edges=300, node_edges=(200, 400), batch=4,
    image_shape=(1, 17, 17), copied=2**16, square=16, seconds=0.01, rounds=(2, 3), hub=20, dataset="digits", epochs=1,
)  # fmt: skip
pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.mark.parametrize("preset", training.PRESETS)
def test_a_step_with_another_loss_is_named_and_not_timed(preset):
    ways = training.ways(preset, Setup("cpu", TINY, {}))
    batch = torch.rand(4, *TINY.image_shape), torch.arange(4)
    same, readable = {training.OURS_FLOAT32: ways[training.OURS_FLOAT32]}, ways[training.READABLE]
    training.check(same | {training.READABLE: readable}, *batch)
    wrong = readable._replace(loss=lambda *batch: 1.5 * readable.loss(*batch))
    with pytest.raises(GraphcapsError, match="readable PyTorch: expected the loss and gradients of .* It is not timed"):
        training.check(same | {training.READABLE: wrong}, *batch)


@pytest.mark.long
def test_every_benchmark_makes_the_tables_of_the_docs(monkeypatch, tmp_path):
    for module in (memory, nodes):
        monkeypatch.setattr(module, "in_process", lambda call, *rest, device: (call(*rest, device), ""))
        monkeypatch.setattr(module, "peak", lambda call, device: (call(), 1000)[1], raising=False)
    monkeypatch.setattr(torch, "compile", lambda function, **options: function)
    monkeypatch.setattr("experiments.bench.machine._mallopt", lambda *settings: False)
    for names, sizes in ((NAMES, TINY), (ON_GPU, dataclasses.replace(TINY, on_gpu=True))):
        monkeypatch.setattr(training, "PRESETS", ("compact",))  # more take a minute, mostly in whole trainings
        result = run(names, "cpu", tmp_path / "x.json", sizes, say=lambda line: None)
        assert json.loads((tmp_path / "x.json").read_text()) == json.loads(json.dumps(result))
        text = markdown.bench_tables(result)
        assert "failed" not in result and "WRONG" not in text
        assert [name for name in names if f"Benchmark `{name}`" not in text] == []
