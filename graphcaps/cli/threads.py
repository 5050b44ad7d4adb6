"""The number of threads of a command, and how they wait for each other. Settings made by the user are kept.

By default, OpenMP's threads spin while they wait. If another program occupies a core, one thread is delayed while all
others spin, and a training step takes several times as long as on one thread. OpenMP reads its settings when torch is
loaded.
"""

import os
import sys

# Threads spin briefly, so that they are ready for the next operation on an idle machine, and then sleep.
# GNU's OpenMP: 5000 turns, about 50 microseconds (default: 3 ms). Intel's and LLVM's: 1 ms (default: 200 ms).
WAITING = {"OMP_WAIT_POLICY": "PASSIVE", "GOMP_SPINCOUNT": "5000", "KMP_BLOCKTIME": "1"}
HUGE_PAGES = "THP_MEM_ALLOC_ENABLE"  # torch then stores large tensors in pages of 2 MB: training takes 5 % less time
NUMBER = "OMP_NUM_THREADS"


def set_waiting() -> None:
    """Set how threads wait, and the size of pages. Must run before torch is imported."""
    if not os.environ.keys() & WAITING.keys():
        os.environ.update(WAITING)
    os.environ.setdefault(HUGE_PAGES, "1")


def set_number() -> None:
    """Use one thread for each core that this process may use. Must run before torch is imported."""
    if NUMBER not in os.environ and "torch" not in sys.modules:
        import joblib

        os.environ[NUMBER] = str(joblib.cpu_count(only_physical_cores=True))
