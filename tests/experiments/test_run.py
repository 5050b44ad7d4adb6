"""Trials run once and aren't lost, and settings are chosen on validation data."""

from pathlib import Path

import pytest

from experiments import run
from experiments.run import Place
from experiments.task import Task
from graphcaps.errors import GraphcapsError


def squared(place: Place, number: int) -> dict:
    """A trial that records its call in a file."""
    with (place.data / "calls").open("a") as file:
        file.write(f"{number}\n")
    if number < 0:
        raise GraphcapsError(f"number {number}")
    return {"square": number**2}


@pytest.fixture
def place(tmp_path) -> Place:
    return Place(tmp_path, tmp_path / "cache", processes=1)


@pytest.mark.long
def test_a_finished_trial_is_not_repeated_and_a_failed_one_leaves_the_others_alone(place):
    def results(*numbers: int) -> list[int]:
        trials = [{"number": number} for number in numbers]
        return [result["square"] for result in run.run(squared, trials, place, "squares")]

    assert results(1, 2) == [1, 4] and results(3, 2, 1) == [9, 4, 1]
    with pytest.raises(GraphcapsError, match="squares, {'number': -1}: number -1"):
        results(4, -1)
    Path(place.cache / f"{run.key(squared, {'number': 3})}.json").write_text('{"result')  # a damaged file
    assert results(3, 4) == [9, 16]
    assert sorted(map(int, (place.data / "calls").read_text().split())) == [-1, 1, 2, 3, 3, 4]


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
