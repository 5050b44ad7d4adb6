"""Benchmark ``memory``: peak memory of one forward and backward pass above what was allocated before it.

On CUDA, torch's allocator reports the peak. On a CPU, each row is measured in a new process, by the high-water mark of
resident memory that Linux keeps. The mark is reset before the call, and freed large buffers return to the system at
once. The indices that the first call with a graph builds are counted; the compilation of kernels isn't.
"""

import dataclasses
import gc
import multiprocessing
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import torch

from .formulations import DGL, EINSUM, FUSED, TORCH
from .inputs import Setup, Sizes, case
from .machine import return_freed_memory
from .routing import KINDS, call_of
from .tables import Row, Table, not_measured

WAYS = {way.name: way for way in (EINSUM, DGL, TORCH, FUSED)}  # not COMPILED: the memory of torch.compile would count
MB = 1e6
_CLEAR, _STATUS = Path("/proc/self/clear_refs"), Path("/proc/self/status")


def memory(setup: Setup) -> Iterator[Table]:
    """Make a table for each kind of input: given votes, linear votes, and a sparse graph."""
    for kind, name in KINDS.items():
        about = "one forward+backward, float32, above what was allocated before; scratch is all but the gradients"
        rows = [Row(name) for name, way in WAYS.items() if kind in way.kinds]
        for row in rows:
            row.numbers, row.note = in_process(measure, kind, row.name, setup.sizes, device=setup.device)
        yield Table(name, about, "MB", rows)


def in_process(function: Callable[..., dict[str, float]], *arguments, device: str) -> tuple[dict[str, float], str]:
    """Call ``function(*arguments, device)``, on a CPU in a new process.

    Return its numbers and an empty note. If it fails, return no numbers and a note with the reason.
    """
    try:
        if device != "cpu":
            return function(*arguments, device), ""
        if not _CLEAR.exists():
            return {}, "not measured: needs Linux's /proc"
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), prepare, [torch.get_num_threads()]) as pool:
            return pool.submit(function, *arguments, device).result(), ""
    except Exception as error:
        return {}, not_measured(error)


def prepare(threads: int) -> None:
    torch.set_num_threads(threads)
    return_freed_memory()


def measure(kind: str, name: str, sizes: Sizes, device: str) -> dict[str, float]:
    """Measure a row: peak memory and the gradients' part of it in MB, and ratios to the size of the votes."""
    own, small = (case(kind, each).to(device) for each in (sizes, dataclasses.replace(sizes, children=16, edges=1000)))
    call_of(WAYS[name], small, backward=True)()  # compile kernels first
    total = peak(call_of(WAYS[name], own, backward=True), device)
    votes, gradients = 4 * own.num_votes, sum(x.numel() * x.element_size() for x in own.tensors)
    per_votes = {"total_per_votes": total / votes, "scratch_per_votes": (total - gradients) / votes}
    return {"total": total / MB, "gradients": gradients / MB} | per_votes


def peak(call: Callable[[], object], device: str) -> int:
    """The largest number of bytes that ``call`` and its result hold at once, above the memory allocated before."""
    if device == "cuda":
        gc.collect()  # free the tensors of earlier rows
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before, high = torch.cuda.memory_allocated(), torch.cuda.max_memory_allocated
    else:
        _CLEAR.write_text("5")  # reset the high-water mark to the resident memory of now
        before, high = _high_water(), _high_water
    result = call()
    most = high() - before
    del result
    return most


def _high_water() -> int:
    line = next(line for line in _STATUS.read_text().splitlines() if line.startswith("VmHWM"))
    return 1024 * int(line.split()[1])
