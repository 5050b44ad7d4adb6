"""Settings are chosen on validation data."""

import pytest

from experiments.run import Place
from experiments.task import Task


@pytest.fixture
def place(tmp_path) -> Place:
    return Place(tmp_path, tmp_path / "cache", processes=1)


def scored(place: Place, network: str, settings: dict, seed: int, quick: bool, data: str) -> dict:
    """A training with the validation accuracy of its settings."""
    about = {"val_accuracy": settings["score"] / (1 + (network == "b")), "val_loss": 1.0, "test": float(seed)}
    return about | {"parameters": 1, "epoch": 1, "seconds": 1.0}


def test_each_networks_best_settings_are_trained_from_other_seeds(place):
    settings = {"a": [{"score": 0.2}, {"score": 0.5}], "b": [{"score": 0.9}, {"score": 0.3}]}
    task = Task("scores", scored, lambda data: settings, ({"data": "x"}, {"data": "y"}), trial_seeds=(100, 101))
    rows = task.result(place, None, False, ["x"])["scores"]
    assert [(row["data"], row["name"], row["test"]) for row in rows] == [("x", "a", [0, 1, 2]), ("x", "b", [0, 1, 2])]
    assert [row["settings"] for row in rows] == [[{"score": 0.5}], [{"score": 0.9}]]
    assert len(list(place.cache.glob("*.json"))) == 2 * (4 + 3)
