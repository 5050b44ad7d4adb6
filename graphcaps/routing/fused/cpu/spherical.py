"""Spherical routing on the CPU in R passes over the votes, and its gradient in R - 1 more and one write.

The passes are dynamic routing's (`kernels`): there each iteration's logits are <u_hat, before>, here <u_hat, w>,

    w^r = kappa / rho s^(r-1) / |s^(r-1)|

of the last iteration alone. So nothing adds up from iteration to iteration, in the gradients neither. rho, of all votes
for a parent, comes from the children's products with themselves where votes are linear, which aren't built for it.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ...._dgl import DGLGraph
from ....functional import squash
from ....graph import Links, links
from ...dynamic import Dynamic
from ...edges import Observer, with_length
from ...routing import Parents, squashed
from ...second_derivative import once_differentiable
from ...spherical import Spherical, concentration_per_length
from ...votes import LinearVotes
from . import dynamic
from .dynamic import Shape, agreement_of, route_in_passes
from .images import sums_by_image, votes_by_image
from .memory import empty, zeros
from .passes import EdgesByChild, Passes, sum_of
from .tiles import EQUAL, SOFTMAX


def run(
    graph: DGLGraph,
    votes: Tensor | LinearVotes,
    routing: Spherical,
    b: Tensor,
    activation: Tensor | None,
    observer: Observer | None,
) -> Parents:
    """Spherical routing of votes, which may be ``LinearVotes``, or narrower than b."""
    if routing.iterations == 1:
        return dynamic.run(graph, votes, Dynamic(1), b, activation, observer)
    if (by_image := votes_by_image(graph, votes, b, observer)) is not None:
        return squashed(sums_by_image(graph, by_image, routing.iterations, *_scale(graph, by_image, routing.kappa)))

    def sums(u: Tensor, weight: Tensor, prior: Tensor, index: Tensor | None, *others: Any) -> Tensor:
        if weight.numel():
            scale, per_square = _KappaPerRho.apply(u, weight, routing.kappa, index, graph), None  # (J, B)
        else:
            scale, per_square = _scale(graph, u, routing.kappa)
        learning = others[-1] or (torch.is_grad_enabled() and scale.requires_grad)
        return _Spherical.apply(u, weight, prior, scale, per_square, index, *others[:-1], learning)

    return route_in_passes(sums, graph, votes, b, routing.iterations, observer)


def squared_lengths(votes: LinearVotes, graph: DGLGraph) -> Tensor:
    """(J, B): for each parent the sum of |u_hat|^2 over its in-edges, of children (I, B, P)."""
    (u, weight, index), ends = votes, links(graph, votes.u.device)
    if weight.dim() == 2:
        of_child = (u @ weight).square().sum(-1)  # (I, B)
        return _to_parents(of_child.index_select(0, ends.src), ends)
    if ends.complete and index is None:
        # |u W|^2 = <u u^T, W W^T>, and where children share W their u u^T may be added up first.
        if weight.dim() == 4:
            by_type = u.unflatten(0, (len(weight), -1))  # (T, I/T, B, P)
        else:
            by_type, weight = u.unsqueeze(1), weight.unflatten(0, (ends.num_children, ends.num_parents))
        products = torch.einsum("tnbp,tnbq->tbpq", by_type, by_type)
        return torch.einsum("tbpq,tjpq->jb", products, torch.einsum("tjpd,tjqd->tjpq", weight, weight))
    return _to_parents(votes.build(graph).square().sum(-1), ends)


def _scale(graph: DGLGraph, votes: Tensor, kappa: Tensor) -> tuple[Tensor, Tensor]:
    """kappa / rho (J, B) of given votes (E, B, D), and it over the sum of their squares, 0 where all are zero.

    It is a function of kappa alone to autograd, which would make four tensors of the votes' size for the squares. The
    votes' gradient through it is -dscale per_square u_hat; the kernels add it to what else they write.
    """
    ends = links(graph, votes.device)
    squares = _to_parents(torch.linalg.vector_norm(votes.detach(), dim=-1).square_(), ends)
    scale = concentration_per_length(squares, ends.in_degrees.to(votes.dtype).unsqueeze(-1), kappa)
    found = scale.detach()
    return scale, torch.where(found > 0, found / squares, 0)


def _to_parents(numbers: Tensor, ends: Links) -> Tensor:
    return numbers.new_zeros(ends.num_parents, numbers.shape[1]).index_add(0, ends.dst, numbers)


def _with_length_backward(s: Tensor, length: Tensor, dw: Tensor) -> tuple[Tensor, Tensor]:
    """ds and dlength of w = ``with_length(s, length)``."""
    n = torch.linalg.vector_norm(s, dim=-1, keepdim=True)
    some = n > 1e-12
    n = torch.where(some, n, 1)
    mu = s / n
    along = (dw * mu).sum(-1, keepdim=True)
    return length.unsqueeze(-1) / n * (dw - torch.where(some, along * mu, 0)), along.squeeze(-1)


class _KappaPerRho(torch.autograd.Function):
    """kappa / rho of linear votes by torch's own gradients.

    Second derivatives are refused: they would lack what `_Spherical` adds.
    """

    @staticmethod
    def forward(ctx: Any, u: Tensor, weight: Tensor, kappa: Tensor, index: Tensor | None, graph: DGLGraph) -> Tensor:
        learned, ctx.given = ctx.needs_input_grad, [u, weight, kappa]
        with torch.enable_grad():
            for k, given in enumerate(ctx.given):
                ctx.given[k] = given.detach().requires_grad_(learned[k])
            u, weight, kappa = ctx.given
            squares = squared_lengths(LinearVotes(u, weight, index), graph)
            votes = links(graph, u.device).in_degrees.to(u.dtype).unsqueeze(-1)
            ctx.scale = concentration_per_length(squares, votes, kappa)
        return ctx.scale.detach()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        learned = [k for k in range(3) if ctx.needs_input_grad[k]]
        found = torch.autograd.grad(ctx.scale, [ctx.given[k] for k in learned], grad, retain_graph=True)
        gradients: list[Tensor | None] = [None] * 5
        for k, gradient in zip(learned, found, strict=True):
            gradients[k] = gradient
        return tuple(gradients)


class _Spherical(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        u: Tensor,
        weight: Tensor,
        prior: Tensor,
        scale: Tensor,
        per_square: Tensor | None,
        index: Tensor | None,
        edges: EdgesByChild,
        iterations: int,
        on_iteration: Observer | None,
        trailing: Shape,
        learning: bool,
    ) -> Tensor:
        """The last s (J, B, D), with ``scale`` (J, B) = kappa / rho, and of given votes what `_scale` has beside it."""
        given = Passes(u, weight, index, edges)
        passes = given.with_sorted_votes()
        uniform = not any(prior.stride()) and not ctx.needs_input_grad[2] and bool(prior[0, 0].isfinite())
        by_child = passes.nothing if uniform else edges.by_child(prior)
        c = passes.numbers(iterations - uniform if learning and not passes.linear else 0)
        s = empty((iterations, edges.num_parents, passes.batch, passes.parent_dim), u)  # (R, J, B, D)
        w = zeros(s.shape, s)
        for r in range(iterations):
            if r > 0:
                w[r] = with_length(s[r - 1], scale)
            first = r == 0 and uniform
            kept = c[r - uniform] if len(c) and not first else passes.nothing
            if on_iteration is not None and not len(kept):
                kept = passes.numbers(1)[0]
            s[r] = passes.iterate(by_child, w[r] if r else passes.nothing, kept, EQUAL if first else SOFTMAX)
            if on_iteration is not None:
                v = squash(s[r])
                b = prior + agreement_of(passes, w[r]) if r else prior.expand(len(prior), passes.batch)
                state = (b, edges.in_edge_order(kept), agreement_of(passes, v))
                b, coupling, agreement = (x.reshape(len(x), *trailing) for x in state)
                on_iteration(r, b, coupling, v.reshape(edges.num_parents, *trailing, -1), agreement)
        if learning:
            ctx.save_for_backward(given.u, weight, by_child, scale, per_square, index, c, s, w)
            ctx.edges, ctx.uniform, ctx.reading = edges, uniform, passes if passes is not given else None
        return s[-1].clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        """Gradient of the last s with respect to votes (or u and weight), prior and scale.

        db^r = c^r (<u_hat, ds^r> - sum over the child's out-edges of c^r <u_hat, ds^r>) and
        dw^r = sum over in-edges of db^r u_hat give ds^(r-1), and in the end
        du_hat = sum over r of c^r ds^r + sum over r >= 1 of db^r w^r.
        """
        u, weight, prior, scale, per_square, index, c, s, w = ctx.saved_tensors
        edges, uniform, passes = ctx.edges, ctx.uniform, Passes(u, weight, index, ctx.edges)
        reading = ctx.reading or passes.with_sorted_votes()
        iterations, needs_prior, nothing = len(s), ctx.needs_input_grad[2], passes.nothing
        db, ds = passes.numbers(0 if passes.linear else iterations - 1), empty(s.shape, s)
        ds[-1], dscale, dprior = grad, torch.zeros_like(scale), None
        for r in reversed(range(iterations)):
            if r == 0 and not needs_prior:
                break
            kept_db = nothing if passes.linear or r == 0 else db[r - 1]
            if needs_prior and not len(kept_db):
                kept_db = passes.numbers(1)[0]
            parts = passes.sums() if r > 0 else s.new_empty(len(passes.ranges), 0)
            kept = nothing if passes.linear else c[r - uniform]
            reading.iterate_backward(prior, w[r : r + 1], kept, ds[r : r + 1], nothing, kept_db, parts)
            if needs_prior:
                dprior = kept_db if dprior is None else dprior + kept_db
            if r > 0:
                ds[r - 1], of_scale = _with_length_backward(s[r - 1], scale, sum_of(parts))
                dscale += of_scale
        du = dweight = ctx.reading = reading = None  # of sorted votes, the memory is du's now
        if ctx.needs_input_grad[0] or ctx.needs_input_grad[1]:
            start = EQUAL if uniform else SOFTMAX
            bend = None if per_square is None else -dscale * per_square
            du, dweight = passes.gradient(prior, w, c, ds, db, w[1:], start, adds=False, bend=bend)
        return du, dweight, None if dprior is None else edges.in_edge_order(dprior), dscale, *[None] * 7
