"""Times, peaks of a GPU's memory, and this machine: its hardware, its allocator, and its best rates.

Times are measured in rounds. Each round runs every row once, so that other load of the machine affects all rows alike.
"""

import ctypes
import functools
import gc
import platform
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numba
import torch

import graphcaps

SEED, ITERATIONS, DIM = 0, 3, 16
SHORTEST = 0.01
"""Minimum seconds of a sample. Quicker calls are repeated."""
# Option numbers of mallopt, from glibc's malloc.h.
_TRIM_THRESHOLD, _MMAP_MAX, _ARENA_MAX = -1, -4, -8


@dataclass(frozen=True)
class Setup:
    """A device, and the sizes and time limits that differ between devices."""

    device: str
    images: int  # B of routing
    copied: int  # bytes
    square: int  # rows and columns of the matrices that are multiplied
    seconds: float  # time for all rounds of a table
    rounds: tuple[int, int]  # smallest and largest number of rounds

    @property
    def on_gpu(self) -> bool:
        """On a GPU there are more rows: captured in CUDA graphs, in bfloat16, on power-law graphs."""
        return self.device == "cuda"


SETUPS = {
    "cpu": Setup("cpu", 32, 2**28, 2048, 20.0, (5, 50)),
    "cuda": Setup("cuda", 128, 2**30, 8192, 2.0, (5, 20)),
}


# Times


def interleaved(calls: Mapping[str, Callable[[], object]], setup: Setup) -> dict[str, list[float]]:
    """Seconds per call in each round, by name. Every call is made twice before the first round."""
    device, (least, most), repeats = setup.device, setup.rounds, {}
    for name, call in calls.items():
        seconds_of(call, 1, device)
        repeats[name] = max(1, round(SHORTEST / max(seconds_of(call, 1, device), 1e-9)))
    samples: dict[str, list[float]] = {name: [] for name in calls}
    began, done = time.perf_counter(), 0
    while done < least or (done < most and time.perf_counter() - began < setup.seconds):
        for name, call in calls.items():
            samples[name].append(seconds_of(call, repeats[name], device) / repeats[name])
        done += 1
    return samples


def seconds_of(call: Callable[[], object], times: int, device: str) -> float:
    """Seconds that ``times`` calls take in total."""
    if device == "cuda":
        torch.cuda.synchronize()
    began = time.perf_counter()
    for _ in range(times):
        call()
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - began


def captured(call: Callable[[], object]) -> Callable[[], object]:
    """The call as one CUDA graph, so that the host costs nothing."""
    stream, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            call()
    torch.cuda.current_stream().wait_stream(stream)
    # The outer block restores the current stream even if the capture fails.
    with torch.cuda.stream(torch.cuda.current_stream()), torch.cuda.graph(graph):
        call()
    return graph.replay


def peak(call: Callable[[], object]) -> float:
    """The largest number of megabytes on the GPU that ``call`` allocates at once."""
    gc.collect()  # free the tensors of earlier rows
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    call()
    return (torch.cuda.max_memory_allocated() - before) / 1e6


# The machine


def _keep_freed_memory() -> bool:
    """Keep freed memory, so that times exclude page faults of new buffers. Return whether this was possible."""
    options = (_MMAP_MAX, 0), (_TRIM_THRESHOLD, -1), (_ARENA_MAX, 1)
    return platform.libc_ver()[0] == "glibc" and all(ctypes.CDLL(None).mallopt(*option) == 1 for option in options)


def description(device: str) -> dict[str, str | int]:
    """Versions and hardware of this machine. From now on, the process keeps freed memory."""
    keeps = _keep_freed_memory()
    cpu = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
    names = (line.partition(":")[2].strip() for line in cpu.splitlines() if line.startswith("model name"))
    return {
        "graphcaps": graphcaps.__version__,
        "torch": torch.__version__,
        "dgl": graphcaps.dgl.__version__,
        "numba": numba.__version__,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "processor": torch.cuda.get_device_name() if device == "cuda" else next(names, platform.machine()),
        "threads": torch.get_num_threads(),
        "allocator": "glibc malloc, one arena, no mmap, no trim" if keeps else "not glibc's malloc",
    }


@functools.cache
def ceilings(setup: Setup) -> dict[str, float]:
    """The machine's rates, the best of several tries.

    ``copy_gb_s``: GB read and written per second while a large tensor is copied. ``*_gflop_s``: 1e9 additions and
    multiplications per second in a product of two square matrices.
    """

    def fastest(call: Callable[[], object]) -> float:
        return min(seconds_of(call, 1, setup.device) for _ in range(11))  # the first call warms up

    source = torch.ones(setup.copied // 4, device=setup.device)
    target = torch.empty_like(source)
    rates = {"copy_gb_s": 2 * setup.copied / 1e9 / fastest(lambda: target.copy_(source))}
    for dtype in (torch.float32, torch.bfloat16):
        a = torch.ones(setup.square, setup.square, dtype=dtype, device=setup.device)
        rates[f"{str(dtype)[6:]}_gflop_s"] = 2 * setup.square**3 / 1e9 / fastest(lambda a=a: torch.mm(a, a))
    return rates
