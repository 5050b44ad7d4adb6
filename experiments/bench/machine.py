"""This machine: its hardware and versions, its memory allocator, and its best rates of copying and multiplying."""

import ctypes
import os
import platform
from collections.abc import Callable
from pathlib import Path

import numba
import torch

import graphcaps

from .clock import seconds_of
from .inputs import Sizes

# Option numbers of mallopt, from glibc's malloc.h.
_TRIM_THRESHOLD, _MMAP_THRESHOLD, _MMAP_MAX, _ARENA_MAX = -1, -3, -4, -8


def keep_freed_memory() -> str:
    """Keep freed memory in the process, so that times exclude page faults of new buffers. Return a description."""
    if _mallopt((_MMAP_MAX, 0), (_TRIM_THRESHOLD, -1), (_ARENA_MAX, 1)):
        return "glibc malloc, one arena, no mmap, no trim"
    return "not glibc's malloc: times may include page faults of new buffers"


def return_freed_memory() -> None:
    """Return the memory of a large buffer to the system when it is freed. This is for peaks, not for times."""
    _mallopt((_MMAP_THRESHOLD, 2**16))


def _mallopt(*settings: tuple[int, int]) -> bool:
    return platform.libc_ver()[0] == "glibc" and all(ctypes.CDLL(None).mallopt(*each) == 1 for each in settings)


def description(device: str, allocator: str) -> dict[str, str | int]:
    """Versions and hardware of this machine."""
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
