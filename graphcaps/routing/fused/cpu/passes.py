"""The votes between two kernels: a graph's edges sorted by child, shared out to threads, and one call per pass."""

from __future__ import annotations

import copy
import functools
import os
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch

from ....graph import once_per_structure
from .kernels import arrange, gradient, iterate, linear_gradient
from .tiles import LANES


def has_hub(rows, votes):
    """Whether one child has so many edges that room to make its votes, in each thread, is a quarter of all votes."""
    batch, dim = votes.u[0, ..., 0].numel(), votes.weight.shape[-1]
    tile, edges = _shape(rows, batch, dim)
    number = dim * votes.u.element_size()
    room = 2 * torch.get_num_threads() * edges * max(LANES, tile) * number
    return room > HUB and 4 * room > len(rows.eid) * batch * number


def _shape(rows, batch, dim):
    """How many images make a tile, and for how many edges a block of children has room."""
    tile = min(batch, max(LANES, TILE // (rows.most * dim) // LANES * LANES))
    return tile, max(rows.most, BLOCK // (tile * dim))


class Rows:
    """A graph's edges sorted by child, as NumPy arrays, and the children in ranges of about equal numbers of edges."""

    def __init__(self, graph):
        src, dst = (end.cpu() for end in graph.edges(order="eid"))
        self.num_children, self.num_parents = graph.num_src_nodes(), graph.num_dst_nodes()
        index = torch.int32 if len(src) < 2**31 else torch.int64
        self.eid = torch.argsort(src, stable=True).to(index)  # (E,)
        self.sorted = bool((src[1:] >= src[:-1]).all())
        self.dst = dst[self.eid].to(index)
        self.counts = torch.bincount(src, minlength=self.num_children)  # (I,) out-edges of each child
        self.most = max(1, int(self.counts.max()))
        self.indptr = torch.cat([self.counts.new_zeros(1), self.counts.cumsum(0)]).numpy()
        self._wid = {}

    def arrays(self, weight, index):
        """What the kernels take: indptr, eid, dst, and the number of each edge's weight matrix.

        An index is put in order anew in each call, so that none is taken for another: 5 ns an edge, 0.3 ns where edges
        lie by child. A pass over the votes of one image (P = D = 8) takes 20 ns an edge.
        """
        wid = self._matrices(weight) if index is None else self.by_child(index).to(self.eid.dtype)
        return self.indptr, self.eid.numpy(), self.dst.numpy(), wid.numpy()

    def _matrices(self, weight):
        kind = weight.dim(), weight.shape[0] if weight.dim() == 4 else 0
        if kind not in self._wid:
            self._wid[kind] = self._of_kind(*kind).to(self.eid.dtype)
        return self._wid[kind]

    def _of_kind(self, dims, types):
        if dims == 2:
            return torch.zeros_like(self.eid)
        if dims == 4:
            type_of_child = torch.arange(self.num_children) // (self.num_children // types)
            return torch.repeat_interleave(type_of_child, self.counts) * self.num_parents + self.dst
        return self.eid

    @functools.cached_property
    def order(self):
        """(E,) 0, 1, 2, ...: ``eid`` of votes that were put in the order of k."""
        return torch.arange(len(self.eid), dtype=self.eid.dtype)

    def ranges(self, parts):
        """(lo, hi) of children for each thread."""
        cuts = np.searchsorted(self.indptr, np.linspace(0, self.indptr[-1], parts + 1)[1:-1])
        cuts = [0, *cuts.tolist(), self.num_children]
        return list(zip(cuts[:-1], cuts[1:], strict=True))

    def by_child(self, values):
        """(E, ...) values in the graph's edge order -> in the order of k."""
        return values.contiguous() if self.sorted else values[self.eid]

    def in_edge_order(self, values):
        """(E, ...) values in the order of k -> in the graph's edge order."""
        if self.sorted:
            return values
        ordered = torch.empty_like(values)
        ordered[self.eid] = values
        return ordered


rows_of = once_per_structure(Rows)

# Numbers in the votes that are worked on together: of a tile of images of one child, of a block of small children.
TILE, BLOCK = 2**15, 2**12
SMALL_ROW = 512  # bytes of an edge's votes up to which it pays to put them in the order of k
MOST_SUMS = 2**28  # bytes that the threads' own sums may take together
HUB = 2**24  # bytes that room for one child's linear votes may take whatever the votes would


@functools.cache
def pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads, thread_name_prefix="graphcaps")


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=pool.cache_clear)  # a forked process has the pool but not its threads


class Passes:
    """The votes and everything that stays the same from pass to pass; calls the kernels on all threads."""

    def __init__(self, u, weight, index, rows):
        self.u, self.weight, self.rows = u.contiguous(), weight.contiguous(), rows
        self.linear = weight.numel() > 0
        self.batch, self.dim = u.shape[1], weight.shape[-1] if self.linear else u.shape[-1]
        self.height, self.width = (0,) * (u.shape[-1] if self.linear else 0), (0,) * self.dim
        self.single = (0,) if self.batch == 1 else ()
        self.shape = self.batch, *_shape(rows, self.batch, self.dim)
        self.graph = rows.arrays(weight, index)
        self.shared = index is not None or weight.dim() != 3  # edges of several children take one matrix
        sums = rows.num_parents * self.batch * self.dim * u.element_size()  # per thread
        self.ranges = rows.ranges(min(torch.get_num_threads(), max(1, MOST_SUMS // max(1, sums))))
        self.nothing = u.new_empty(0)

    def arranged(self):
        """These passes on a copy of the votes in the order of k, where single reads all over the memory cost more."""
        row = self.batch * self.dim * self.u.element_size()
        if self.linear or self.rows.sorted or row > SMALL_ROW:
            return self
        rows = torch.empty_like(self.u)
        self.run(arrange, flat(rows))
        passes = copy.copy(self)
        indptr, _, dst, wid = self.graph
        passes.u, passes.graph = rows, (indptr, self.rows.order.numpy(), dst, wid)
        return passes

    def sums(self):
        """Zeroed sums over in-edges (threads, J, B, D)."""
        return self.u.new_zeros(len(self.ranges), self.rows.num_parents, self.batch, self.dim)

    def numbers(self, iterations):
        """Numbers per edge and image (iterations, E, B), by child."""
        return self.u.new_empty(iterations, len(self.rows.eid), self.batch)

    def iterate(self, prior, before, c, start):
        """One iteration; return s (J, B, D)."""
        parts = self.sums()
        self.run(iterate, flat(prior), flat(before), flat(c), [flat(part) for part in parts], start)
        return added(parts)

    def gradient(self, prior, before, c, ds, db, v, start):
        """du and dweight, or du_hat and None."""
        if not self.linear:
            du = torch.empty_like(self.u)
            pairs = zip(ds[1:], v, strict=True)
            parents = torch.stack([ds[0], *(rows for pair in pairs for rows in pair)], dim=2)  # (J, B, 2R - 1, D)
            self.run(gradient, flat(c), flat(db), flat(parents), len(ds), start, flat(du))
            return du, None
        du = torch.zeros_like(self.u)
        # Several threads add to one shared matrix: each gets its own.
        parts = self.weight.new_zeros(len(self.ranges) if self.shared else 1, *self.weight.shape)
        per_thread = [flat(parts[k if self.shared else 0]) for k in range(len(self.ranges))]
        numbers = [flat(prior), flat(before), flat(ds), flat(v), len(ds), start]
        self.run(linear_gradient, *numbers, flat(du), per_thread)
        return du, added(parts)

    def run(self, kernel, *per_thread):
        """Call ``kernel`` on each range of children; the k-th call gets the k-th of each list in ``per_thread``."""
        u, weight = flat(self.u), flat(self.weight)

        def part(k):
            own = [value[k] if isinstance(value, list) else value for value in per_thread]
            kernel(*self.ranges[k], self.graph, u, weight, self.shape, self.single, self.height, self.width, *own)

        others = [pool(len(self.ranges)).submit(part, k) for k in range(1, len(self.ranges))]
        part(0)
        for other in others:
            other.result()


def flat(tensor):
    return tensor.detach().reshape(-1).numpy()


def added(parts):
    return parts[0] if len(parts) == 1 else parts.sum(dim=0)
