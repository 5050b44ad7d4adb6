"""Self-attention routing on the CPU in two of dynamic routing's passes over the votes, and its gradient in two more.

The first pass sums the votes unweighted, S_j; its product with a vote, over sqrt(D), is the logit of the second. That
is dynamic routing of two iterations, but for the first one's couplings, 1, and for S / sqrt(D) in place of squash(S).
So the kernels are the same (`kernels`), and `dynamic` says how they are called.
"""

from __future__ import annotations

from typing import Any

import torch

from ...._dgl import DGLGraph
from ....functional import squash
from ...attention import Attention, scale
from ...edges import Observer
from ...routing import Parents
from ...second_derivative import once_differentiable
from ...votes import LinearVotes
from .. import passes_of
from .dynamic import Shape, agreement_of, route_in_passes
from .passes import EdgesByChild, Passes, sum_of
from .tiles import ONE, SOFTMAX


def run(
    graph: DGLGraph,
    votes: torch.Tensor | LinearVotes,
    routing: Attention,
    b: torch.Tensor,
    activation: torch.Tensor | None,
    observer: Observer | None,
) -> Parents:
    """Self-attention routing of votes, which may be ``LinearVotes``, or narrower than b."""
    return route_in_passes(_Attention.apply, graph, votes, b, *passes_of(routing, observer))


class _Attention(torch.autograd.Function):
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
        passes = given.with_sorted_votes()
        plain = not any(prior.stride()) and not ctx.needs_input_grad[2] and bool(prior[0, 0].isfinite())
        by_child = passes.nothing if plain else edges.by_child(prior)
        before = passes.u.new_zeros(2, edges.num_parents, passes.batch, passes.parent_dim)  # the second: S / sqrt(D)
        total = passes.iterate(by_child, passes.nothing, passes.nothing, ONE)
        torch.mul(total, scale(passes.parent_dim), out=before[1])
        c = passes.numbers(2 if (learning and not passes.linear) or on_iteration is not None else 0)
        if len(c):
            c[0] = 1
        s = passes.iterate(by_child, before[1], c[1] if len(c) else passes.nothing, SOFTMAX)
        if on_iteration is not None:
            v = squash(s)
            b = prior + agreement_of(passes, before[1])
            state = (b, edges.in_edge_order(c[1]), agreement_of(passes, v))
            b, coupling, agreement = (x.reshape(len(x), *trailing) for x in state)
            v = v.reshape(edges.num_parents, *trailing, -1)
            on_iteration(0, b, coupling, v, agreement)
        if learning:
            ctx.save_for_backward(given.u, weight, by_child, index, c[: 0 if passes.linear else 2], before)
            ctx.edges, ctx.reading = edges, passes if passes is not given else None
        return s

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        """Gradient of s with respect to votes (or u and weight) and prior.

        db = c (<u_hat, grad> - sum over the child's out-edges of c <u_hat, grad>) and
        dS = sum over in-edges of db u_hat / sqrt(D) give du_hat = dS + c grad + db S / sqrt(D).
        """
        u, weight, prior, index, c, before = ctx.saved_tensors
        edges, passes = ctx.edges, Passes(u, weight, index, ctx.edges)
        reading = ctx.reading or passes.with_sorted_votes()
        grad, nothing, parts = grad.contiguous(), passes.nothing, passes.sums()
        db = passes.numbers(1)
        kept = nothing if passes.linear else c[1]
        reading.iterate_backward(prior, before[1:], kept, grad.unsqueeze(0), nothing, db, parts)
        ds = torch.stack([sum_of(parts) * scale(passes.parent_dim), grad])  # (2, J, B, D)
        du = dweight = ctx.reading = reading = None  # of sorted votes, the memory is du's now
        if ctx.needs_input_grad[0] or ctx.needs_input_grad[1]:
            du, dweight = passes.gradient(prior, before, c, ds, db, before[1:], ONE)
        return du, dweight, edges.in_edge_order(db[0]) if ctx.needs_input_grad[2] else None, *[None] * 6
