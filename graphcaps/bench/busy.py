"""The work ``busy``: `graphcaps train` alone, and beside programs that keep every core busy, in images/s.

Each training is a process of its own, as a user starts it, so that its choice of threads is in what is measured; the
speed is that of its last epoch. Beside it stand the threads that torch would have taken: one per core, and each spins
while it waits.
"""

from __future__ import annotations

import contextlib
import os
import random
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from ..errors import GraphcapsError
from ..progress import bar
from ..threads import NUMBER, SPINNING, Clock, affinity, physical_cores, users_environment
from ..training.run_folder import find_runs
from .clock import Timing, timing_of
from .tables import Row, Table, with_ratios
from .works import Setup

NAME = "training beside busy programs"
ALONE, BESIDE, TORCHS = "alone", "beside busy programs", ", torch's own threads"
BATCH, EPOCHS, ROUNDS = 64, 2, 6
# A loop per core. It ends where the benchmark was killed.
LOOP = "import os\nwhile os.getppid() == {parent}:\n    sum(range(100_000))"
WAITS = {SPINNING: "300000", "KMP_BLOCKTIME": "200"}  # what GNU's, Intel's and LLVM's OpenMP do where nothing is set


def busy(setup: Setup) -> Iterator[Table]:
    """Trainings alone and beside busy programs, in turn."""
    own = users_environment()
    torchs = {NUMBER: str(physical_cores()), **WAITS, **own}
    rows = [
        Row(ALONE, "as graphcaps train is"),
        Row(ALONE + TORCHS, "a thread per core, spinning"),
        Row(BESIDE, "the same beside a busy loop per core"),
        Row(BESIDE + TORCHS, "a thread per core, spinning, beside a busy loop per core"),
    ]
    seconds: dict[str, list[float]] = {row.name: [] for row in rows}
    others, count = [], ROUNDS * len(rows)
    # In another order each round: what comes right after the loops have ended is a little slower.
    order = [row for k in range(ROUNDS) for row in random.Random(k).sample(rows, len(rows))]
    with bar(NAME) as show:
        for k, row in enumerate(order):
            with loops(len(affinity()) if row.name.startswith(BESIDE) else 0):
                before = Clock.now()
                speed = training(setup.device, torchs if row.name.endswith(TORCHS) else own)
                if row.name.startswith(ALONE):
                    others.append(Clock.now().others(before))
            seconds[row.name].append(BATCH / speed)
            show((k + 1) / count)
    for row in rows:
        timing: Timing = timing_of(seconds[row.name])
        row.numbers = {key: 1e3 * getattr(timing, key) for key in ("median", "low", "high")}
        row.numbers["speed"] = BATCH / timing.median
    about = f"graphcaps train --dataset digits --model compact, B {BATCH}, the last of {EPOCHS} epochs, ms a step"
    if known := [other for other in others if other is not None]:
        kept = f"{statistics.median(known):.1f} of {len(affinity())} cores busy"
        about += f"; in the rows alone, other programs kept {kept}"
    yield with_ratios(Table(NAME, about, "speed", "ms", rows, ALONE, ROUNDS))


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


def training(device: str, environment: dict[str, str]) -> float:
    """Images per second of the last epoch of a training in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "graphcaps", "train", "--dataset", "digits", "--model", "compact"]
        command += ["--device", device, "--batch-size", str(BATCH), "--epochs", str(EPOCHS), "--out", folder]
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        if done.returncode:
            said = (done.stderr.splitlines() or ["nothing"])[-1]
            raise GraphcapsError(f"graphcaps train: expected it to end well, got {done.returncode}: {said}")
        (run,) = find_runs(Path(folder))
        return run.metrics()[-1]["images_per_second"]
