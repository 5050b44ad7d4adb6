"""The gradient of dynamic routing written out over the edge operations: the votes' own is written once.

Autograd writes a gradient of the votes' size for each of the 2 R - 1 times that an iteration reads them, and adds these
up: 17 times the votes' size for R = 3, beside 5 readings. Here only c and s of each iteration are kept, and going back

    ds = that of the last s, else (sum over in-edges of db u_hat) through squash
    db = db + (<u_hat, ds> through softmax)
    du_hat = sum over r of c ds + sum over r >= 1 of db v of the iteration before

read the votes 2 R - 1 times, 2 R - 2 if the prior needs no gradient, and the last line is one product of matrices.
fused/README.md has the derivation. The iterations themselves stand in ``dynamic`` alone, here as elsewhere.

For a second derivative, and where torch compiles or exports, ``dynamic`` is left to autograd.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..functional import squash
from .dynamic import dynamic
from .edge_ops import DenseEdges, EdgeOps, Observer, Parents, ScatterEdges, repeated


def lean_dynamic(
    edges: DenseEdges | ScatterEdges,
    u_hat: Tensor,
    activation: Tensor | None,
    prior: Tensor,
    iterations: int,
    on_iteration: Observer | None,
    parameters: None = None,
) -> Parents:
    """``dynamic`` of the same arguments, with a gradient of fewer readings and writings of the votes."""
    if seen_into() or not torch.is_grad_enabled() or not (u_hat.requires_grad or prior.requires_grad):
        return dynamic(edges, u_hat, activation, prior, iterations, on_iteration)
    s = _Lean.apply(u_hat, prior, edges, iterations, on_iteration)
    v = squash(s)
    return Parents(s, v, torch.linalg.vector_norm(v, dim=-1))


def lean_uniform(
    edges: DenseEdges | ScatterEdges,
    u_hat: Tensor,
    activation: Tensor | None,
    prior: Tensor,
    iterations: int,
    on_iteration: Observer | None,
    parameters: None = None,
) -> Parents:
    """``uniform`` as ``lean_dynamic`` has it."""
    return lean_dynamic(edges, u_hat, activation, prior, 1, repeated(on_iteration, iterations))


class _Kept:
    """Edge operations that keep what each iteration couples with, and what it sums up to."""

    def __init__(self, edges: EdgeOps):
        self.c: list[Tensor] = []
        self.s: list[Tensor] = []
        self.edges = edges
        self.child_softmax, self.agreement = edges.child_softmax, edges.agreement

    def weighted_sum(self, c: Tensor, u_hat: Tensor) -> Tensor:
        s = self.edges.weighted_sum(c, u_hat)
        self.c.append(c)
        self.s.append(s)
        return s


class _Lean(torch.autograd.Function):
    """The last s (J, *, D) of dynamic routing."""

    @staticmethod
    def forward(
        ctx: Any,
        u_hat: Tensor,
        prior: Tensor,
        edges: DenseEdges | ScatterEdges,
        iterations: int,
        on_iteration: Observer | None,
    ) -> Tensor:
        kept = _Kept(edges)
        dynamic(kept, u_hat, None, prior, iterations, on_iteration)  # type: ignore[arg-type]  # has all that it calls
        ctx.save_for_backward(u_hat, prior, *kept.s[:-1], *kept.c)
        ctx.edges, ctx.iterations = edges, iterations
        return kept.s[-1]

    @staticmethod
    def backward(ctx: Any, ds: Tensor) -> tuple[Tensor | None, ...]:
        u_hat, prior, *kept = ctx.saved_tensors
        edges, iterations, (votes_too, prior_too) = ctx.edges, ctx.iterations, ctx.needs_input_grad[:2]
        if torch.is_grad_enabled():  # a history is asked for
            found = _by_autograd(edges, u_hat, prior, iterations, ds, (votes_too, prior_too))
            return *found, None, None, None
        s, c = kept[: iterations - 1], kept[iterations - 1 :]
        of_edges, of_parents, db = [], [], None
        for r in reversed(range(iterations)):
            of_edges.append(c[r])
            of_parents.append(ds)
            if r > 0 or prior_too:
                dc = edges.agreement(u_hat, ds)
                db = edges.through_softmax(c[r], dc) if db is None else db + edges.through_softmax(c[r], dc)
            if r > 0:
                of_edges.append(db)
                of_parents.append(squash(s[r - 1]))
                ds = through_squash(s[r - 1], edges.weighted_sum(db, u_hat))
        du_hat = edges.outer(of_edges, of_parents, u_hat) if votes_too else None
        return du_hat, db if prior_too else None, None, None, None


def _by_autograd(edges, u_hat, prior, iterations, grad, needed) -> list[Tensor | None]:
    """The gradients of u_hat and prior, those that are ``needed``, with a history of their own."""
    s = dynamic(edges, u_hat, None, prior, iterations, None).pose
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


def lean_squash(s: Tensor) -> Tensor:
    """``squash`` with a gradient that has one tensor of s's size beside its result; autograd has three."""
    return squash(s) if seen_into() or not s.requires_grad else _LeanSquash.apply(s)


class _LeanSquash(torch.autograd.Function):
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


def seen_into() -> bool:
    """Whether torch traces or transforms: it wants to see the operations."""
    # The compiler can't see into the second question.
    return torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active()
