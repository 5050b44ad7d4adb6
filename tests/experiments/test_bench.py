"""Benchmarks: all of them make the tables of the docs."""

import dataclasses
import json

import pytest
import torch

from experiments.bench import markdown, memory, nodes, training
from experiments.bench.__main__ import NAMES, ON_GPU, run
from experiments.bench.inputs import Sizes

TINY = Sizes(
    images=3, children=12, parents=4, edges=300, node_edges=(200, 400), batch=4,
    image_shape=(1, 17, 17), copied=2**16, square=16, seconds=0.01, rounds=(2, 3), hub=20, dataset="digits", epochs=1,
)  # fmt: skip
pytestmark = pytest.mark.usefixtures("one_thread")


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
