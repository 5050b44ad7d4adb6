"""Dynamic routing on the CPU in R passes over the votes, and its gradient in R - 1 more and one write.

`kernels_cpu` has the passes; here are the order of the passes, the sums between them, and the autograd rule (the math
is in the docstring of `_Dynamic.backward`). Linear votes are not built, unless one child has most of the edges.
Children are shared out to torch's number of threads, each with sums of its own, so that nothing is added in an order
that changes from run to run.

Tried and not kept, with one thread's time beside that of what is here: tiles of 16 images instead of as many as 128 KB
of votes hold (a pass of 1152 -> 10 at B 32: 2.6 against 1.6 ms, because votes are then read in pieces); votes in random
order read where they stand (21 against 12 ns an edge and pass); the softmax of small children in place, in vectors
stored in part (6.5 against 3 ns an edge); the gradient through the cache (42 against 20 ns an edge); the softmax of
many children at once for its own sake (no gain).
"""

from __future__ import annotations

import copy
import functools
import os
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
from torch.autograd.function import once_differentiable

from ..functional import squash
from ..graph import once_per_structure
from .dynamic import on_torch
from .kernels_cpu import agree, arrange, gradient, iterate, linear_gradient, step_back
from .tiles_cpu import COUPLED, EQUAL, LANES
from .votes import LinearVotes


def dynamic(graph, votes, activation, b, iterations, on_iteration, squash_output=True):
    """Dynamic routing; arguments as the other engines', and votes may be ``LinearVotes``, or narrower than b."""
    return routed(_Dynamic.apply, on_torch, graph, votes, activation, b, iterations, on_iteration, squash_output)


def routed(apply, instead, graph, votes, activation, b, iterations, on_iteration, squash_output):
    """Route by ``apply``, whose sums s are squashed, or by ``instead`` where there is nothing to sum."""
    linear = isinstance(votes, LinearVotes)
    votes = votes.to(b.dtype)
    if linear and b.numel() > 0 and _has_hub(_rows(graph), votes):
        votes, linear = votes.tensor(graph), False
    if b.numel() == 0 or (votes.weight if linear else votes).numel() == 0:
        u_hat = votes.tensor(graph) if linear else votes
        return instead(graph, u_hat, activation, b, iterations, on_iteration, squash_output)
    trailing = b.shape[1:]
    u, weight, index = votes if linear else (votes, votes.new_empty(0), None)
    u = u.reshape(len(u), -1, u.shape[-1])  # (I, B, P), or (E, B, D)
    rows = _rows(graph)
    learning = torch.is_grad_enabled() and any(x.requires_grad for x in (u, weight, b))
    s = apply(u, weight, b.reshape(len(b), -1), index, rows, iterations, on_iteration, trailing, learning)
    s = s.reshape(rows.num_parents, *trailing, s.shape[-1])
    v = squash(s)
    return v if squash_output else s, torch.linalg.vector_norm(v, dim=-1)


def _has_hub(rows, votes):
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


class _Rows:
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


_rows = once_per_structure(_Rows)

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


