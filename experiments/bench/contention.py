"""Benchmark ``contention``: `graphcaps train` alone, and beside programs that keep every core busy.

Each training is a process of its own, as a user starts it, so that its choice of threads is measured, too; the speed is
that of its last epoch. It is compared with torch's own threads: one per core, which spin while they wait.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pandas as pd

from graphcaps import GraphcapsError

from .inputs import Setup
from .tables import Row, Table

NAME = "training beside busy programs"
ALONE, BESIDE, OF_TORCH = "alone", "beside busy programs", ", torch's own threads"
BATCH, EPOCHS, ROUNDS = 64, 2, 6
# A loop per core. It ends if the benchmark is killed.
LOOP = "import os\nwhile os.getppid() == {parent}:\n    sum(range(100_000))"
# GNU's, Intel's and LLVM's OpenMP spin so long by default.
SPIN = {"OMP_NUM_THREADS": str(os.cpu_count()), "GOMP_SPINCOUNT": "300000", "KMP_BLOCKTIME": "200"}


def contention(setup: Setup) -> Iterator[Table]:
    """Trainings alone and beside busy programs, in turn."""
    samples: dict[str, list[float]] = {work + threads: [] for work in (ALONE, BESIDE) for threads in ("", OF_TORCH)}
    for k in range(ROUNDS):
        # In another order each round: the training right after the loops have ended is a little slower.
        for name in random.Random(k).sample(list(samples), len(samples)):
            busy = os.cpu_count() or 1 if name.startswith(BESIDE) else 0
            loops = [subprocess.Popen([sys.executable, "-c", LOOP.format(parent=os.getpid())]) for _ in range(busy)]
            try:
                samples[name].append(BATCH / training_speed(setup.device, SPIN if name.endswith(OF_TORCH) else {}))
            finally:
                for loop in loops:
                    loop.kill()
                    loop.wait()
    about = f"graphcaps train --dataset digits --model compact, B {BATCH}, the last of {EPOCHS} epochs"
    table = Table(NAME, about, "ms a step", [*map(Row, samples)], ALONE).fill(samples)
    for row in table.rows:
        row.numbers["images_per_second"] = 1e3 * BATCH / row.numbers["median"]
    yield table


def training_speed(device: str, threads: dict[str, str]) -> float:
    """Images per second of the last epoch of a training in a process of its own."""
    inherited = {key: value for key, value in os.environ.items() if not key.startswith(("OMP_", "GOMP_", "KMP_"))}
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "graphcaps", "train", "--dataset", "digits", "--model", "compact"]
        command += ["--device", device, "--batch-size", str(BATCH), "--epochs", str(EPOCHS), "--out", folder]
        done = subprocess.run(command, env=inherited | threads, capture_output=True, text=True)
        if done.returncode:
            raise GraphcapsError(
                f"graphcaps train: expected exit status 0, got {done.returncode}: {done.stderr[-300:]}"
            )
        (metrics,) = Path(folder).glob("*/metrics.csv")
        return pd.read_csv(metrics)["images_per_second"].iloc[-1]
