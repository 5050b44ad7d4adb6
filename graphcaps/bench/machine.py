"""The machine: threads and allocator fixed, what it is, and the ceilings that its memory and its GEMMs set."""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
from collections.abc import Iterator
from pathlib import Path

import torch

from .._dgl import dgl
from .._version import __version__
from ..errors import check_whole
from .clock import seconds_of
from .inputs import Sizes

# glibc's malloc.h
_TRIM_THRESHOLD, _MMAP_THRESHOLD, _MMAP_MAX, _ARENA_MAX = -1, -3, -4, -8


def fix_threads(count: int | None) -> int:
    """Set torch's threads, which graphcaps' own kernels use too; None leaves their number. Returns it."""
    if count is not None:
        check_whole("threads", count)
        torch.set_num_threads(count)
    return torch.get_num_threads()


def fix_allocator() -> str:
    """Let freed memory stay with the process, so that a fresh buffer's pages don't fault anew; say what was done."""
    if not _mallopt((_MMAP_MAX, 0), (_TRIM_THRESHOLD, -1), (_ARENA_MAX, 1)):
        return "not fixed (not glibc's malloc): times can hold page faults of fresh buffers"
    faults = [_faults_of_a_buffer() for _ in range(10)][-1]  # aligned blocks leave gaps: it settles after a few
    return f"glibc malloc, one arena, no mmap, no trim; page faults of 64 MB used again: {faults}"


def give_back_at_once() -> None:
    """Let every large buffer be memory of its own that is given back when freed: for measuring peaks, not times."""
    _mallopt((_MMAP_THRESHOLD, 2**16))


def _mallopt(*settings: tuple[int, int]) -> bool:
    if platform.libc_ver()[0] != "glibc":
        return False
    mallopt = ctypes.CDLL(None).mallopt
    return all(mallopt(*setting) == 1 for setting in settings)


def _faults_of_a_buffer() -> int:
    import resource

    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    torch.ones(2**24)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before


def about(device: str, threads: int, allocator: str) -> dict[str, str | int]:
    """Versions and hardware, to stand beside measured numbers."""
    import numba

    return {
        "graphcaps": __version__,
        "torch": torch.__version__,
        "dgl": dgl.__version__,
        "numba": numba.__version__,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "device": device,
        "processor": torch.cuda.get_device_name() if device == "cuda" else _processor(),
        "cores": os.cpu_count() or 1,
        "threads": threads,
        "allocator": f"torch's on CUDA; on the CPU: {allocator}" if device == "cuda" else allocator,
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor() or platform.machine())


def ceilings(device: str, sizes: Sizes) -> dict[str, float]:
    """What the machine can do at most, the fastest of ten tries of each.

    Returns:
        copy_gb_s: 1e9 bytes per second of copying one large tensor to another; bytes read and bytes written count.
        float32_gflop_s, bfloat16_gflop_s, on CUDA tf32_gflop_s: 1e9 operations per second of a product of two square
        matrices, an addition and a multiplication being two.
    """
    source = torch.ones(sizes.copied // 4, device=device)
    target = torch.empty_like(source)
    found = {"copy_gb_s": 2 * sizes.copied / 1e9 / _fastest(lambda: target.copy_(source), device)}
    for precision in ("float32", "bfloat16", "tf32")[: 3 if device == "cuda" else 2]:
        dtype = torch.bfloat16 if precision == "bfloat16" else torch.float32
        a, b = (torch.ones(sizes.square, sizes.square, dtype=dtype, device=device) for _ in range(2))
        product = torch.empty_like(a)
        with matmul(precision):
            seconds = _fastest(lambda a=a, b=b, product=product: torch.mm(a, b, out=product), device)
        found[f"{precision}_gflop_s"] = 2 * sizes.square**3 / 1e9 / seconds
    return found


def _fastest(call, device: str) -> float:
    return min(seconds_of(call, 1, device) for _ in range(11))  # the first warms up


@contextlib.contextmanager
def matmul(precision: str) -> Iterator[None]:
    """Let float32 matrix products round to tf32 while the block runs, if that is the precision."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high" if precision == "tf32" else "highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