class _Dynamic(torch.autograd.Function):
    @staticmethod
    def forward(ctx, u, weight, prior, index, rows, iterations, on_iteration, trailing, learning):
        given = Passes(u, weight, index, rows)
        passes = given.arranged() if iterations > 1 else given
        # A prior without strides is one number for all edges: it changes no coupling, if it is finite.
        uniform = not any(prior.stride()) and not ctx.needs_input_grad[2] and bool(prior[0, 0].isfinite())
        by_child = passes.nothing if uniform else rows.by_child(prior)
        c = passes.numbers(iterations - uniform if learning and not passes.linear else 0)
        s = passes.u.new_empty(iterations, rows.num_parents, passes.batch, passes.dim)  # (R, J, B, D)
        before, v = torch.zeros_like(s), None
        b = None if on_iteration is None else prior.expand(len(prior), passes.batch).clone()
        for r in range(iterations):
            if r > 0:
                torch.add(before[r - 1], v, out=before[r])
            first = r == 0 and uniform
            kept = c[r - uniform] if len(c) and not first else passes.nothing
            if on_iteration is not None and not len(kept):
                kept = passes.numbers(1)[0]
            s[r] = passes.iterate(by_child, before[r] if r else passes.nothing, kept, EQUAL if first else COUPLED)
            if r < iterations - 1 or on_iteration is not None:
                v = squash(s[r])
            if on_iteration is not None:
                agreement = agreement_of(passes, v)
                seen = (b, rows.in_edge_order(kept), agreement)
                b_seen, c_seen, a_seen = (x.reshape(len(x), *trailing) for x in seen)
                on_iteration(r, b_seen, c_seen, v.reshape(rows.num_parents, *trailing, -1), a_seen)
                b += agreement
        if learning:
            ctx.save_for_backward(given.u, weight, by_child, index, c, s, before)
            ctx.rows, ctx.uniform, ctx.reading = rows, uniform, passes if passes is not given else None
        return s[-1].clone()

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        """Gradient of the parents' last s with respect to votes (or u and weight) and prior.

        With f = n / (1 + n^2), n = |s|, going back from r = R - 1:
            ds = grad in the last iteration, else f dv + s f'/n <s, dv> with dv = sum over in-edges of db u_hat
            db = db + c (<u_hat, ds> - sum over the child's out-edges of c <u_hat, ds>)
        and du_hat = sum over r of c^r ds^r + sum over r >= 1 of db^r v^(r-1). Only the prior needs the pass for r = 0.
        """
        u, weight, prior, index, c, s, before = ctx.saved_tensors
        rows, uniform, passes = ctx.rows, ctx.uniform, Passes(u, weight, index, ctx.rows)
        reading = ctx.reading or (passes.arranged() if len(s) > 1 else passes)
        iterations, needs_prior = len(s), ctx.needs_input_grad[2]
        v, ds, nothing = squash(s[:-1]), torch.empty_like(s), passes.nothing
        db = passes.numbers(0 if passes.linear else iterations - 1)
        ds[-1], dprior, above = grad, None, nothing
        for r in reversed(range(iterations)):
            if r == 0 and not needs_prior:
                break
            if r == 0:
                below = dprior = passes.numbers(1)[0]
            else:
                below = nothing if passes.linear else db[r - 1]
            parts = passes.sums() if r > 0 else s.new_empty(len(passes.ranges), 0)
            kept = nothing if passes.linear else c[r - uniform]
            numbers = [flat(prior), flat(before[r:]), flat(ds[r:]), iterations - r, flat(kept), flat(above)]
            reading.run(step_back, *numbers, flat(below), [flat(part) for part in parts])
            if r > 0:
                ds[r - 1] = _squash_backward(s[r - 1], added(parts))
            above = below
        du = dweight = ctx.reading = reading = None  # of ordered votes, the memory is du's now
        if ctx.needs_input_grad[0] or ctx.needs_input_grad[1]:
            du, dweight = passes.gradient(prior, before, c, ds, db, v, EQUAL if uniform else COUPLED)
        return du, dweight, None if dprior is None else rows.in_edge_order(dprior), *[None] * 6


def _squash_backward(s, dv):
    n = torch.linalg.vector_norm(s, dim=-1, keepdim=True)
    slope = (1 - n * n) / (1 + n * n) / (1 + n * n)  # f'; a square of 1 + n^2 is infinite for n above 4e9
    slope = slope / n.clamp_min(torch.finfo(s.dtype).tiny)  # s = 0 takes it to 0
    return dv * (n / (1 + n * n)) + s * slope * (s * dv).sum(dim=-1, keepdim=True)


def agreement_of(passes, v):
    """<u_hat, v> (E, B) in edge order, for an observer: what the next iteration adds to b."""
    to = passes.numbers(1)[0]
    passes.run(agree, flat(v), flat(to))
    return passes.rows.in_edge_order(to)
