"""Runs of pytest on a copy of the project, each a fork of one process that has imported the libraries already.

Importing torch and DGL takes longer than most of these runs, and there are many of them. Elsewhere than on Linux, where
a process with these libraries may not survive a fork, each run is a process of its own.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

LONGEST = 300  # seconds of one run
KERNELS = "kernels"  # what Numba compiles of a copy: wrong code's must not outlive the copy
ALONE = ["-q", "-p", "no:cacheprovider"]
# Says that it is ready. Then reads a line per run, its folder, arguments and file for what is said; answers with a
# line, pytest's exit code.
PROGRAM = """
import json, os, signal, sys
import graphcaps._dgl, matplotlib.figure, networkx, numba, pytest

for name in [name for name in sys.modules if name.partition(".")[0] == "graphcaps"]:
    del sys.modules[name]  # the libraries stay
print("ready", flush=True)
for line in sys.stdin:
    folder, arguments, said = json.loads(line)
    child = os.fork()
    if child == 0:
        signal.alarm(int(sys.argv[1]))
        nothing, file = os.open(os.devnull, os.O_RDONLY), os.open(said, os.O_WRONLY)
        for ours, theirs in ((nothing, 0), (file, 1), (file, 2)):
            os.dup2(ours, theirs)
        os.chdir(folder)
        sys.path[0] = folder
        code = pytest.main(arguments)
        sys.stdout.flush()
        os._exit(code)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


def environment(folder: Path) -> dict[str, str]:
    """Of a run in this folder: its own package and kernels, one thread, and lines so wide that each failure stands in
    one."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    ours = {"PYTHONPATH": str(folder), "NUMBA_CACHE_DIR": str(folder / KERNELS)}
    return kept | ours | {"COLUMNS": "400", "OMP_NUM_THREADS": "1"}


def run_pytest(folder: Path, *arguments: str) -> tuple[int, str]:
    """The exit code and what was said, in a process of its own."""
    command = [sys.executable, "-m", "pytest", *ALONE, *arguments]
    done = subprocess.run(command, cwd=folder, env=environment(folder), capture_output=True, text=True, timeout=LONGEST)
    return done.returncode, done.stdout + done.stderr


class Nursery:
    """``run`` as ``run_pytest`` does, in one folder."""

    def __init__(self, folder: Path):
        self.folder = folder
        command = [sys.executable, "-c", PROGRAM, str(LONGEST)]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": None}
        self.process = None
        if sys.platform == "linux":
            self.process = subprocess.Popen(command, cwd=folder, env=environment(folder), text=True, **pipes)
            # What it imports must not be made wrong meanwhile.
            assert self.process.stdout.readline() == "ready\n", "the process that runs are forked of didn't start"

    def run(self, *arguments: str) -> tuple[int, str]:
        if self.process is None:
            return run_pytest(self.folder, *arguments)
        with tempfile.NamedTemporaryFile("r", encoding="utf-8", errors="replace") as said:
            print(json.dumps([str(self.folder), [*ALONE, *arguments], said.name]), file=self.process.stdin, flush=True)
            answer = self.process.stdout.readline()
            assert answer, "the process that runs are forked of has ended"
            return int(answer), said.read()

    def close(self) -> None:
        if self.process is not None:
            self.process.stdin.close()
            assert self.process.wait(timeout=60) == pytest.ExitCode.OK
