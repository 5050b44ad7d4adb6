"""The gradient of dynamic routing written out over the edge operations: the votes' own is written once.

Autograd writes a gradient of the votes' size for each of the 2 R - 1 times that an iteration reads them, and adds these
up: 17 times the votes' size for R = 3, beside 5 readings. Here only c and s of each iteration are kept, and going back

    ds = that of the last s, else (sum over in-edges of db u_hat) through squash
    db = db + (<u_hat, ds> through softmax)
    du_hat = sum over r of c ds + sum over r >= 1 of db v of the iteration before

read the votes 2 R - 1 times, 2 R - 2 if the prior needs no gradient, and the last line is one product of matrices.
fused/README.md has the derivation. The iterations themselves stand in ``Dynamic`` alone, here as elsewhere.

For a second derivative, and where torch compiles or exports, the routing is left to autograd.
"""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor

from ..functional import squash
from ..graph.links import is_tracing
from .dynamic import Dynamic
from .edges import DenseEdges, EdgeOps, ScatterEdges
from .routing import Parents, Routing, squashed
from .uniform import Uniform


def with_written_gradient(routing: Routing, edges: EdgeOps, u_hat: Tensor, prior: Tensor) -> Parents | None:
    """``routing(edges, u_hat, prior)`` with the gradient above, or None where it is autograd's to make.

    It is that of dynamic routing and of uniform coupling, its first iteration.
    """
    fits = type(routing) in (Dynamic, Uniform) and type(edges) in (DenseEdges, ScatterEdges)
    if not fits or is_tracing() or not torch.is_grad_enabled():
        return None
    if not (u_hat.requires_grad or prior.requires_grad):
        return None
    s = _Sums.apply(u_hat, prior, edges, routing)
    return squashed(s, squash(s))


class _Recorded:
    """Edge operations that keep what each iteration couples with, and what it sums up to."""

    def __init__(self, edges: EdgeOps):
        self.c: list[Tensor] = []
        self.s: list[Tensor] = []
        self.edges = edges
        self.child_softmax, self.agreement, self.observe = edges.child_softmax, edges.agreement, edges.observe

    def weighted_sum(self, c: Tensor, u_hat: Tensor) -> Tensor:
        s = self.edges.weighted_sum(c, u_hat)
        self.c.append(c)
        self.s.append(s)
        return s


class _Sums(torch.autograd.Function):
    """The last s (J, *, D) of dynamic routing."""

    @staticmethod
    def forward(ctx: Any, u_hat: Tensor, prior: Tensor, edges: DenseEdges | ScatterEdges, routing: Routing) -> Tensor:
        recorded = _Recorded(edges)
        routing(recorded, u_hat, prior)
        ctx.save_for_backward(u_hat, prior, *recorded.s[:-1], *recorded.c)
        ctx.edges, ctx.routing, ctx.iterations = edges, routing, len(recorded.c)
        return recorded.s[-1]

    @staticmethod
    def backward(ctx: Any, ds: Tensor) -> tuple[Tensor | None, ...]:
        u_hat, prior, *saved = ctx.saved_tensors
        edges, iterations, (votes_too, prior_too) = ctx.edges, ctx.iterations, ctx.needs_input_grad[:2]
        if torch.is_grad_enabled():  # a history is asked for
            return *_by_autograd(ctx.routing, edges, u_hat, prior, ds, (votes_too, prior_too)), None, None
        s, c = saved[: iterations - 1], saved[iterations - 1 :]
        of_edges, of_parents, db = [], [], None
        for r in reversed(range(iterations)):
            of_edges.append(c[r])
            of_parents.append(ds)
            if r > 0 or prior_too:
                change = c[r] * edges.agreement(u_hat, ds)
                through_softmax = torch.addcmul(change, c[r], edges.child_sum(change), value=-1)
                db = through_softmax if db is None else db + through_softmax
            if r > 0:
                of_edges.append(db)
                of_parents.append(squash(s[r - 1]))
                ds = through_squash(s[r - 1], edges.weighted_sum(db, u_hat))
        du_hat = edges.outer(of_edges, of_parents, u_hat) if votes_too else None
        return du_hat, db if prior_too else None, None, None


def _by_autograd(routing, edges, u_hat, prior, grad, needed) -> list[Tensor | None]:
    """The gradients of u_hat and prior, those that are ``needed``, with a history of their own."""
    unobserved = copy.copy(edges)
    unobserved.observer = None
    s = routing(unobserved, u_hat, prior).pose
    inputs = [x for x, wanted in zip((u_hat, prior), needed, strict=True) if wanted]
    found = iter(torch.autograd.grad(s, inputs, grad, create_graph=True, materialize_grads=True))
    return [next(found) if wanted else None for wanted in needed]


def through_squash(s: Tensor, dv: Tensor) -> Tensor:
    """The gradient of s (J, *, D) from that of v = s n / (1 + n^2), n = |s|; zero at s = 0, as autograd has it."""
    n = torch.linalg.vector_norm(s, dim=-1, keepdim=True)
    slope = (1 - n * n) / (1 + n * n) / (1 + n * n)  # f' for f = n / (1 + n^2); (1 + n^2)^2 is infinite from 4e9 on
    slope = slope / torch.where(n > 0, n, 1)
    along = (s * dv).sum(-1, keepdim=True)
    return (dv * (n / (1 + n * n))).addcmul_(s, slope * along)


def squash_saving_memory(s: Tensor) -> Tensor:
    """``squash`` with a gradient that has one tensor of s's size beside its result; autograd has three."""
    return squash(s) if is_tracing() or not s.requires_grad else _Squash.apply(s)


class _Squash(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, s: Tensor) -> Tensor:
        ctx.save_for_backward(s)
        return squash(s)

    @staticmethod
    def backward(ctx: Any, dv: Tensor) -> Tensor:
        (s,) = ctx.saved_tensors
        if torch.is_grad_enabled():  # a history is asked for
            return torch.autograd.grad(squash(s), s, dv, create_graph=True)[0]
        return through_squash(s, dv)
