"""Dynamic routing on the CPU in R passes over the votes, and its gradient in R more and one write.

`kernels_cpu` has the passes; here are the order of the passes, the sums between them, and the autograd rule (the math
is in the docstring of `_Dynamic.backward`). Linear votes are never built. Children are shared out to torch's number of
threads, each with sums of its own, so that nothing is added in an order that changes from run to run.

Tried and not kept: loops over D inside the kernels, which compiled to scalar code, about 2x slower. Not tried:
parent-major passes, which would read the votes of a tile twice per iteration.
"""

from __future__ import annotations

import functools
import os
import weakref
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
from torch.autograd.function import once_differentiable

from ..functional import squash
from .dynamic import on_torch
from .kernels_cpu import gradient, iterate, step_back
from .votes import LinearVotes


def dynamic(graph, votes, activation, b, iterations, on_iteration):
    """Dynamic routing; arguments as the other engines', and votes may be ``LinearVotes``."""
    linear = isinstance(votes, LinearVotes)
    if b.numel() == 0 or (votes.weight if linear else votes).numel() == 0:
        u_hat = votes.tensor(graph) if linear else votes
        return on_torch(graph, u_hat, activation, b, iterations, on_iteration)
    trailing = b.shape[1:]
    u, weight = (votes.u, votes.weight) if linear else (votes, votes.new_empty(0))
    u = u.reshape(len(u), -1, u.shape[-1])  # (I, B, P), or (E, B, D)
    rows = _rows(graph)
    v = _Dynamic.apply(u, weight, b.reshape(len(b), -1), rows, iterations, on_iteration, trailing)
    v = v.reshape(rows.num_parents, *trailing, v.shape[-1])
    return v, torch.linalg.vector_norm(v, dim=-1)


class _Rows:
    """A graph's edges sorted by child, as NumPy arrays, and the children in ranges of about equal numbers of edges."""

    def __init__(self, graph):
        src, dst = (end.cpu() for end in graph.edges(order="eid"))
        self.num_children, self.num_parents = graph.num_src_nodes(), graph.num_dst_nodes()
        self.eid = torch.argsort(src, stable=True)  # (E,)
        self.sorted = bool((self.eid == torch.arange(len(src))).all())
        self.src, self.dst = src[self.eid].long(), dst[self.eid].long()
        counts = torch.bincount(self.src, minlength=self.num_children)
        self.indptr = torch.cat([counts.new_zeros(1), counts.cumsum(0)]).numpy()

    def arrays(self, weight):
        """What the kernels take: indptr, eid, dst, and the number of each edge's weight matrix."""
        if weight.dim() == 4:
            types = weight.shape[0]
            wid = self.src // (self.num_children // types) * self.num_parents + self.dst
        else:
            wid = torch.zeros_like(self.eid) if weight.dim() == 2 else self.eid
        return self.indptr, self.eid.numpy(), self.dst.numpy(), wid.numpy()

    def ranges(self, parts):
        """(lo, hi) of children for each thread."""
        cuts = np.searchsorted(self.indptr, np.linspace(0, self.indptr[-1], parts + 1)[1:-1])
        cuts = [0, *cuts.tolist(), self.num_children]
        return list(zip(cuts[:-1], cuts[1:], strict=True))

    def in_edge_order(self, values):
        """(E, ...) values in the order of k -> in the graph's edge order."""
        return values if self.sorted else torch.empty_like(values).index_copy_(0, self.eid, values)


_cache: dict[int, _Rows] = {}


def _rows(graph) -> _Rows:
    structure = graph._graph
    if id(structure) not in _cache:
        weakref.finalize(structure, _cache.pop, id(structure), None)
        _cache[id(structure)] = _Rows(graph)
    return _cache[id(structure)]


MOST_SUMS = 2**28  # bytes that the threads' own sums may take together


@functools.cache
def _pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads, thread_name_prefix="graphcaps")


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pool.cache_clear)  # a forked process has the pool but not its threads


