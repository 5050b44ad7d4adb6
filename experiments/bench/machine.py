"""The machine: what it is, how its allocator behaves, and the ceilings that its memory and its matrix products set."""

from __future__ import annotations

import ctypes
import os
import platform
from collections.abc import Callable
from pathlib import Path

import torch

import graphcaps

from .clock import seconds_of
from .inputs import Sizes

# glibc's malloc.h
_TRIM_THRESHOLD, _MMAP_THRESHOLD, _MMAP_MAX, _ARENA_MAX = -1, -3, -4, -8


def keep_freed_memory() -> str:
    """Let freed memory stay with the process, so that times have no page faults of fresh buffers; say if it does."""
    if _mallopt((_MMAP_MAX, 0), (_TRIM_THRESHOLD, -1), (_ARENA_MAX, 1)):
        return "glibc malloc, one arena, no mmap, no trim"
    return "not glibc's malloc: times can hold page faults of fresh buffers"


def return_freed_memory() -> None:
    """Let every large buffer be memory of its own that is given back when freed: for measuring peaks, not times."""
    _mallopt((_MMAP_THRESHOLD, 2**16))


def _mallopt(*settings: tuple[int, int]) -> bool:
    if platform.libc_ver()[0] != "glibc":
        return False
    mallopt = ctypes.CDLL(None).mallopt
    return all(mallopt(*setting) == 1 for setting in settings)


def description(device: str, allocator: str) -> dict[str, str | int]:
    """Versions and hardware, to stand beside measured numbers."""
    import numba

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
        "allocator": allocator,
    }


def ceilings(device: str, sizes: Sizes) -> dict[str, float]:
    """What the machine can do at most, the fastest of ten tries of each.

    Returns:
        copy_gb_s: 1e9 bytes per second of copying one large tensor to another; bytes read and bytes written count.
        float32_gflop_s, bfloat16_gflop_s: 1e9 additions and multiplications per second of a product of two squares.
    """

    def fastest(call: Callable[[], object]) -> float:
        return min(seconds_of(call, 1, device) for _ in range(11))  # the first warms up

    source = torch.ones(sizes.copied // 4, device=device)
    target = torch.empty_like(source)
    found = {"copy_gb_s": 2 * sizes.copied / 1e9 / fastest(lambda: target.copy_(source))}
    for dtype in (torch.float32, torch.bfloat16):
        a = torch.ones(sizes.square, sizes.square, dtype=dtype, device=device)
        product = torch.empty_like(a)
        seconds = fastest(lambda a=a, product=product: torch.mm(a, a, out=product))
        found[f"{str(dtype).removeprefix('torch.')}_gflop_s"] = 2 * sizes.square**3 / 1e9 / seconds
    return found
