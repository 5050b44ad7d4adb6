"""Times, peaks of memory, and this machine: its hardware, its allocator, and its best rates.

Times are measured in rounds. Each round runs every row once, so that other load of the machine affects all rows alike.
On CUDA, torch's allocator reports a peak of memory. On a CPU, a row is measured in a new process, by the high-water
mark of resident memory that Linux keeps. The mark is reset before the call, and freed large buffers return to the
system at once.
"""

import ctypes
import gc
import os
import platform
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple

import numba
import torch

import graphcaps

from .tables import not_measured

SEED, MB = 0, 1e6
SHORTEST = 0.01
"""Minimum seconds of a sample. Quicker calls are repeated."""
# Option numbers of mallopt, from glibc's malloc.h.
_TRIM_THRESHOLD, _MMAP_THRESHOLD, _MMAP_MAX, _ARENA_MAX = -1, -3, -4, -8


@dataclass(frozen=True)
class Sizes:
    """Sizes and time limits of the benchmarks."""

    images: int = 32  # B of routing
    children: int = 1152  # I
    parents: int = 10  # J
    child_dim: int = 8  # P
    dim: int = 16  # D
    iterations: int = 3  # R
    edges: int = 1_000_000  # E of sparse; I = E / 10, J = E / 100
    node_edges: tuple[int, ...] = (100_000, 1_000_000)
    batch: int = 128  # images of a training step
    on_gpu: bool = False  # more rows: captured in CUDA graphs, other precisions, power-law graphs
    hub: int = 28_000  # edges into one node of a power-law graph
    image_shape: tuple[int, int, int] = (1, 28, 28)
    copied: int = 2**28  # bytes
    square: int = 2048  # rows and columns of the matrices that are multiplied
    seconds: float = 20.0  # time for all rounds of a table
    rounds: tuple[int, int] = (5, 50)  # smallest and largest number of rounds


ON_GPU = {"on_gpu": True, "images": 128, "copied": 2**30, "square": 8192, "seconds": 2.0, "rounds": (5, 20)}
SIZES = {"cpu": Sizes(), "cuda": Sizes(**ON_GPU, node_edges=(1_000_000, 10_000_000))}  # type: ignore[arg-type]


class Setup(NamedTuple):
    """The device, the sizes, and the machine's best rates in this run (``ceilings``)."""

    device: str
    sizes: Sizes
    ceilings: dict[str, float]


# Times


def interleaved(calls: Mapping[str, Callable[[], object]], setup: Setup) -> dict[str, list[float]]:
    """Seconds per call in each round, by name. Every call is made twice before the first round."""
    device, (least, most), repeats = setup.device, setup.sizes.rounds, {}
    for name, call in calls.items():
        seconds_of(call, 1, device)
        repeats[name] = max(1, round(SHORTEST / max(seconds_of(call, 1, device), 1e-9)))
    samples: dict[str, list[float]] = {name: [] for name in calls}
    began, done = time.perf_counter(), 0
    while done < least or (done < most and time.perf_counter() - began < setup.sizes.seconds):
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
    """The call as one CUDA graph, so that the host costs nothing. Without a GPU, the call itself."""
    if not torch.cuda.is_available():
        return call
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


def launches(call: Callable[[], object]) -> int:
    """How often the host starts a kernel, a copy or a graph on the GPU in a call."""
    with torch.profiler.profile() as profile:
        call()
    starts = ("cudaLaunch", "cuLaunch", "cudaMemcpyAsync", "cudaMemsetAsync", "cudaGraphLaunch")
    return sum(event.count for event in profile.key_averages() if event.key.startswith(starts))


# Memory


def in_process(function: Callable[..., dict[str, float]], *arguments, device: str) -> tuple[dict[str, float], str]:
    """Call ``function(*arguments, device)``, on a CPU in a new process.

    Return its numbers and an empty note. If it fails, return no numbers and a note with the reason.
    """
    try:
        if device != "cpu":
            return function(*arguments, device), ""
        with ProcessPoolExecutor(1, get_context("spawn"), _prepare, [torch.get_num_threads()]) as pool:
            return pool.submit(function, *arguments, device).result(), ""
    except Exception as error:
        return {}, not_measured(error)


def _prepare(threads: int) -> None:
    torch.set_num_threads(threads)
    _mallopt((_MMAP_THRESHOLD, 2**16))


def peak(call: Callable[[], object], device: str) -> int:
    """The largest number of bytes that ``call`` and its result hold at once, above the memory allocated before."""
    if device == "cuda":
        gc.collect()  # free the tensors of earlier rows
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before, high = torch.cuda.memory_allocated(), torch.cuda.max_memory_allocated
    else:
        Path("/proc/self/clear_refs").write_text("5")  # reset the high-water mark to the resident memory of now
        before, high = _high_water(), _high_water
    result = call()
    most = high() - before
    del result
    return most


def _high_water() -> int:
    return 1024 * int(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0])


# The machine


def _mallopt(*options: tuple[int, int]) -> bool:
    return platform.libc_ver()[0] == "glibc" and all(ctypes.CDLL(None).mallopt(*option) == 1 for option in options)


def description(device: str) -> dict[str, str | int]:
    """Versions and hardware of this machine.

    From now on, the process keeps freed memory, so that times exclude page faults of new buffers.
    """
    keeps = _mallopt((_MMAP_MAX, 0), (_TRIM_THRESHOLD, -1), (_ARENA_MAX, 1))
    cpu = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
    names = (line.partition(":")[2].strip() for line in cpu.splitlines() if line.startswith("model name"))
    return {
        "graphcaps": graphcaps.__version__,
        "torch": torch.__version__,
        "dgl": graphcaps.dgl.__version__,
        "numba": numba.__version__,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "device": device,
        "processor": torch.cuda.get_device_name() if device == "cuda" else next(names, platform.machine()),
        "cores": os.cpu_count() or 1,
        "threads": torch.get_num_threads(),
        "allocator": "glibc malloc, one arena, no mmap, no trim" if keeps else "not glibc's malloc",
    }


def ceilings(device: str, sizes: Sizes) -> dict[str, float]:
    """The machine's rates, the best of several tries.

    ``copy_gb_s``: GB read and written per second while a large tensor is copied. ``*_gflop_s``: 1e9 additions and
    multiplications per second in a product of two square matrices.
    """

    def fastest(call: Callable[[], object]) -> float:
        return min(seconds_of(call, 1, device) for _ in range(11))  # the first call warms up

    source = torch.ones(sizes.copied // 4, device=device)
    target = torch.empty_like(source)
    rates = {"copy_gb_s": 2 * sizes.copied / 1e9 / fastest(lambda: target.copy_(source))}
    for name in ("float32", "tf32", "bfloat16") if sizes.on_gpu else ("float32", "bfloat16"):
        torch.set_float32_matmul_precision("high" if name == "tf32" else "highest")
        dtype = torch.bfloat16 if name == "bfloat16" else torch.float32
        a = torch.ones(sizes.square, sizes.square, dtype=dtype, device=device)
        rates[f"{name}_gflop_s"] = 2 * sizes.square**3 / 1e9 / fastest(lambda a=a: torch.mm(a, a))
    torch.set_float32_matmul_precision("highest")
    return rates
