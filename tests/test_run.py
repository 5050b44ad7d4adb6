"""Run folders: made once, written whole, locked, found again, and refused with a reason where they aren't runs."""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

import graphcaps
from graphcaps import GraphcapsError, TrainConfig, train
from graphcaps.cli.networks import runs_table
from graphcaps.files import write_text
from graphcaps.images.data import to_float
from graphcaps.images.training.run_folder import Run, find_runs

from . import small


def create(out: Path, name: str = "", **settings) -> Run:
    return Run.create(TrainConfig(dataset="digits", out=out, name=name, **settings), made_with={"torch": "9"})


def test_an_existing_folder_is_not_taken(tmp_path):
    create(tmp_path, "x")
    with pytest.raises(GraphcapsError, match="name: expected a new run folder, .*/x exists. Choose another --name, or"):
        create(tmp_path, "x", epochs=3)
    assert Run.open(tmp_path / "x").config.epochs == 10
    write_text(tmp_path / "y" / "mine.txt", "")
    with pytest.raises(GraphcapsError, match="expected a new run folder, .*/y exists. Choose another --name$"):
        create(tmp_path, "y")


def test_an_empty_folder_is_taken_and_what_a_killed_process_was_making_is_no_run(tmp_path, monkeypatch):
    (tmp_path / "x").mkdir()

    def killed(path: Path, _: Path) -> None:
        assert (path / "config.json").exists() and find_runs(tmp_path) == []
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "rename", killed)
    with pytest.raises(KeyboardInterrupt):
        create(tmp_path, "x")
    monkeypatch.undo()
    assert create(tmp_path, "x").path == tmp_path / "x" and len(find_runs(tmp_path)) == 1


def test_default_names_count_up_and_never_collide(tmp_path):
    with ThreadPoolExecutor(8) as pool:
        runs = list(pool.map(lambda _: create(tmp_path), range(40)))
    assert {run.path.name for run in runs} == {f"digits-compact-{k}" for k in range(1, 41)}
    assert len(find_runs(tmp_path)) == 40


def test_a_lock_keeps_others_out_until_its_block_ends_and_removes_what_killed_writers_left(tmp_path):
    run = create(tmp_path, "x")
    leftovers = [".unfinished-trace-a.npz", "checkpoints/.unfinished-last-b.safetensors"]
    others = ["checkpoints/last.safetensors", "figures/.unfinished-being-drawn-now.gif", "mine.txt", "config.json"]
    for name in leftovers + others:
        write_text(run.path / name, "{}")
    with pytest.raises(ZeroDivisionError), run.lock():
        files = {str(file.relative_to(run.path)) for file in run.path.rglob("*") if file.is_file()}
        assert files == {*others, ".lock", ".graphcaps"}
        with pytest.raises(GraphcapsError, match="run: expected .*/x to be free, but a training is running in it"):
            run.lock()
        raise ZeroDivisionError
    with run.lock():
        pass


def test_runs_are_found_newest_first(tmp_path):
    for k, name in enumerate(("b", "c", "a")):
        run = create(tmp_path, name)
        os.utime(run.path / "config.json", (k, k))
    write_text(tmp_path / "c" / "result.json", "{}")
    (tmp_path / "no run").mkdir()
    assert [run.path.name for run in find_runs(tmp_path)] == ["c", "a", "b"]


def test_a_broken_run_is_named_and_hides_no_other(tmp_path, caplog):
    sound = create(tmp_path, "sound")
    sound.write_table("metrics.csv", [{"epoch": 1, "val_accuracy": 0.5, "seconds": 7.0}])
    for name, text in {"truncated": "{", "of another tool": '{"hidden_size": 768}'}.items():
        write_text(tmp_path / name / "config.json", text)
    assert [run.path.name for run in find_runs(tmp_path)] == ["sound"]
    assert sorted(record.getMessage().split(": expected")[0] for record in caplog.records) == [
        f"left out: {tmp_path / 'of another tool' / 'config.json'}",
        f"left out: {tmp_path / 'truncated' / 'config.json'}",
    ]
    broken = create(tmp_path, "broken")
    for text in ("epoch,val_accuracy\n1,high\n", "epoch\n1,2\n"):
        write_text(broken.path / "metrics.csv", text)
        caplog.clear()
        lines = runs_table([broken, sound]).splitlines()
        assert "metrics.csv: expected" in caplog.text
        assert lines[1].split()[3:] == ["0/10", "-", "-", "-"] and lines[2].split()[3:] == ["1/10", "50.00%", "-", "7"]


@pytest.mark.fact(10)
def test_a_loaded_network_gives_the_test_accuracy_of_its_training(tmp_path, monkeypatch):
    small.use(monkeypatch)
    result = train(small.config(tmp_path), progress=False)
    run = result.pop("run")
    model = graphcaps.load(run)
    assert not model.training and model.class_names == tuple("0123456789")
    test = small.digits().test
    with torch.no_grad():
        predicted = torch.stack([model(to_float(image[None])).lengths[0].argmax() for image in test.pixels])
    assert int((predicted == test.labels).sum()) == result["test_correct"]
    assert Run.open(run).result() == result
