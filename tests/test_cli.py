"""The command line: what it prints, how it exits, and that its mistakes are answered at once and in words."""

import contextlib
import io
import json
import os
import re
import shlex
import signal
import sys
from pathlib import Path

import pytest
from PIL import Image

import graphcaps
from graphcaps.cli import main
from graphcaps.cli.commands import COMMANDS
from graphcaps.images.training import loop as training
from graphcaps.images.training.run_folder import Run

from . import small

pytestmark = pytest.mark.usefixtures("here")
SMALL = shlex.split(
    "train --dataset digits --model compact --epochs 2 --batch-size 40 --device cpu --precision float32"
)


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> tuple[Path, str]:
    """A run in a folder whose name needs quotes, and what its training printed."""
    out = tmp_path_factory.mktemp("a b")
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(io.StringIO()) as printed:
        small.use(patch)
        assert main([*SMALL, "--out", str(out)]) == 0
    return out / "digits-compact-1", printed.getvalue()


def call(capsys, *words: str | Path) -> tuple[int, str, str]:
    """Exit status, standard output and standard error of a command."""
    capsys.readouterr()
    code = main([str(word) for word in words])
    printed = capsys.readouterr()
    return code, printed.out, printed.err


def test_training_prints_one_line_per_epoch_and_ends_with_the_next_command(finished):
    run, printed = finished
    lines = printed.splitlines()
    assert lines[0] == "compact on digits: 120 training, 40 validation and 41 test images"
    assert lines[1].startswith("16 child capsules, 10 parents, 160 edges, 4 iterations of dynamic routing on engine '")
    assert lines[2] == f"device cpu, float32, run '{run}'"
    for k in (1, 2):
        numbers = r"loss \d\.\d{4}  train \d+\.\d\d%  validation \d+\.\d\d%( \(best\))?  [\d,]+ img/s"
        assert re.fullmatch(rf"epoch {k}/2  {numbers}", lines[2 + k]), lines[2 + k]
    result = Run.open(run).result()
    low, high = result["test_interval_95"]
    assert lines[5:] == [
        "",
        f"test accuracy {result['test_accuracy']:.2%} (95 % interval {low:.2%} to {high:.2%}), "
        f"{41 - result['test_correct']} of 41 wrong",
        f"{result['test_named']} of 41 answers are longer than 0.50; graphcaps predict names no shorter class",
        f"weights of epoch {result['best_epoch']}, best on validation images ({result['val_accuracy']:.2%})",
        f"{result['parameters']:,} parameters (151,424 without the decoder), {result['seconds']:.0f} s on "
        f"{result['device']}",
        f"next: graphcaps viz '{run}'",
    ]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_shows_a_bar_and_brackets_in_a_path_are_text(capsys, monkeypatch):
    monkeypatch.setattr("sys.stderr", Terminal())
    monkeypatch.setenv("TERM", "xterm")
    status, out, _ = call(capsys, *SMALL, "--out", "[/bold] [red]")
    assert status == 0 and "run '[/bold] [red]/digits-compact-1'\n" in out
    assert re.search(r"epoch 2/2  loss \d\.\d{4}  train \d+\.\d\d%  validation", out)
    bar = r"epoch 2/2, step 3/3  loss \d\.\d{4}  accuracy \d+\.\d\d%  [\d,]+ img/s .* \d\d:\d\d"
    assert re.search(bar, sys.stderr.getvalue())


def test_a_stopped_training_prints_the_command_that_continues_it(capsys, monkeypatch):
    step = training.training_step
    with monkeypatch.context() as patch:
        patch.setattr(training, "training_step", lambda *args: (signal.raise_signal(signal.SIGINT), step(*args))[1])
        status, _, printed = call(capsys, *SMALL, "--epochs", "1", "--out", "my runs", "--name", "x")
    command = "graphcaps train --resume 'my runs/x'"
    assert (status, printed) == (130, f"graphcaps: stopped and saved. Go on with: {command}\n")
    status, printed, _ = call(capsys, *shlex.split(command)[1:])
    assert status == 0 and "going on after epoch 0 and 1 steps\n" in printed


def test_help_lists_the_commands_and_what_each_of_their_flags_does(capsys):
    for words in ([], ["--help"]):
        code, out, _ = call(capsys, *words)
        assert code == 0 and "graphcaps train --dataset digits" in out
        assert all(re.search(rf"\b{name}\b", out) for name in COMMANDS)
    for name, command in COMMANDS.items():
        code, out, _ = call(capsys, name, "--help")
        assert code == 0 and command.__doc__.splitlines()[0] in out
        out = re.sub(r"\{None(\}\||,)|None: (?=[a-z0-9])|\(default: None\)", "", out)
        assert "None" not in out, name


