"""Fresh memory for what the kernels read and write in no order: in huge pages, where the system gives them.

A processor keeps the addresses of some thousand pages at hand. In pages of 4 KB that is less than the votes and the
parents of a million edges take, so that nearly each edge of a graph in random order waits for addresses; in pages of
2 MB it is gigabytes. Linux gives such pages to who asks for them. NumPy asks for its large arrays, torch doesn't unless
THP_MEM_ALLOC_ENABLE is set when it starts.
"""

from __future__ import annotations

import math

import numpy as np
import torch

LARGE = 2**22  # bytes from which NumPy asks
LINE = 64  # bytes of a cache line, where torch's tensors start


def empty(shape: tuple[int, ...], like: torch.Tensor) -> torch.Tensor:
    """A tensor on the CPU of ``like``'s dtype, of whatever numbers lie there."""
    size = math.prod(shape) * like.element_size()
    if size < LARGE:
        return torch.empty(shape, dtype=like.dtype)
    memory = np.empty(size + LINE, np.uint8)
    start = -memory.ctypes.data % LINE
    return torch.from_numpy(memory[start : start + size]).view(like.dtype).view(shape)


def zeros(shape: tuple[int, ...], like: torch.Tensor) -> torch.Tensor:
    """The same, of zeros."""
    return empty(shape, like).zero_()
