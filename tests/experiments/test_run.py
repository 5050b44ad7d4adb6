"""Trials run once and aren't lost; settings and epochs are chosen on validation data."""

from pathlib import Path

import pytest
import torch
from torch import nn

from experiments import run
from experiments.run import Place
from graphcaps.errors import GraphcapsError


def squared(place: Place, number: int) -> dict:
    """A trial that records its call in a file."""
    with (place.data / "ran").open("a") as file:
        file.write(f"{number}\n")
    if number < 0:
        raise GraphcapsError(f"number {number}")
    return {"square": number**2}


@pytest.fixture
def place(tmp_path) -> Place:
    return Place(tmp_path, tmp_path / "cache", processes=1)


def ran(place: Place) -> list[int]:
    return [int(line) for line in (place.data / "ran").read_text().split()]


def trials(*numbers: int) -> list[dict]:
    return [{"number": number} for number in numbers]


def test_what_has_ended_is_not_repeated_and_results_come_in_order(place):
    run.run(squared, trials(1, 2), place, "squares")
    assert run.run(squared, trials(3, 2, 1), place, "squares") == [{"square": 9}, {"square": 4}, {"square": 1}]
    assert sorted(ran(place)) == [1, 2, 3]


def test_a_trial_that_fails_leaves_the_others_alone_and_a_damaged_result_is_made_again(place):
    with pytest.raises(GraphcapsError, match="squares, {'number': -1}: number -1"):
        run.run(squared, trials(1, -1, 3), place, "squares")
    assert sorted(ran(place)) == [-1, 1, 3] and run.cached(squared, {"number": 3}, place) == {"square": 9}
    Path(place.cache / f"{run.key(squared, {'number': 3})}.json").write_text('{"result')
    assert run.run(squared, trials(3), place, "squares") == [{"square": 9}] and sorted(ran(place)) == [-1, 1, 3, 3]


def scored(place: Place, network: str, settings: dict, seed: int) -> dict:
    """A training with the validation accuracy of its settings."""
    return {"val_accuracy": settings["score"] / (1 + (network == "b")), "val_loss": 1.0, "seed": seed, **settings}


def test_each_networks_best_settings_are_trained_from_other_seeds(place):
    settings = {"a": [{"score": 0.2}, {"score": 0.5}], "b": [{"score": 0.9}, {"score": 0.3}]}
    found = run.choose_and_test(scored, settings, (100, 101), 3, place, {})
    assert {network: chosen["score"] for network, (chosen, _) in found.items()} == {"a": 0.5, "b": 0.9}
    assert [[fit["seed"] for fit in fits] for _, fits in found.values()] == [[0, 1, 2]] * 2
    assert {fit["score"] for fit in found["a"][1]} == {0.5} and len(list(place.cache.glob("*.json"))) == 2 * (4 + 3)


def test_the_epoch_of_the_lowest_loss_is_taken_and_patience_ends():
    model, values, epochs = nn.Linear(1, 2), iter([3.0, 1.0, 2.0, 2.0]), []

    def losses():
        epochs.append(len(epochs) + 1)
        nn.init.constant_(model.weight, epochs[-1])
        return []

    def fit(loss):
        answers = {"val": torch.tensor([[1.0, 0.0], [1.0, 0.0]]), "test": torch.tensor([[1.0, 0.0], [0.0, 1.0]])}
        settings = {"lr": 0.1, "epochs": 9, "patience": 2, "loss": loss}
        return run.fit(model, losses, lambda part: (answers[part], torch.tensor([0, 1])), "val", "test", **settings)

    found = fit(lambda scores, labels: torch.tensor(next(values)))
    assert epochs == [1, 2, 3, 4] and model.weight.flatten().tolist() == [2, 2]
    assert (found["epoch"], found["val_loss"], found["val_accuracy"], found["test"]) == (2, 1.0, 0.5, 1.0)
    with pytest.raises(GraphcapsError, match="epoch 1: expected a finite validation loss, got nan"):
        fit(lambda scores, labels: torch.tensor(float("nan")))
