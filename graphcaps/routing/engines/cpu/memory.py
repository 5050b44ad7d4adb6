"""New memory for arrays that kernels access in random order, in huge pages if the system has them.

A processor caches the addresses of a few thousand pages. With pages of 4 KB these cover less than the votes and parents
of a million edges, so nearly every edge in random order waits for an address. With pages of 2 MB they cover gigabytes.
Linux gives huge pages on request. NumPy requests them for large arrays, but torch only if THP_MEM_ALLOC_ENABLE is set.
"""

from __future__ import annotations

import math

import numpy as np
import torch

HUGE_PAGES_FROM = 2**22  # bytes: NumPy requests huge pages for arrays from this size on
CACHE_LINE = 64  # bytes; torch's tensors start at a cache line


def empty(shape: tuple[int, ...], like: torch.Tensor) -> torch.Tensor:
    """Return an uninitialised CPU tensor with ``like``'s dtype that starts at a cache line."""
    size = math.prod(shape) * like.element_size()
    if size < HUGE_PAGES_FROM:
        return torch.empty(shape, dtype=like.dtype)
    memory = np.empty(size + CACHE_LINE, np.uint8)
    start = -memory.ctypes.data % CACHE_LINE
    return torch.from_numpy(memory[start : start + size]).view(like.dtype).view(shape)


def zeros(shape: tuple[int, ...], like: torch.Tensor) -> torch.Tensor:
    """Return a tensor of zeros, allocated as in ``empty``."""
    return empty(shape, like).zero_()
