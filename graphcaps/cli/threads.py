"""How many threads a command computes with, and how they wait for each other; what the user has set stays.

OpenMP's threads spin while they wait. If another program has a core, all of them then wait, busily, for the one that
has none: a training step takes several times as long as on one thread. OpenMP reads its settings when torch loads it.
"""

from __future__ import annotations

import os
import sys

# Threads spin shortly, so that on an idle machine they needn't be woken for the next operation, and then sleep.
# GNU's: 5000 turns, some 50 microseconds where its default is 3 ms; Intel's and LLVM's: 1 ms where theirs is 200.
WAITING = {"OMP_WAIT_POLICY": "PASSIVE", "GOMP_SPINCOUNT": "5000", "KMP_BLOCKTIME": "1"}
# torch then asks Linux for pages of 2 MB for its large tensors: fewer page faults, 5 % less time in a training.
HUGE_PAGES = "THP_MEM_ALLOC_ENABLE"
NUMBER = "OMP_NUM_THREADS"
LOOK = 0.2  # seconds for which the load of other programs is measured


def set_waiting() -> None:
    """Set how threads wait and how large pages are, before torch is imported."""
    if not os.environ.keys() & WAITING.keys():
        os.environ.update(WAITING)
    os.environ.setdefault(HUGE_PAGES, "1")


def set_number(leave_busy: bool = False) -> str:
    """Set one thread per core that this process may use, before torch is imported.

    Args:
        leave_busy: leave the cores to other programs that these keep busy now, but for one.

    Returns:
        A sentence if there are fewer threads than cores, else "".
    """
    if NUMBER in os.environ or "torch" in sys.modules:
        return ""
    import joblib

    cores, busy = joblib.cpu_count(only_physical_cores=True), 0.0
    if leave_busy:
        import psutil

        busy = psutil.cpu_percent(LOOK) / 100 * joblib.cpu_count()
    threads = max(1, cores - round(busy))
    os.environ[NUMBER] = str(threads)
    if threads == cores:
        return ""
    return f"{threads} thread{'s' * (threads != 1)}: other programs keep {busy:.1f} of {cores} cores busy"