def test_python_m_graphcaps_is_the_command_line_and_debug_shows_the_traceback():
    done = small.python("-m", "graphcaps", "--version")
    assert (done.returncode, done.stdout) == (0, f"graphcaps {graphcaps.__version__}\n")
    done = small.python("-m", "graphcaps", "train", "--epochs", "0", "--debug")
    assert done.returncode == 1 and done.stderr.startswith("Traceback") and done.stdout == ""
    assert done.stderr.endswith("InputError: epochs: expected an integer from 1 to 1000000, got 0\n")


@pytest.mark.parametrize(("word", "unbuffered"), [("runs", "1"), ("--help", "")])
def test_a_closed_pipe_is_no_traceback(word, unbuffered):
    """The reader has gone, as after ``graphcaps runs | head -1``. Buffered output fails at another moment."""
    reading, writing = os.pipe()
    os.close(reading)
    done = small.python("-m", "graphcaps", word, stdout=writing, PYTHONUNBUFFERED=unbuffered)
    os.close(writing)
    assert (done.returncode, done.stderr) == (1, "")


def test_evaluate_prints_a_table_and_draws_the_confusion_matrix(capsys, finished):
    run, result = finished[0], Run.open(finished[0]).result()
    code, out, _ = call(capsys, "evaluate", "--out", run.parent)
    head = f"{Run.open(run)}: compact on digits, weights best on validation images\ntest accuracy "
    assert code == 0 and out.startswith(f"{head}{result['test_accuracy']:.2%} (95 % interval ")
    assert f"({41 - result['test_correct']} of 41 images wrong)" in out
    table = [line.split() for line in out.splitlines()[5:15]]
    assert [row[0] for row in table] == list("0123456789") and sum(int(row[1]) for row in table) == 41
    picture = run / "figures" / "confusion.png"
    assert out.splitlines()[-1] == f"confusion matrix: {picture}" and Image.open(picture).width > 200


def test_explain_prints_the_parts_or_the_usage_of_capsules(capsys, finished):
    code, out, _ = call(capsys, "explain", finished[0], "--image", 3)
    image, choices, credit, strongest, picture = out.splitlines()
    assert code == 0 and re.fullmatch(r"image 3: (longest is \d|no digit is longer than 0.50).*, label 3", image)
    assert re.match(r"\d+ child(ren)? chooses?|No child chooses|All children are undecided", choices)
    assert re.fullmatch(r"\d+ of 160 links, from .* make up 90% of all credit", credit)
    assert re.match(r"the strongest link: child \d+ to \d, ", strongest) and Image.open(picture).width == 1660
    code, out, _ = call(capsys, "explain", finished[0], "--what", "capsules")
    assert code == 0 and re.match(r"41 test images: .*\ncoupling entropy: .*\nthe same, ", out)


def write_digit(path: Path, index: int, light: bool = False) -> None:
    pixels = small.digits().test.pixels[index, 0].numpy()
    Image.fromarray(255 - pixels if light else pixels).resize((60, 60), Image.Resampling.NEAREST).save(path)


def test_predict_prints_one_line_per_image(capsys, finished, tmp_path):
    names = ["a.png", "b c.jpg", "ü.png"]
    for k, name in enumerate(names):
        write_digit(tmp_path / name, k, light=k == 2)
    code, out, _ = call(capsys, "predict", finished[0], *names)
    lines = out.splitlines()
    assert code == 0 and [line.split(": ")[0] for line in lines] == names
    for line in lines:
        classes = re.findall(r"(\d) (0\.\d{3})", line.split(": ")[1])
        lengths = [float(length) for _, length in classes]
        assert len(classes) == 3 and lengths == sorted(lengths, reverse=True) and len({k for k, _ in classes}) == 3
    assert [" (inverted: its background is light)" in line for line in lines] == [False, False, True]


def test_predict_takes_the_newest_run_folders_and_a_list_and_prints_json(capsys, finished, tmp_path, monkeypatch):
    (tmp_path / "sub" / "deeper").mkdir(parents=True)
    for k, name in enumerate(("sub/deeper/b.png", "sub/a.png", "c.png")):
        write_digit(tmp_path / name, k)
    (tmp_path / "sub" / "notes.txt").touch()
    monkeypatch.setattr("sys.stdin", io.StringIO("c.png\n\nnone.png\n"))
    run = Path(finished[0])
    code, out, printed = call(capsys, "predict", "--top", "2", "sub", "--json", "-", "--out", run.parent)
    answers = [json.loads(line) for line in out.splitlines()]
    assert [each["image"] for each in answers] == ["sub/a.png", "sub/deeper/b.png", "c.png", "none.png"]
    assert code == 2 and answers[3]["error"] == "none.png: expected an image file, got nothing there"
    assert ", the newest run\n" in printed and printed.endswith("got 1 of 4 that can't\n")
    first, best = answers[0], answers[0]["classes"][0]
    assert first["answer"] == (best["class"] if best["score"] > first["threshold"] else None)
    assert set(first) == {"image", "answer", "threshold", "doubts", "classes", "inverted"}
    assert len(first["classes"]) == 2 and first["inverted"] is False
