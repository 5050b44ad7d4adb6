"""Damage to each file of a run: commands answer in words, and a resumed training ends with the same weights."""

import json
import pickle
import shutil
from pathlib import Path

import pytest
import torch

from graphcaps import TrainConfig, train
from graphcaps.cli import main
from graphcaps.images.training import checkpoint, loop
from graphcaps.images.training.run_folder import Run

from .. import small
from ..test_checkpoint import Hostile
from ..test_training import stop_at

pytestmark = pytest.mark.usefixtures("here")

DAMAGE = {
    "one bit": lambda data: data[: len(data) // 2] + bytes([data[len(data) // 2] ^ 4]) + data[len(data) // 2 + 1 :],
    "half": lambda data: data[: len(data) // 2],
    "nested": lambda data: b"[" * 100_000,
    "pickle": lambda data: pickle.dumps(Hostile()),
    "deleted": None,
}
LAST, PREVIOUS, BEST = (f"checkpoints/{which}.safetensors" for which in ("last", "previous", "best"))
BEGUN = [("config.json", "nested"), ("metrics.csv", "half"), ("trace.npz", "pickle"), (LAST, "one bit")]
BEGUN += [(LAST, "deleted"), (BEST, "deleted")]
ENDED = [("config.json", "half"), ("trace.npz", "one bit"), ("answers.npz", "pickle"), (BEST, "one bit")]


@pytest.fixture(scope="session")
def runs(tmp_path_factory) -> dict[str, Path]:
    """A run that was stopped after a step of its second epoch, and the same run after it went on to its end."""
    folder = tmp_path_factory.mktemp("runs")
    with pytest.MonkeyPatch.context() as patch:
        small.use(patch)
        with patch.context() as stopped, pytest.raises(loop.Interrupted):
            stop_at(stopped, 4)
            train(small.config(folder, name="begun"), progress=False)
        shutil.copytree(folder / "begun", folder / "ended")
        train(TrainConfig(), resume=folder / "ended", progress=False)
    return {name: folder / name for name in ("begun", "ended")}


def answer(capsys, *words: str | Path) -> tuple[int, str]:
    """The exit status and all that was printed."""
    capsys.readouterr()
    code = main([str(word) for word in words])
    printed = capsys.readouterr()
    assert "Traceback" not in printed.err and code in (0, 1), printed.err
    return code, printed.out + printed.err


def damaged(run: Path, file: str, kind: str) -> None:
    path = Path(shutil.copytree(run, "run"), file)
    path.unlink() if kind == "deleted" else path.write_bytes(DAMAGE[kind](path.read_bytes()))


@pytest.mark.parametrize(("file", "kind"), BEGUN)
def test_a_damaged_run_goes_on_to_the_same_weights_or_names_the_reason(runs, capsys, file, kind):
    damaged(runs["begun"], file, kind)
    code, printed = answer(capsys, "train", "--resume", "run")
    if code == 0:
        differences = small.differences(small.content(Path("run")), small.content(runs["ended"]))
        assert not [name for name in differences if name.startswith(("last.", "metrics"))]
    assert code == (file == "config.json") or file == BEST  # a later epoch may be the best
    assert ("Used instead: run/checkpoints/previous" in printed) == (file == LAST and kind != "deleted")
    assert not Path("was run").exists()


@pytest.mark.parametrize(("file", "kind"), ENDED)
def test_a_damaged_run_is_answered_in_words_by_the_other_commands(runs, capsys, file, kind):
    damaged(runs["ended"], file, kind)
    for words in ("runs --out .", "evaluate run", "explain run", "explore run --no-open"):
        code, printed = answer(capsys, *words.split())
        assert code == 1 or file != BEST or not words.startswith(("evaluate", "explore"))
        assert code == 0 or not words.startswith("runs")
    assert not Path("was run").exists()


def test_without_checkpoints_a_training_starts_again_and_with_damaged_ones_both_are_named(runs, capsys):
    shutil.copytree(runs["begun"], "run")
    for name in (LAST, PREVIOUS):
        Path("run", name).write_bytes(b"")
    code, printed = answer(capsys, "train", "--resume", "run")
    assert code == 1 and 0 < printed.index("last.safetensors") < printed.index("previous.s") < printed.index("No other")
    for path in Path("run/checkpoints").glob("*.safetensors"):
        path.unlink()
    code, printed = answer(capsys, "train", "--resume", "run")
    assert code == 0 and "there are no weights in run: training starts from the beginning" in printed


def test_a_result_with_a_number_out_of_range_is_named_and_hides_no_run(runs, capsys, caplog):
    Path(shutil.copytree(runs["ended"], "run"), "result.json").write_text('{"test_accuracy": 7.0}')
    code, printed = answer(capsys, "runs", "--out", ".")
    assert code == 0 and "result.json: expected the result of a run as JSON" in caplog.text and "700" not in printed


@pytest.mark.parametrize(("run", "command"), [("begun", "train --resume"), ("ended", "evaluate")])
def test_a_setting_that_was_changed_since_is_an_error_that_names_it(runs, capsys, run, command):
    path = Path(shutil.copytree(runs[run], "run"), "config.json")
    stored = json.loads(path.read_text())
    stored["settings"] |= {"name": "other", "data": "there"}
    path.write_text(json.dumps(stored))
    Run.open("run").newest_checkpoint()  # a run may be moved
    stored["settings"]["batch_size"] = 20
    path.write_text(json.dumps(stored))
    code, printed = answer(capsys, *command.split(), "run")
    wanted = "run/config.json: batch_size: expected 40, as in its checkpoint, got 20. Restore it, or"
    assert code == 1 and printed.startswith(f"graphcaps: {wanted}")


@pytest.mark.parametrize("name", ["state", "optimizer.0.exp_avg", "generator.cpu"])
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
