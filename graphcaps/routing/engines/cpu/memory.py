"""New memory for arrays that kernels access in random order, in huge pages if the system has them.

A processor caches the addresses of some thousand pages. Pages of 4 KB then cover less than the votes and parents of a
million edges, and nearly every edge of a graph in random order waits for an address; pages of 2 MB cover gigabytes.
Linux gives huge pages on request. NumPy requests them for large arrays; torch does only if THP_MEM_ALLOC_ENABLE is set.
"""

from __future__ import annotations

import math

import numpy as np
import torch

HUGE_PAGES_FROM = 2**22  # bytes of an array for which NumPy requests them
CACHE_LINE = 64  # bytes; torch's tensors start at one


def empty(shape: tuple[int, ...], like: torch.Tensor) -> torch.Tensor:
    """An uninitialised tensor on the CPU of ``like``'s dtype, which starts at a cache line."""
    size = math.prod(shape) * like.element_size()
    if size < HUGE_PAGES_FROM:
        return torch.empty(shape, dtype=like.dtype)
    memory = np.empty(size + CACHE_LINE, np.uint8)
    start = -memory.ctypes.data % CACHE_LINE
    return torch.from_numpy(memory[start : start + size]).view(like.dtype).view(shape)


def zeros(shape: tuple[int, ...], like: torch.Tensor) -> torch.Tensor:
    """A tensor of zeros like that of ``empty``."""
    return empty(shape, like).zero_()
