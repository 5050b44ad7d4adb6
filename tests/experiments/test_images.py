"""Plans, and trainings of networks for images that are stopped and continued."""

import dataclasses
import json
import signal

import numpy as np
import pytest

from experiments.__main__ import main
from experiments.plan import plan_names, read_plan
from experiments.run import Place
from experiments.tasks import images
from graphcaps.images.training.run_folder import Run

from .. import small
from ..test_training import stop_at

pytestmark = pytest.mark.long
TINY = """
train: {dataset: digits, epochs: 1, batch_size: 40, precision: float32}
networks:
  dynamic: {model: compact}
  CNN: {model: cnn-small}
seeds: [0, 1]
"""


def test_every_plan_can_be_trained():
    assert all(read_plan(name).cells for name in plan_names())


def test_a_table_is_that_of_the_runs_and_a_stopped_command_goes_on_to_it(tmp_path, monkeypatch, capsys):
    data, place = small.digits(), Place(tmp_path, tmp_path / "cache")
    small.use(monkeypatch, data)
    monkeypatch.setattr(images, "load_images", lambda name, root: data)
    (tmp_path / "tiny.yaml").write_text(TINY)
    results = images.results(read_plan(str(tmp_path / "tiny.yaml")), place)
    runs = [Run.open(path.parent) for path in sorted(place.cache.glob("runs/*/config.json"))]
    for row, model in zip(results["rows"], ("compact", "cnn-small"), strict=True):
        reached = [run.result() for run in runs if run.config.model == model]
        accuracies = [result["test_accuracy"] for result in reached]
        assert row["images"]["test"]["mean"] == pytest.approx(np.mean(accuracies))
        assert row["images"]["test"]["sd"] == pytest.approx(np.std(accuracies, ddof=1))
    dynamic, cnn = results["rows"]
    assert "difference" not in dynamic["images"]["test"] and "difference" in cnn["images"]["test"]
    assert [layer["capsules"] for layer in dynamic["seeds"][0]["capsules"]] == [26]
    assert cnn["seeds"][0]["capsules"] is None

    place = dataclasses.replace(place, cache=tmp_path / "stopped")
    words = [str(tmp_path / "tiny.yaml"), "--data", str(tmp_path), "--cache", str(place.cache)]
    words += ["--to", str(tmp_path / "to")]
    with monkeypatch.context() as patched:
        stop_at(patched, 5, signal.SIGINT)  # in the second training
        assert main(words) == 128 + signal.SIGINT
    assert "The same command goes on" in capsys.readouterr().err and not (tmp_path / "to").exists()
    assert len([*place.cache.glob("*.json")]) == 1
    assert main(words) == 0
    again = json.loads((tmp_path / "to" / "tiny.json").read_text())
    assert [row["images"] for row in again["rows"]] == [row["images"] for row in results["rows"]]
    assert all((tmp_path / "to" / f"tiny.{kind}").stat().st_size > 1000 for kind in ("svg", "pdf"))
    text = (tmp_path / "to" / "tiny.md").read_text()
    assert "| reference |" in text and "over seeds (0, 1). Test images: 41 (test). Settings of all networks: " in text
    monkeypatch.setattr(images, "train", None)
    assert main(words) == 0  # trains nothing