class _Passes:
    """The votes and everything that stays the same from pass to pass; calls the kernels on all threads."""

    def __init__(self, u, weight, rows):
        self.u, self.weight, self.rows = u.contiguous(), weight.contiguous(), rows
        linear = weight.numel() > 0
        self.batch, self.dim = u.shape[1], weight.shape[-1] if linear else u.shape[-1]
        self.height, self.width = (0,) * (u.shape[-1] if linear else 0), (0,) * self.dim
        self.graph = rows.arrays(weight)
        sums = rows.num_parents * self.batch * self.dim * u.element_size()  # per thread
        self.ranges = rows.ranges(min(torch.get_num_threads(), max(1, MOST_SUMS // max(1, sums))))

    def sums(self):
        """Zeroed sums over in-edges (threads, J, B, D)."""
        return self.u.new_zeros(len(self.ranges), self.rows.num_parents, self.batch, self.dim)

    def run(self, kernel, *per_thread):
        """Call ``kernel`` on each range of children; the k-th call gets the k-th of each list in ``per_thread``."""
        u, weight = _flat(self.u), _flat(self.weight)

        def part(k):
            own = [value[k] if isinstance(value, list) else value for value in per_thread]
            kernel(*self.ranges[k], self.graph, u, weight, self.batch, self.height, self.width, *own)

        others = [_pool(len(self.ranges)).submit(part, k) for k in range(1, len(self.ranges))]
        part(0)
        for other in others:
            other.result()


def _flat(tensor):
    return tensor.detach().reshape(-1).numpy()


class _Dynamic(torch.autograd.Function):
    @staticmethod
    def forward(ctx, u, weight, prior, rows, iterations, on_iteration, trailing):
        passes = _Passes(u, weight, rows)
        uniform = not bool(prior.any())
        b = prior[rows.eid] if not rows.sorted else prior.clone()  # (E, B), by child
        c = b.new_empty(iterations, *b.shape)  # (R, E, B)
        s = b.new_empty(iterations, rows.num_parents, passes.batch, passes.dim)  # (R, J, B, D)
        v = s.new_zeros(s.shape[1:])
        for r in range(iterations):
            parts = passes.sums()
            first = r == 0
            passes.run(iterate, _flat(b), _flat(v), _flat(c[r]), [_flat(p) for p in parts], first, first and uniform)
            torch.sum(parts, dim=0, out=s[r])
            v = squash(s[r])
            if on_iteration is not None:
                seen = (rows.in_edge_order(x) for x in (b, c[r], _agreement(passes, v, b)))
                b_seen, c_seen, agreement = (x.reshape(len(x), *trailing) for x in seen)
                on_iteration(r, b_seen, c_seen, v.reshape(rows.num_parents, *trailing, -1), agreement)
        ctx.save_for_backward(u, weight, c, s)
        ctx.rows = rows
        return v

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        """Gradient of the parents' last v with respect to votes (or u and weight) and prior.

        With f = n / (1 + n^2), n = |s|, going back from r = R - 1:
            dv = grad in the last iteration, else sum over in-edges of db u_hat
            ds = f dv + s f'/n <s, dv>
            db = db + c (<u_hat, ds> - sum over the child's out-edges of c <u_hat, ds>)
        and du_hat = sum over r of c^r ds^r + sum over r >= 1 of db^r v^(r-1).
        """
        u, weight, c, s = ctx.saved_tensors
        rows, passes = ctx.rows, _Passes(u, weight, ctx.rows)
        v, ds, db = squash(s), torch.empty_like(s), torch.empty_like(c)
        dv, above = grad, torch.zeros_like(c[0])
        for r in reversed(range(len(c))):
            ds[r] = _squash_backward(s[r], dv)
            parts = passes.sums() if r > 0 else c.new_empty(len(passes.ranges), 0)
            dv_parts = [_flat(part) for part in parts]
            passes.run(step_back, _flat(c[r]), _flat(ds[r]), _flat(above), _flat(db[r]), dv_parts, r > 0)
            dv, above = parts.sum(dim=0), db[r]
        need_votes = ctx.needs_input_grad[0] or ctx.needs_input_grad[1]
        du = dweight = None
        if need_votes:
            du = torch.zeros_like(passes.u)
            shared = weight.dim() in (2, 4)  # several threads add to one matrix: each gets its own
            dweights = weight.new_zeros(len(passes.ranges) if shared else 1, *weight.shape)
            per_thread = [_flat(dweights[k if shared else 0]) for k in range(len(passes.ranges))]
            numbers = [x.numpy() for x in (c.flatten(1), ds.flatten(1), db.flatten(1), v.flatten(1))]
            passes.run(gradient, *numbers, _flat(du), per_thread)
            dweight = dweights.sum(dim=0) if weight.numel() else None
        return du, dweight, rows.in_edge_order(db[0]), None, None, None, None


def _squash_backward(s, dv):
    n = torch.linalg.vector_norm(s, dim=-1, keepdim=True)
    slope = (1 - n * n) / (1 + n * n) ** 2 / n.clamp_min(torch.finfo(s.dtype).tiny)  # f' / n; s = 0 takes it to 0
    return dv * (n / (1 + n * n)) + s * slope * (s * dv).sum(dim=-1, keepdim=True)


def _agreement(passes, v, b):
    """<u_hat, v> (E, B), by child, for an observer: what the next iteration would add to b."""
    added, c = torch.zeros_like(b), torch.empty_like(b)
    passes.run(iterate, _flat(added), _flat(v), _flat(c), [_flat(p) for p in passes.sums()], False, False)
    return added
