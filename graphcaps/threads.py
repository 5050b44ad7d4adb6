"""How many threads compute, and how they wait for each other: what suits the cores that this process may use.

OpenMP's threads spin while they wait. Where another program has a core, all of them then wait, busily, for the one that
has none: a training step takes several times as long as on one thread. The command line calls `before_torch` first of
all, since OpenMP reads its settings when torch loads it, and `leave_busy_cores` before it trains.
"""

from __future__ import annotations

import functools
import os
import sys
import time
from pathlib import Path
from typing import NamedTuple

SPINNING = "GOMP_SPINCOUNT"
# Threads spin shortly, so that on an idle machine they needn't be woken for the next operation, and then sleep.
# GNU's: 5000 turns, some 50 microseconds where its default is 3 ms; Intel's and LLVM's: 1 ms where theirs is 200.
WAITING = {"OMP_WAIT_POLICY": "PASSIVE", SPINNING: "5000", "KMP_BLOCKTIME": "1"}
NUMBER = "OMP_NUM_THREADS"
# torch then asks Linux for pages of 2 MB for its large tensors: fewer page faults, 5 % less time in a training.
HUGE_PAGES = "THP_MEM_ALLOC_ENABLE"
SHORTEST = 0.5  # seconds: other programs' load is not judged from less


def affinity() -> set[int]:
    """The numbers of the processors that this process may run on."""
    return os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set(range(os.cpu_count() or 1))


def cores(root: Path = Path("/")) -> int:
    """How many cores this process may use: of its affinity, hyperthreads counted once, and within its cgroups' limits.

    Args:
        root: where /proc and /sys are.
    """
    quota = _quota(root)
    return max(1, min(physical_cores(root), round(quota) if quota else sys.maxsize))


def physical_cores(root: Path = Path("/")) -> int:
    """How many cores the affinity of this process has, hyperthreads counted once."""
    topology = root / "sys/devices/system/cpu"
    found = {_read(topology / f"cpu{k}/topology/thread_siblings_list") or str(k) for k in affinity()}
    return len(found)


def _quota(root: Path) -> float | None:
    """The fewest cores' worth of time that a cgroup of this process, or one above it, allows; None: no limit."""
    limits, mount = [], root / "sys/fs/cgroup"
    own = _read(root / "proc/self/cgroup").removeprefix("0::/")  # of version 2
    # In a container the path can be the host's: what is mounted is then the container's own.
    for group in (mount / own, *(mount / own).parents):
        quota, _, period = _read(group / "cpu.max").partition(" ")
        if quota.isdigit() and period.isdigit():  # else "max", or no file
            limits.append(int(quota) / int(period))
    return min(limits, default=None)


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8").strip()
    except OSError:
        return ""


class Clock(NamedTuple):
    """Seconds: on the wall, of computing by this process and its ended children, and of computing by all processes."""

    wall: float
    own: float
    all: float | None

    @classmethod
    def now(cls, root: Path = Path("/")) -> Clock:
        """As of this moment, on the processors that this process may use; ``all`` is None where that isn't known."""
        names, spent = {f"cpu{k}" for k in affinity()}, None
        for line in _read(root / "proc/stat").splitlines():
            name, *ticks = line.split()
            if name in names:  # user nice system idle iowait irq softirq steal
                spent = (spent or 0) + sum(map(int, ticks[:3])) + sum(map(int, ticks[5:8]))
        return cls(time.perf_counter(), sum(os.times()[:4]), spent and spent / os.sysconf("SC_CLK_TCK"))

    def others(self, before: Clock) -> float | None:
        """How many cores other programs kept busy since ``before``; None where that isn't known, or since too short."""
        if self.all is None or before.all is None or self.wall - before.wall < SHORTEST:
            return None
        return max(0.0, (self.all - before.all) - (self.own - before.own)) / (self.wall - before.wall)


class Start(NamedTuple):
    """When the command line started, and which variables it has set."""

    clock: Clock
    variables: tuple[str, ...]


@functools.cache
def before_torch() -> Start:
    """Set how threads wait, how many there are and how large pages are, the first time; what the user has set stays.

    Without effect where torch is there already.
    """
    wanted: dict[str, str] = {}
    if "torch" not in sys.modules:
        if not os.environ.keys() & WAITING.keys():
            wanted |= WAITING
        if sys.platform == "linux":  # elsewhere torch finds out itself, and pages are as they are
            ours = {NUMBER: str(cores()), HUGE_PAGES: "1"}
            wanted |= {name: value for name, value in ours.items() if name not in os.environ}
    os.environ.update(wanted)
    return Start(Clock.now(), tuple(wanted))


def users_environment() -> dict[str, str]:
    """The environment without what `before_torch` has set: for a process that is to choose anew."""
    return {name: value for name, value in os.environ.items() if name not in before_torch().variables}


def besides(others: float, free: int, present: int) -> int:
    """How many threads, of ``free`` cores: one per core that other programs leave of all that are ``present``.

    At least a quarter of the free ones: other programs share theirs.

    >>> [besides(others, 2, 2) for others in (0.0, 0.4, 0.6, 2.0)]
    [2, 2, 1, 1]
    >>> besides(3.2, 16, 16), besides(16, 16, 16), besides(30, 4, 64)
    (13, 4, 4)
    """
    return min(free, max(1, free // 4, int(present - others + 0.5)))


def leave_busy_cores(most: int | None = None) -> str:
    """Let torch use a thread per core that other programs have left free since the start; say so where these are fewer.

    Without effect where the number isn't the command line's choice: in a user's script, or where the user has set it.

    Args:
        most: of what can be shared out to threads, such as the images of a batch, there are so many.
    """
    import torch

    start, present = before_torch(), physical_cores()
    if NUMBER not in start.variables:
        return ""
    free = min(cores(), most or sys.maxsize)
    others = Clock.now().others(start.clock)
    threads = besides(others or 0.0, free, present)
    if threads != torch.get_num_threads():  # setting what is set already also forbids MKL to take fewer
        torch.set_num_threads(threads)
    if not others or threads >= free:
        return ""
    return f"{threads} thread{'s' * (threads != 1)}: other programs keep {others:.1f} of {present} cores busy"


def take_threads(threads: int) -> None:
    """Let torch use as many threads as a run had before it was stopped, whose sums they are; as many cores permitting.

    Without effect where the number isn't the command line's choice, or 0: not known.
    """
    if threads and NUMBER in before_torch().variables:
        import torch

        torch.set_num_threads(min(threads, cores()))
