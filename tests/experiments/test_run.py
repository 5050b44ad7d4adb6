"""Settings are chosen on validation data, and no result is older than the code or the data that it is about."""

import pytest

from experiments.run import Place, key, run
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


def counted(place: Place, settings: dict, data: str) -> dict:
    (place.cache / "calls").open("a").write("x")
    return {}


def test_a_trial_runs_again_when_the_users_module_or_one_that_it_imports_or_the_data_change(
    place, tmp_path, monkeypatch, capsys
):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "my_helper.py").write_text("SCALE = 1\n")
    (tmp_path / "mine.py").write_text("import torch\nfrom my_helper import SCALE\n")
    trial = {"settings": {"routing": "mine:Mine"}, "data": "a"}
    first = key(counted, trial)
    for file, text in (("my_helper.py", "SCALE = 2\n"), ("mine.py", "from my_helper import SCALE\nx = 1\n")):
        run(counted, [trial], place, "test")
        assert "reused" not in capsys.readouterr().err
        run(counted, [trial], place, "test")
        assert "1 of 1 results are reused, of 20" in capsys.readouterr().err
        (tmp_path / file).write_text(text)
    run(counted, [trial, {**trial, "data": "b"}], place, "test")
    assert (place.cache / "calls").read_text() == "xxxx"
    monkeypatch.setattr("experiments.run.__version__", "0.2")
    assert key(counted, trial) != first
