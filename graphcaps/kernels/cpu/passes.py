"""Calls of the kernels: edges are sorted by child, children are divided among threads, and each pass is one call."""

from __future__ import annotations

import copy
import functools
import math
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import torch

from ...graph import ByChild
from .arguments import EdgeArrays, Sizes, VoteArrays
from .kernels_by_child import gather_votes
from .tiles import LANES

# TILE: the most numbers in one child's votes for the images of a block. BLOCK: the most in a block of small children.
TILE, BLOCK = 2**15, 2**12
MAX_SORTED_ROW = 512  # bytes: if an edge's votes are no larger, sorting votes by child saves time
MAX_SUMS = 2**28  # bytes: limit for the sums of all threads together
HUGE_PAGES_FROM = 2**22  # bytes: NumPy requests huge pages for arrays of at least this size; torch never does
CACHE_LINE = 64  # bytes; torch's tensors start at a cache line


class Passes:
    """The arguments that all passes share: votes (E, B, D), or children (I, B, P) with ``weight`` and ``index``.

    The methods run kernels on all threads. For given votes ``weight`` is empty.
    """

    def __init__(
        self, u: torch.Tensor, weight: torch.Tensor, index: torch.Tensor | None, edges: ByChild, num_parents: int
    ) -> None:
        self.u, self.weight, self.edges, self.num_parents = u.contiguous(), weight.contiguous(), edges, num_parents
        self.linear = weight.numel() > 0
        self.batch, self.parent_dim = u.shape[1], weight.shape[-1] if self.linear else u.shape[-1]
        child_dim = u.shape[-1] if self.linear else 0
        self.votes = VoteArrays(flat(self.u), flat(self.weight), P=(None,) * child_dim, D=(None,) * self.parent_dim)
        images = min(self.batch, max(LANES, TILE // (edges.most * self.parent_dim) // LANES * LANES))
        most = max(edges.most, BLOCK // (images * self.parent_dim))
        single = self.batch == 1
        lanes = 1 if single else -(-images // LANES) * LANES
        self.sizes = Sizes(self.batch, images, most, lanes, SINGLE=(None,) if single else ())
        # The index is sorted in each call, because the caller may have changed it. This takes 5 ns per edge, or 0.3 ns
        # if edges are sorted by child. A pass over the votes of one image (P = D = 8) takes 20 ns per edge.
        matrix = edges.eid if index is None else edges.in_this_order(index).to(edges.eid.dtype)
        self.indptr = edges.indptr.numpy()
        self.arrays = EdgeArrays(self.indptr, edges.eid.numpy(), edges.dst.numpy(), matrix.numpy())
        self.shared = index is not None  # whether several children may use the same matrix
        sums = num_parents * self.batch * self.parent_dim * u.element_size()  # per thread
        self.ranges = equal_ranges(self.indptr, min(torch.get_num_threads(), max(1, MAX_SUMS // max(1, sums))))
        self.nothing = u.new_empty(0)

    @staticmethod
    def saves_time_sorted(u: torch.Tensor) -> bool:
        """Whether passes over votes u (E, B, D) whose edges aren't sorted by child save time if a copy is sorted."""
        return u.shape[1] * u.shape[2] * u.element_size() <= MAX_SORTED_ROW

    def with_sorted_votes(self) -> Passes:
        """Return passes on a copy of the votes that is sorted by child, or self if sorting wouldn't save time."""
        if self.linear or self.edges.sorted or not self.saves_time_sorted(self.u):
            return self
        gathered = empty(self.u.shape, self.u)
        self.run(gather_votes, gathered=gathered)
        return self.reading_sorted(gathered)

    def reading_sorted(self, gathered: torch.Tensor) -> Passes:
        """Return passes on ``gathered``, the votes sorted by child."""
        passes, eid = copy.copy(self), self.arrays.eid
        passes.u, passes.votes = gathered, self.votes._replace(u=flat(gathered))
        passes.arrays = self.arrays._replace(eid=np.arange(len(eid), dtype=eid.dtype))
        return passes

    def sums(self) -> torch.Tensor:
        """Return zeros (threads, J, B, D), to which the threads add sums over in-edges."""
        return zeros((len(self.ranges), self.num_parents, self.batch, self.parent_dim), self.u)

    def numbers(self, iterations: int) -> torch.Tensor:
        """Return uninitialised (iterations, E, B), for one number per edge and image, sorted by child."""
        return empty((iterations, len(self.edges.eid), self.batch), self.u)

    def run(self, kernel: Any, **arguments: Any) -> None:
        """Call ``kernel`` on each thread's children. Missing arguments become empty arrays."""
        of_votes = {"edges": self.arrays, "votes": self.votes, "P": self.votes.P, "sizes": self.sizes}
        empty_arrays = dict.fromkeys(names_of_arguments(kernel), self.nothing)
        run_on_threads(kernel, self.ranges, **empty_arrays | of_votes | arguments)


def names_of_arguments(kernel: Any) -> tuple[str, ...]:
    """Return the names of a kernel's arguments after ``begin`` and ``end``."""
    code = kernel.py_func.__code__
    return code.co_varnames[2 : code.co_argcount]


def run_on_threads(kernel: Any, ranges: Sequence[tuple[int, int]], **arguments: Any) -> None:
    """Call ``kernel(begin, end, ...)`` on each range, in threads. Of each list, the k-th call gets the k-th tensor."""

    def arrays(value: Any) -> Any:
        if isinstance(value, list):
            return [*map(flat, value)]
        return flat(value) if isinstance(value, torch.Tensor) else value

    values = [arrays(arguments[name]) for name in names_of_arguments(kernel)]

    def part(k: int) -> None:
        kernel(*ranges[k], *(value[k] if isinstance(value, list) else value for value in values))

    others = [pool(len(ranges)).submit(part, k) for k in range(1, len(ranges))]
    part(0)
    for other in others:
        other.result()


def equal_ranges(indptr: np.ndarray, parts: int) -> list[tuple[int, int]]:
    """Divide the nodes of ``indptr`` into ranges (begin, end) with about equal numbers of edges, one per thread."""
    cuts = np.searchsorted(indptr, np.linspace(0, indptr[-1], parts + 1)[1:-1]).tolist()
    ends = [0, *cuts, len(indptr) - 1]
    return list(zip(ends[:-1], ends[1:], strict=True))


@functools.cache
def pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads, thread_name_prefix="graphcaps")


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=pool.cache_clear)  # a forked process inherits the pool without its threads


class _Memory:
    """The memory of a contiguous tensor, for ``np.asarray``."""

    def __init__(self, tensor: torch.Tensor):
        number, memory = f"<f{tensor.element_size()}", (tensor.data_ptr(), False)
        self.__array_interface__ = {"version": 3, "data": memory, "shape": (tensor.numel(),), "typestr": number}
        self.tensor = tensor  # keeps the memory alive


def flat(tensor: torch.Tensor) -> np.ndarray:
    """A tensor of floats as a flat array. ``tensor.numpy()`` would fix the storage's size, which FSDP changes."""
    if not tensor.numel():  # NumPy 1 takes no memory at address 0
        return tensor.detach().reshape(-1).numpy()
    tensor = tensor.resolve_neg()  # the memory of a lazily negated tensor has the other signs
    return np.asarray(_Memory(tensor if tensor.is_contiguous() else tensor.reshape(-1)))


def sum_of(parts: torch.Tensor) -> torch.Tensor:
    """The sum of the threads' parts."""
    return parts[0] if len(parts) == 1 else parts.sum(dim=0)


def empty(shape: tuple[int, ...], like: torch.Tensor) -> torch.Tensor:
    """Return an uninitialised tensor of ``like``'s dtype that starts at a cache line, in huge pages if it is large.

    A processor caches the addresses of a few thousand pages. Pages of 4 KB then cover less than the votes of a million
    edges, so nearly every edge in random order waits for an address. Pages of 2 MB cover gigabytes.
    """
    size = math.prod(shape) * like.element_size()
    if size < HUGE_PAGES_FROM:
        return torch.empty(shape, dtype=like.dtype, device="cpu")
    memory = np.empty(size + CACHE_LINE, np.uint8)
    start = -memory.ctypes.data % CACHE_LINE
    return torch.from_numpy(memory[start : start + size]).view(like.dtype).view(shape)


def zeros(shape: tuple[int, ...], like: torch.Tensor) -> torch.Tensor:
    return empty(shape, like).zero_()
