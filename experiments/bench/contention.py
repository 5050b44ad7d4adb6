"""Benchmark ``contention``: `graphcaps train` alone, and beside programs that keep every core busy.

Each training is a process of its own, as a user starts it, so that its choice of threads is in what is measured; the
speed is that of its last epoch. Beside it stand the threads that torch would have taken: one per core, and each spins
while it waits.
"""

from __future__ import annotations

import contextlib
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import joblib

from graphcaps import GraphcapsError
from graphcaps.cli.threads import HUGE_PAGES, NUMBER, WAITING
from graphcaps.training.run_folder import find_runs

from .inputs import Setup
from .tables import Row, Table

NAME = "training beside busy programs"
ALONE, BESIDE, OF_TORCH = "alone", "beside busy programs", ", torch's own threads"
BATCH, EPOCHS, ROUNDS = 64, 2, 6
# A loop per core. It ends where the benchmark was killed.
LOOP = "import os\nwhile os.getppid() == {parent}:\n    sum(range(100_000))"
SPIN = {"GOMP_SPINCOUNT": "300000", "KMP_BLOCKTIME": "200"}  # the defaults of GNU's, Intel's and LLVM's OpenMP


def contention(setup: Setup) -> Iterator[Table]:
    """Trainings alone and beside busy programs, in turn."""
    chosen = {name: value for name, value in os.environ.items() if name not in (*WAITING, HUGE_PAGES, NUMBER)}
    of_torch = {NUMBER: str(joblib.cpu_count(only_physical_cores=True)), **SPIN, **chosen}
    rows = [
        Row(ALONE, "as graphcaps train is"),
        Row(ALONE + OF_TORCH, "a thread per core, spinning"),
        Row(BESIDE, "the same beside a busy loop per core"),
        Row(BESIDE + OF_TORCH, "a thread per core, spinning, beside a busy loop per core"),
    ]
    samples: dict[str, list[float]] = {row.name: [] for row in rows}
    for k in range(ROUNDS):
        # In another order each round: what comes right after the loops have ended is a little slower.
        for name in random.Random(k).sample(list(samples), len(samples)):
            with loops(joblib.cpu_count() if name.startswith(BESIDE) else 0):
                speed = training_speed(setup.device, of_torch if name.endswith(OF_TORCH) else chosen)
            samples[name].append(BATCH / speed)
    about = f"graphcaps train --dataset digits --model compact, B {BATCH}, the last of {EPOCHS} epochs"
    table = Table(NAME, about, "ms a step", rows, ALONE).fill(samples)
    for row in rows:
        row.numbers["images_per_second"] = 1e3 * BATCH / row.numbers["median"]
    yield table


@contextlib.contextmanager
def loops(count: int) -> Iterator[None]:
    """Keep so many cores busy while the block runs."""
    command = [sys.executable, "-c", LOOP.format(parent=os.getpid())]
    running = [subprocess.Popen(command) for _ in range(count)]
    try:
        yield
    finally:
        for process in running:
            process.kill()
            process.wait()


def training_speed(device: str, environment: dict[str, str]) -> float:
    """Images per second of the last epoch of a training in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "graphcaps", "train", "--dataset", "digits", "--model", "compact"]
        command += ["--device", device, "--batch-size", str(BATCH), "--epochs", str(EPOCHS), "--out", folder]
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        if done.returncode:
            line = (done.stderr.splitlines() or ["nothing"])[-1]
            raise GraphcapsError(f"graphcaps train: expected it to end well, got {done.returncode}: {line}")
        (run,) = find_runs(Path(folder))
        return run.metrics()[-1]["images_per_second"]
