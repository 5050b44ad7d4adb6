"""Dynamic routing on the CPU in R passes over the votes, and its gradient in R - 1 more and one write.

`kernels` has the passes; here are the order of the passes, the sums between them, and the autograd rule (the math
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

import torch
from torch.autograd.function import once_differentiable

from ....functional import squash
from ...votes import LinearVotes
from .kernels import agree, step_back
from .passes import Passes, added, flat, has_hub, rows_of
from .tiles import COUPLED, EQUAL


def dynamic(graph, votes, activation, b, iterations, on_iteration, squash_output=True):
    """Dynamic routing; arguments as the other engines', and votes may be ``LinearVotes``, or narrower than b."""
    return routed(_Dynamic.apply, graph, votes, activation, b, iterations, on_iteration, squash_output)


def routed(apply, graph, votes, activation, b, iterations, on_iteration, squash_output):
    """Route by ``apply``, whose sums s are squashed; there is something to sum."""
    linear = isinstance(votes, LinearVotes)
    votes = votes.to(b.dtype)
    if linear and has_hub(rows_of(graph), votes):
        votes, linear = votes.tensor(graph), False
    trailing = b.shape[1:]
    u, weight, index = votes if linear else (votes, votes.new_empty(0), None)
    u = u.reshape(len(u), -1, u.shape[-1])  # (I, B, P), or (E, B, D)
    rows = rows_of(graph)
    learning = torch.is_grad_enabled() and any(x.requires_grad for x in (u, weight, b))
    s = apply(u, weight, b.reshape(len(b), -1), index, rows, iterations, on_iteration, trailing, learning)
    s = s.reshape(rows.num_parents, *trailing, s.shape[-1])
    v = squash(s)
    return v if squash_output else s, torch.linalg.vector_norm(v, dim=-1)


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
