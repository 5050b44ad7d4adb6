"""Compare the times and results of two checkouts of graphcaps, on one thread.

    python -m experiments.bench.versus OLD_CHECKOUT NEW_CHECKOUT [--rounds N] [--only NAME ...]

Each checkout runs in its own process. The two take turns: old, new, old, new ... Each such pair gives a ratio, the new
checkout's time divided by the old one's. The median, smallest and largest ratio are printed; above 1, the new checkout
is slower. The results of the first calls are compared by their bytes.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

from .versus_worker import CASES

WORKER = Path(__file__).with_name("versus_worker.py")
SAMPLE = 0.3
"""Minimum seconds of a sample. Quicker calls are repeated."""
COMMANDS = {
    "import": ["-c", "import graphcaps"],
    "import-net": ["-c", "import graphcaps; graphcaps.CapsNet"],
    "help": ["-m", "graphcaps", "--help"],
}
# There is one thread. glibc keeps freed memory, so that times exclude page faults of new buffers.
ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "MALLOC_ARENA_MAX": "1",
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TRIM_THRESHOLD_": str(2**40),
}


class Worker:
    """A process that runs the cases on one checkout."""

    def __init__(self, checkout: Path):
        # With -c, Python imports graphcaps from the current folder, even if another one is installed.
        code = f"import runpy; runpy.run_path({str(WORKER)!r}, run_name='__main__')"
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        self.process = subprocess.Popen(
            [sys.executable, "-c", code], cwd=checkout, env=os.environ | ENVIRONMENT, **pipes
        )

    def ask(self, request: str, argument: str | int):
        """Send one request to the process and return its answer."""
        print(json.dumps([request, argument]), file=self.process.stdin, flush=True)
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"{request} {argument}: the worker ended with {self.process.wait()}; see above")
        return json.loads(line)

    def seconds(self, calls: int) -> float:
        return self.ask("time", calls) / calls


def command_seconds(arguments: list[str], checkout: Path) -> float:
    """Wall-clock seconds of a Python process in the checkout."""
    began = time.perf_counter()
    subprocess.run([sys.executable, *arguments], cwd=checkout, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - began


def compared(old: dict[str, list], new: dict[str, list]) -> str:
    """Names of the results whose bytes differ, and the relative differences of their norms."""
    parts = []
    for name, (digest, norm) in old.items():
        other_digest, other_norm = new[name]
        if digest != other_digest:
            parts.append(f"{name} differ (norms by {abs(other_norm - norm) / max(norm, 1e-300):.0e})")
    return ", ".join(parts) or "unchanged to the bit"


def report(name: str, samples: list[tuple[float, float]], bits: str) -> str:
    """One line: median milliseconds of both checkouts, and the ratios new / old of the pairs."""
    old, new = (statistics.median(column) * 1e3 for column in zip(*samples, strict=True))
    ratios = [b / a for a, b in samples]
    middle = statistics.median(ratios)
    return f"{name:<14}{old:>9.1f}{new:>9.1f}{middle:>8.3f}{min(ratios):>8.3f}{max(ratios):>8.3f}  {bits}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--only", nargs="+", choices=[*CASES, *COMMANDS], default=[*CASES, *COMMANDS], metavar="NAME")
    given = parser.parse_args()
    checkouts = [given.old.resolve(), given.new.resolve()]
    print(f"{'case':<14}{'old, ms':>9}{'new, ms':>9}{'new/old':>8}{'min':>8}{'max':>8}  results")
    workers = [Worker(checkout) for checkout in checkouts]
    for name in given.only:
        if name in COMMANDS:
            pair, bits = [partial(command_seconds, COMMANDS[name], checkout) for checkout in checkouts], ""
            for call in pair:
                call()  # compile bytecode first
        else:
            (seconds, old), (_, new) = (worker.ask("prepare", name) for worker in workers)
            calls, bits = max(1, round(SAMPLE / seconds)), compared(old, new)
            pair = [partial(worker.seconds, calls) for worker in workers]
        print(report(name, [(pair[0](), pair[1]()) for _ in range(given.rounds)], bits), flush=True)
    for worker in workers:
        worker.process.communicate()  # this closes its stdin, and the process ends


if __name__ == "__main__":
    main()
