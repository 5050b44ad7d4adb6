"""Hostile command lines and outputs: one line of answer, no traceback, and ``graphcaps runs`` goes on listing runs."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import graphcaps
from graphcaps.cli import main

TRAIN = "train --dataset digits --epochs 1 --batch-size 40 --device cpu --out runs"
NINES = "9" * 400
REFUSED = [
    (f"{TRAIN} --epochs {NINES}", 2, "epochs: expected an integer from 1"),
    (f"{TRAIN} --name a\udcffb", 2, "name: expected a path in UTF-8 without line breaks"),
    (f"{TRAIN} --name ..", 2, "name: expected a folder name without slashes"),
    (f"{TRAIN} --name {'x' * 300}", 1, "out: expected a folder to write to, got runs: File name too long"),
    (f"{TRAIN} --out file", 1, "out: expected a folder to write to, got file: Not a directory"),
    (f"{TRAIN} --name taken", 1, "name: expected a new run folder, runs/taken exists. Choose another --name"),
]


@pytest.fixture(autouse=True)
def folders(here):
    Path("file").touch()
    Path("runs/taken/deeper").mkdir(parents=True)


@pytest.mark.parametrize(("line", "code", "answer"), REFUSED, ids=[ascii(line[-40:]) for line, _, _ in REFUSED])
def test_a_hostile_command_line_is_answered_in_one_line_and_leaves_nothing(capsys, line, code, answer):
    assert main(line.split(" ")) == code
    out, err = capsys.readouterr()
    assert out == "" and err.startswith(f"graphcaps: {answer}") and err.count("\n") == 1
    assert [path.name for path in Path("runs").iterdir()] == ["taken"]
    assert main(["runs", "--out", "runs"]) == 0


PATHS = {**os.environ, "PYTHONPATH": str(Path(graphcaps.__file__).parents[1]), "OMP_NUM_THREADS": "1"}
RUNS, FULL = "runs --out runs", "/dev/full"
# The command, its environment variables, its output file, the exit status and the error's text.
SURROUNDINGS = [
    (RUNS, {}, FULL, 1, "graphcaps: output: No space left on device\n"),
    ("--help", {}, FULL, 1, "graphcaps: output: No space left on device\n"),
    ("--help", {"PYTHONIOENCODING": "cp437", "COLUMNS": "2"}, None, 0, ""),
    ("train --help", {"PYTHONIOENCODING": "ascii"}, None, 0, ""),
    (f"{TRAIN} --out /dev/null/x", {}, None, 1, "graphcaps: out: expected a folder to write to"),
    ("train --epochs 0", {}, None, 2, "graphcaps: epochs: expected an integer from 1"),
]  # fmt: skip
WITHOUT_TORCH = """
import sys; from graphcaps.cli import main; code = main()
assert not {"torch", "dgl", "matplotlib", "sklearn"} & set(sys.modules); exit(code)"""


@pytest.mark.parametrize(("line", "variables", "output", "code", "answer"), SURROUNDINGS)
def test_hostile_surroundings_are_answered_in_one_line_before_torch_is_loaded(line, variables, output, code, answer):
    with open(output or os.devnull, "w") as stdout:
        done = subprocess.run(
            [sys.executable, "-c", WITHOUT_TORCH, *line.split()], env=PATHS | variables, stdout=stdout,
            stderr=subprocess.PIPE, text=True, timeout=60,
        )  # fmt: skip
    assert done.returncode == code and done.stderr.startswith(answer) and done.stderr.count("\n") == bool(answer)


@pytest.mark.parametrize("encoding", ["cp437", "ascii"])
def test_a_name_that_an_encoding_does_not_have_is_printed_all_the_same(encoding):
    shutil.copytree("runs/taken", "runs/袖")
    Path("runs/袖/config.json").write_text(graphcaps.TrainConfig().to_json())
    command = [sys.executable, "-m", "graphcaps", *RUNS.split()]
    done = subprocess.run(command, env=PATHS | {"PYTHONIOENCODING": encoding}, capture_output=True, text=True)
    assert done.returncode == 0 and r"runs/\u8896" in done.stdout and done.stderr == ""


# A signal comes when a module is imported, or as the program calls a function.
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
LATER = [(15, 200), (2, 1600)]


@pytest.mark.parametrize(
    ("number", "count"), [(2, 0), (15, 40), *(pytest.param(*n, marks=pytest.mark.long) for n in LATER)]
)
def test_a_signal_at_any_import_is_one_line(number, count):
    """The signal comes at an early, a middle or a late import of a training."""
    command = [sys.executable, "-c", SIGNALLED, str(number), str(count), *TRAIN.split(), "--name", "x"]
    done = subprocess.run(command, env=PATHS, capture_output=True, text=True)
    assert done.returncode == 128 + number and done.stderr.startswith("graphcaps: stopped")
    assert done.stderr.count("\n") == 1
