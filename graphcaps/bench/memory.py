"""The work ``memory``: peak memory of one forward+backward above what was allocated before it.

On CUDA torch's allocator is asked. On a CPU each row is measured in a fresh process, from the kernel's high-water mark
of resident memory, which is reset before the call; every large buffer is given back when it is freed. What is built at
the first call with a graph (index caches) counts; compiled code doesn't. The last row, a tensor of the votes' size made
and dropped, shows that the method measures what it should.
"""

from __future__ import annotations

import dataclasses
import gc
import multiprocessing
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

import torch

from ..progress import bar
from .baselines import formulations
from .gate import Entry, Gate, function, laid_out
from .inputs import Sizes, case
from .machine import give_back_at_once
from .tables import Row, Table
from .works import Setup

KNOWN = "a tensor of the votes' size"
MB = 1e6
_CLEAR, _STATUS = Path("/proc/self/clear_refs"), Path("/proc/self/status")


def memory(setup: Setup) -> Iterator[Table]:
    """Given votes, linear votes and a sparse graph. Compiled code is left out: its compiler's memory would count."""
    for kind, what in (("given", "given votes"), ("linear", "linear votes"), ("sparse", "sparse graph")):
        ways = [way for way in formulations() if not way.compiled and (kind != "sparse" or way.any_graph)]
        rows = [Row(way.name, way.says, another_algorithm=not way.same and kind != "sparse") for way in ways]
        rows.append(Row(KNOWN, "shows that the method measures what it should"))
        with bar(f"peak memory, {what}") as show:
            for k, row in enumerate(rows):
                found = alone(measure, kind, row.name, setup.sizes, device=setup.device)
                row.numbers, row.note = (found, "") if isinstance(found, dict) else ({}, found)
                show((k + 1) / len(rows))
        edges = setup.sizes.edges if kind == "sparse" else setup.sizes.children * setup.sizes.parents
        votes = 4 * edges * setup.sizes.dim * (1 if kind == "sparse" else setup.sizes.images)
        about = (
            f"one forward+backward, float32, above what was allocated before; the votes are {votes / MB:,.1f} MB; "
            "scratch is all but the inputs' gradients"
        )
        yield Table(what, about, "total", "MB", rows)


def alone(measure: Callable[..., dict[str, float] | str], *arguments, device: str) -> dict[str, float] | str:
    """What ``measure(*arguments, device)`` finds; on a CPU in a process of its own. Or why there is nothing."""
    if device != "cpu":
        return measure(*arguments, device)
    if not _CLEAR.exists():
        return "not measured: needs Linux's /proc"
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        try:
            return pool.submit(_measured, torch.get_num_threads(), measure, *arguments, device).result()
        except BrokenProcessPool:
            return "its process was killed: out of memory?"


def _measured(threads: int, measure: Callable, *arguments) -> dict[str, float] | str:
    torch.set_num_threads(threads)
    give_back_at_once()
    return measure(*arguments)


def measure(kind: str, name: str, sizes: Sizes, device: str) -> dict[str, float] | str:
    """The numbers of a row, or why there are none."""
    own = case(kind, sizes, device)
    votes = 4 * own.votes_numel
    if name == KNOWN:
        torch.ones(2, device=device).sum()
        return _numbers(peak(lambda: torch.ones(own.votes_numel, device=device).sum(), device), 0, votes)
    way = next(way for way in formulations() if way.name == name)
    small = Gate(case(kind, dataclasses.replace(sizes, children=16, edges=1000), device)).admit(way)  # warms up, too
    if small.note:
        return small.note
    tensors = tuple(x.detach().requires_grad_() for x in laid_out(way, own, own.tensors))
    entry = Entry(way, own, function(way, own), tensors, "")
    gradients = sum(x.numel() * x.element_size() for x in tensors)
    return _numbers(peak(entry.forward_backward, device), gradients, votes)


def _numbers(total: int, gradients: int, votes: int) -> dict[str, float]:
    scratch = total - gradients
    return {
        "total": total / MB,
        "gradients": gradients / MB,
        "scratch": scratch / MB,
        "total_per_votes": total / votes,
        "scratch_per_votes": scratch / votes,
    }


def peak(call: Callable[[], object], device: str) -> int:
    """Bytes that ``call``, its result included, had allocated at most beyond what was allocated before."""
    high: Callable[[], int]
    if device == "cuda":
        gc.collect()  # of the rows before, which were measured in this process
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before, high = torch.cuda.memory_allocated(), torch.cuda.max_memory_allocated
    else:
        _CLEAR.write_text("5")  # sets the high-water mark to what is resident now
        before, high = _high_water(), _high_water
    result = call()
    most = high() - before
    del result
    return most


def _high_water() -> int:
    """Most bytes that were resident since the mark was set, on Linux."""
    line = next(line for line in _STATUS.read_text().splitlines() if line.startswith("VmHWM"))
    return 1024 * int(line.split()[1])
