"""Dynamic routing on the CPU in R passes over the votes, and its gradient in R - 1 more and one write.

`kernels` has the passes; here are their order, the sums between them, and the autograd rule. `fused/README.md`
derives both, and says what was tried. Linear votes are not built, unless one child has most of the edges. Children are
shared out to torch's number of threads, each with sums of its own, so that nothing is added in an order that changes
from run to run.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ...._dgl import DGLGraph
from ....functional import squash
from ...dynamic import Dynamic
from ...edges import Observer
from ...gradient import through_squash
from ...routing import Parents, squashed
from ...second_derivative import once_differentiable
from ...uniform import Uniform
from ...votes import LinearVotes
from .. import passes_of
from .images import sums_by_image, votes_by_image
from .kernels import agree
from .memory import empty, zeros
from .passes import EdgesByChild, Passes, edges_by_child, has_hub, sum_of
from .tiles import EQUAL, SOFTMAX

Shape = tuple[int, ...]


def run(
    graph: DGLGraph,
    votes: torch.Tensor | LinearVotes,
    routing: Dynamic | Uniform,
    b: torch.Tensor,
    activation: torch.Tensor | None,
    observer: Observer | None,
) -> Parents:
    """Dynamic routing, or its first pass for uniform coupling, whose observer sees the same state R times."""
    if (u := votes_by_image(graph, votes, b, observer)) is not None:
        return squashed(sums_by_image(graph, u, passes_of(routing, None)[0]))
    return route_in_passes(_Dynamic.apply, graph, votes, b, *passes_of(routing, observer))


def route_in_passes(
    sums: Callable[..., torch.Tensor],
    graph: DGLGraph,
    votes: torch.Tensor | LinearVotes,
    b: torch.Tensor,
    iterations: int,
    observer: Observer | None,
) -> Parents:
    """Squash the last sums s, which ``sums`` gives."""
    votes = votes.to(b.dtype)
    edges = edges_by_child(graph)
    if isinstance(votes, LinearVotes) and has_hub(edges, votes):
        votes = votes.build(graph)
    u, weight, index = votes if isinstance(votes, LinearVotes) else (votes, votes.new_empty(0), None)
    trailing = tuple(b.shape[1:])
    u, weight = u.reshape(len(u), -1, u.shape[-1]).contiguous(), weight.contiguous()  # (I, B, P), or (E, B, D)
    learning = torch.is_grad_enabled() and any(x.requires_grad for x in (u, weight, b))
    s = sums(u, weight, b.reshape(len(b), -1), index, edges, iterations, observer, trailing, learning)
    return squashed(s.reshape(edges.num_parents, *trailing, s.shape[-1]))


class _Dynamic(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        u: torch.Tensor,
        weight: torch.Tensor,
        prior: torch.Tensor,
        index: torch.Tensor | None,
        edges: EdgesByChild,
        iterations: int,
        on_iteration: Observer | None,
        trailing: Shape,
        learning: bool,
    ) -> torch.Tensor:
        given = Passes(u, weight, index, edges)
        passes = given.with_sorted_votes() if iterations > 1 else given
        # A prior without strides is one number for all edges, and a constant prior leaves the softmax unchanged.
        uniform = not any(prior.stride()) and not ctx.needs_input_grad[2]
        uniform = uniform and bool(prior[0, 0].isfinite())
        by_child = passes.nothing if uniform else edges.by_child(prior)
        c = passes.numbers(iterations - uniform if learning and not passes.linear else 0)
        s = empty((iterations, edges.num_parents, passes.batch, passes.parent_dim), u)  # (R, J, B, D)
        before = zeros(s.shape, s)
        b = prior if on_iteration is None else prior.expand(len(prior), passes.batch).clone()
        for r in range(iterations):
            if r > 0:
                torch.add(before[r - 1], squash(s[r - 1]), out=before[r])
            first = r == 0 and uniform
            kept = c[r - uniform] if len(c) and not first else passes.nothing
            if on_iteration is not None and not len(kept):
                kept = passes.numbers(1)[0]
            s[r] = passes.iterate(by_child, before[r] if r else passes.nothing, kept, EQUAL if first else SOFTMAX)
            if on_iteration is not None:
                v = squash(s[r])
                agreement = agreement_of(passes, v)
                state = (b, edges.in_edge_order(kept), agreement)
                b_seen, c_seen, a_seen = (x.reshape(len(x), *trailing) for x in state)
                on_iteration(r, b_seen, c_seen, v.reshape(edges.num_parents, *trailing, -1), a_seen)
                b += agreement
        if learning:
            ctx.save_for_backward(given.u, weight, by_child, index, c, s, before)
            ctx.edges, ctx.uniform = edges, uniform
            ctx.reading = passes if passes is not given else None
        return s[-1].clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        """Gradient of the parents' last s with respect to votes (or u and weight) and prior.

        Only the prior needs the pass for r = 0.
        """
        u, weight, prior, index, c, s, before = ctx.saved_tensors
        edges, uniform, passes = ctx.edges, ctx.uniform, Passes(u, weight, index, ctx.edges)
        reading = ctx.reading or (passes.with_sorted_votes() if len(s) > 1 else passes)
        iterations, needs_prior = len(s), ctx.needs_input_grad[2]
        v, ds, nothing = squash(s[:-1]), empty(s.shape, s), passes.nothing
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
            reading.iterate_backward(prior, before[r:], kept, ds[r:], above, below, parts)
            if r > 0:
                ds[r - 1] = through_squash(s[r - 1], sum_of(parts))
            above = below
        du = dweight = ctx.reading = reading = None  # of sorted votes, the memory is du's now
        if ctx.needs_input_grad[0] or ctx.needs_input_grad[1]:
            du, dweight = passes.gradient(prior, before, c, ds, db, v, EQUAL if uniform else SOFTMAX)
        return du, dweight, None if dprior is None else edges.in_edge_order(dprior), *[None] * 6


def agreement_of(passes: Passes, v: torch.Tensor) -> torch.Tensor:
    """<u_hat, v> (E, B) in edge order, for an observer: what the next iteration adds to b."""
    agreement = passes.numbers(1)[0]
    passes.run(agree, v=v, agreement=agreement)
    return passes.edges.in_edge_order(agreement)
