"""Damage to each file of a run: commands answer in words, and a resumed training ends with the same weights."""

import json
import pickle
import shutil
from pathlib import Path

import pytest
import torch

from graphcaps import GraphcapsError, TrainConfig, train
from graphcaps.cli import main
from graphcaps.images.training import checkpoint
from graphcaps.images.training.run_folder import Run

from .. import small
from ..test_checkpoint import Hostile

pytestmark = pytest.mark.usefixtures("here")

DAMAGE = {
    "one bit": lambda data: data[: len(data) // 2] + bytes([data[len(data) // 2] ^ 4]) + data[len(data) // 2 + 1 :],
    "empty": lambda data: b"",
    "half": lambda data: data[: len(data) // 2],
    "zeros": lambda data: bytes(len(data)),
    "nested": lambda data: b"[" * 100_000,
    "pickle": lambda data: pickle.dumps(Hostile()),
    "deleted": None,
}
ALWAYS = ["config.json", "metrics.csv", "trace.npz"]
BEGUN = [*ALWAYS, *(f"checkpoints/{which}.safetensors" for which in ("last", "previous", "best"))]
ENDED = [*ALWAYS, "result.json", "answers.npz", "checkpoints/best.safetensors"]


def answer(capsys, *words: str | Path) -> tuple[int, str]:
    """The exit status and all that was printed."""
    capsys.readouterr()
    code = main([str(word) for word in words])
    printed = capsys.readouterr()
    assert "Traceback" not in printed.err and code in (0, 1), printed.err
    return code, printed.out + printed.err


def cases(files: list[str]) -> list:
    """Two kinds of damage to each file, other kinds for the next file; the second is long."""
    chosen, ways = [], list(DAMAGE)
    for k, file in enumerate(files):
        for n in (0, 3):
            how = ways[(k + n) % len(ways)]
            chosen.append(pytest.param(file, how, marks=[pytest.mark.long] * (n > 0), id=f"{how}-{file}"))
    return chosen


def damaged(run: Path, file: str, how: str) -> None:
    shutil.copytree(run, "run")
    path = Path("run", file)
    path.unlink() if how == "deleted" else path.write_bytes(DAMAGE[how](path.read_bytes()))


@pytest.mark.parametrize(("file", "how"), cases(BEGUN))
def test_a_damaged_run_goes_on_to_the_same_weights_or_says_why_not(runs, capsys, file, how):
    damaged(runs["begun"], file, how)
    code, printed = answer(capsys, "train", "--resume", "run")
    if code == 0:
        assert not [
            name for name in small.differences(small.content(Path("run")), small.content(runs["ended"]))
            if name.startswith(("last.", "metrics"))
        ]  # fmt: skip
    assert code == (file == "config.json") or file.endswith("best.safetensors")  # a later epoch may be the best
    lost = file.endswith("last.safetensors") and how != "deleted"
    assert ("Used instead: run/checkpoints/previous" in printed) == lost
    assert not Path("was run").exists()


def test_a_run_whose_checkpoints_are_gone_says_that_it_starts_again(runs, capsys):
    shutil.copytree(runs["begun"], "run")
    for path in Path("run/checkpoints").glob("*.safetensors"):
        path.unlink()
    code, printed = answer(capsys, "train", "--resume", "run")
    assert code == 0 and "there are no weights in run: training starts from the beginning" in printed


@pytest.mark.parametrize(("file", "how"), cases(ENDED))
def test_a_damaged_run_is_answered_in_words_by_the_other_commands(runs, capsys, file, how):
    damaged(runs["ended"], file, how)
    for words in ("runs --out .", "evaluate run", "explain run", "explore run --no-open"):
        code, printed = answer(capsys, *words.split())
        assert code == 0 or words.partition(" ")[0] != "runs"
        needs_best = words.startswith("evaluate") or words.startswith("explore") and how != "deleted"
        assert code == 1 or not (file.endswith("best.safetensors") and needs_best)
    assert not Path("was run").exists()


@pytest.mark.parametrize(
    "text", ['{"test_accuracy": "high"}', '{"test_accuracy": 7.0}', '{"test_accuracy": NaN}', "[" * 100_000, "[]"]
)
def test_a_result_that_is_none_is_said_and_hides_no_run(runs, capsys, caplog, text):
    shutil.copytree(runs["ended"], "run")
    Path("run/result.json").write_text(text)
    code, printed = answer(capsys, "runs", "--out", ".")
    assert code == 0 and "result.json: expected the result of a run as JSON" in caplog.text and "700" not in printed


@pytest.mark.parametrize(("key", "value"), [("epochs", 1), ("batch_size", 20), ("model", "cnn"), ("dataset", "mnist")])
def test_settings_that_were_changed_since_are_an_error_that_names_them(runs, capsys, key, value):
    for name, command in (("begun", "train --resume"), ("ended", "evaluate")):
        path = Path(shutil.copytree(runs[name], name), "config.json")
        stored = json.loads(path.read_text())
        before, stored["settings"][key] = stored["settings"][key], value
        path.write_text(json.dumps(stored))
        wanted = f"graphcaps: {path}: {key}: expected {before!r}, as in its checkpoint, got {value!r}. Restore it, or"
        code, printed = answer(capsys, *command.split(), name)
        assert code == 1 and printed.startswith(wanted)
        stored["settings"] |= {key: before, "name": "other", "data": "there", "tensorboard": False}
        path.write_text(json.dumps(stored))
        Run.open(name).newest_checkpoint()


def test_both_checkpoints_damaged_are_an_error_that_names_both(runs):
    damaged(runs["begun"], "checkpoints/last.safetensors", "half")
    Path("run/checkpoints/previous.safetensors").write_bytes(b"")
    with pytest.raises(GraphcapsError, match=r"last\.safetensors.*previous\.safetensors.*No other is left"):
        train(TrainConfig(), resume="run", progress=False)


@pytest.mark.parametrize("name", ["state", "optimizer.0.exp_avg", "optimizer.x.exp_avg", "generator.cpu"])
def test_a_strangers_state_of_a_training_is_refused(runs, capsys, name):
    path = Run.open(shutil.copytree(runs["begun"], "run")).checkpoint("last")
    tensors, head = checkpoint.read(path)
    if name == "state":
        head["state"]["epoch"] = "1"
    else:
        tensors[name] = torch.full((1,), torch.nan)
    checkpoint.write(path, tensors, head)
    code, printed = answer(capsys, "train", "--resume", "run")
    assert code == 1 and "checkpoint: expected the state of a training in " in printed, printed


def test_a_run_of_before_there_were_settings_and_two_checkpoints_goes_on(runs):
    shutil.copytree(runs["begun"], "run")
    run = Run.open("run")
    run.checkpoint("previous").unlink()
    for which in ("last", "best"):
        tensors, head = checkpoint.read(run.checkpoint(which))
        del head["settings"]
        checkpoint.write(run.checkpoint(which), tensors, head)
    train(TrainConfig(), resume="run", progress=False)
    assert small.differences(small.content(Path("run")), small.content(runs["ended"])) == []
