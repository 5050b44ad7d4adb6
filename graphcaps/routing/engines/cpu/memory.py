"""Fresh memory that kernels read and write in random order: in huge pages, if the system gives them.

A processor caches the addresses of some thousand pages. In pages of 4 KB they cover less than the votes and parents of
a million edges, so that nearly every edge of a graph in random order waits for an address; in pages of 2 MB they cover
gigabytes. Linux gives such pages to programs that ask. NumPy asks for its large arrays; torch does so only if
THP_MEM_ALLOC_ENABLE is set when it starts.
"""

from __future__ import annotations

import math

import numpy as np
import torch

MIN_BYTES = 2**22  # NumPy asks for huge pages from this size on
ALIGNMENT = 64  # bytes of a cache line, at which torch's tensors start


def empty(shape: tuple[int, ...], like: torch.Tensor) -> torch.Tensor:
    """A tensor on the CPU of ``like``'s dtype, not initialised."""
    size = math.prod(shape) * like.element_size()
    if size < MIN_BYTES:
        return torch.empty(shape, dtype=like.dtype)
    memory = np.empty(size + ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % ALIGNMENT
    return torch.from_numpy(memory[start : start + size]).view(like.dtype).view(shape)


def zeros(shape: tuple[int, ...], like: torch.Tensor) -> torch.Tensor:
    """A tensor of zeros in such memory."""
    return empty(shape, like).zero_()
