"""Wrong and hostile command lines: one line of answer, no traceback, and ``graphcaps runs`` still lists the runs."""

import shutil
from pathlib import Path

import pytest

import graphcaps
from graphcaps.cli import main

from .. import small

TRAIN = "train --dataset digits --epochs 1 --batch-size 40 --device cpu --out runs"
REFUSED = [
    (f"{TRAIN} --name a\udcffb", 2, "name: expected a path in UTF-8 without line breaks"),
    (f"{TRAIN} --name ..", 2, "name: expected a folder name without slashes"),
    (f"{TRAIN} --name {'x' * 300}", 1, "out: expected a folder to write to, got runs: File name too long"),
    (f"{TRAIN} --out file", 1, "out: expected a folder to write to, got file: Not a directory"),
    (f"{TRAIN} --name taken", 1, "name: expected a new run folder, runs/taken exists. Choose another --name"),
    (f"{TRAIN} --batch-size 121", 2, "batch_size: expected at most 120, the number of images, got 121"),
    (f"{TRAIN} --data nowhere", 2, "data: expected a folder, got none at nowhere. Make it, to download"),
    # The default value is refused, too, because it may not be the run's.
    ("train --resume x --batch_size=128", 2, "resume: expected no flags but --data, --device, --no-capture and "
     "--epochs (a run keeps its settings), got --batch-size. Drop them"),
    ("train --resume nowhere", 1, "run: expected a run folder with a config.json, got nowhere. List them with: gr"),
    ("predict", 2, "images: expected at least one file or folder, got none. graphcaps predict IMAGE"),
]  # fmt: skip


@pytest.fixture(autouse=True)
def folders(here):
    Path("file").touch()
    Path("runs/taken/deeper").mkdir(parents=True)


@pytest.mark.parametrize(("line", "code", "answer"), REFUSED, ids=[ascii(line[-40:]) for line, _, _ in REFUSED])
def test_a_wrong_command_line_is_answered_in_one_line_and_leaves_nothing(capsys, line, code, answer):
    assert main(line.split(" ")) == code
    out, err = capsys.readouterr()
    assert out == "" and err.startswith(f"graphcaps: {answer}") and err.count("\n") == 1
    assert [path.name for path in Path("runs").iterdir()] == ["taken"]
    assert main(["runs", "--out", "runs"]) == 0


def test_a_wrong_setting_is_answered_before_torch_is_loaded():
    code = "import sys; from graphcaps.cli import main; code = main(); assert 'torch' not in sys.modules; exit(code)"
    done = small.python("-c", code, "train", "--epochs", "9" * 400)
    assert done.returncode == 2 and done.stderr.startswith("graphcaps: epochs: expected an integer from 1")
    assert done.stderr.count("\n") == 1


def test_a_name_that_an_encoding_lacks_is_printed_all_the_same():
    shutil.copytree("runs/taken", "runs/袖")
    Path("runs/袖/config.json").write_text(graphcaps.TrainConfig().to_json())
    done = small.python("-m", "graphcaps", "runs", "--out", "runs", PYTHONIOENCODING="ascii")
    assert done.returncode == 0 and r"runs/\u8896" in done.stdout and done.stderr == ""


# A signal comes as the program starts an import: the first, or one of its middle.
SIGNALLED = """
import signal, sys
number, count, seen = int(sys.argv.pop(1)), int(sys.argv.pop(1)), iter(range(10**9))
def hook(event, arguments):
    if event == "import" and next(seen) == count:
        signal.raise_signal(number)
import graphcaps.cli
sys.addaudithook(hook)
sys.exit(graphcaps.cli.main())
"""


@pytest.mark.parametrize(("number", "count"), [(2, 0), (15, 40)])
def test_a_signal_at_an_import_is_one_line(number, count):
    done = small.python("-c", SIGNALLED, str(number), str(count), *TRAIN.split(), "--name", "x")
    assert done.returncode == 128 + number and done.stderr.startswith("graphcaps: stopped")
    assert done.stderr.count("\n") == 1
