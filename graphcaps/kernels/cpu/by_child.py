"""Routing by a rule on the CPU: R passes over the votes, and R - 1 passes and one write for the gradient.

This module contains the autograd function, which runs the passes of `kernels_by_child` and does the work between them.
`README.md` derives the formulas. Linear votes are not built.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..._dgl import DGLGraph
from ...algorithms.rule import Rule, ratio_of
from ...algorithms.votes import LinearVotes, Votes
from ...edges.scatter import Observer
from ...edges.second_derivative import once_differentiable
from ...functional import squash
from ...graph import Links
from .by_image import sums_by_image, votes_by_image
from .kernels_by_child import iterate_backward, votes_gradient
from .passes import EdgesByChild, Passes, edges_by_child, empty, sum_of, zeros
from .tiles import EQUAL, ONE, SOFTMAX


class Call(NamedTuple):
    """The arguments of `_Route` that aren't tensors."""

    edges: EdgesByChild
    rule: Rule
    trailing: tuple[int, ...]
    observer: Observer | None
    coupling: bool  # whether to return couplings
    learning: bool  # whether a gradient will be needed


def sums(
    graph: DGLGraph | Links, votes: Votes, rule: Rule, prior: Tensor, observer: Observer | None, coupling: bool
) -> tuple[Tensor, Tensor | None]:
    """Return the last sums s (J, *, D) and, with ``coupling``, the last couplings (E, *), detached.

    ``graph`` is a layer's ``Links`` if ``torch.compile`` traces the call; votes are then linear, without an observer.
    """
    compiled = isinstance(graph, Links)
    by_image = None if compiled or observer is not None else votes_by_image(graph, votes, rule, prior)
    if by_image is not None:
        ratio, per_square = ratio_of(graph, by_image, rule.kappa)
        return sums_by_image(graph, by_image, rule.iterations, ratio, per_square, coupling)
    edges, trailing = None if compiled else edges_by_child(graph), tuple(prior.shape[1:])
    if isinstance(votes, LinearVotes):
        u, weight, index = votes.u, votes.weight, votes.index
    else:
        u = votes.build(graph)
        weight, index = u.new_empty(0), None
    u, weight = u.reshape(len(u), -1, u.shape[-1]).contiguous(), weight.contiguous()  # (I, B, P), or (E, B, D)
    ratio, per_square = ratio_of(graph, LinearVotes(u, weight, index) if weight.numel() else u, rule.kappa)
    learning = torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in (u, weight, prior, ratio))
    prior = prior.reshape(len(prior), -1)
    if edges is None:
        from .operators import KINDS, route_by_child

        logits = prior if any(prior.stride()) else None  # a prior without strides doesn't change the softmax
        how = rule.iterations, KINDS.index(rule.kind), coupling, learning, graph.num_parents, *graph.origin
        s, c = route_by_child(u, weight, logits, ratio, index, how=how)
    else:
        call = Call(edges, rule, trailing, observer, coupling, learning)
        s, c = _Route.apply(u, weight, prior, ratio, per_square, index, call)
    s = s.reshape(len(s), *trailing, s.shape[-1])
    return s, c.reshape(len(c), *trailing) if coupling else None


class _Route(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        u: Tensor,
        weight: Tensor,
        prior: Tensor,
        ratio: Tensor | None,
        per_square: Tensor | None,
        index: Tensor | None,
        call: Call,
    ) -> tuple[Tensor, Tensor]:
        """Return the last s (J, B, D) and the last couplings (E, B), which are empty without ``call.coupling``.

        ``ratio`` and ``per_square`` are None, except in spherical routing; `ratio_of` describes them.
        """
        edges, rule = call.edges, call.rule
        given = Passes(u, weight, index, edges)
        passes = given.with_sorted_votes() if rule.iterations > 1 else given
        # A prior whose strides are zero is one number for all edges, which doesn't change the softmax.
        constant = not any(prior.stride()) and not ctx.needs_input_grad[2] and bool(prior[0, 0].isfinite())
        by_child = passes.nothing if constant else edges.by_child(prior)
        mode = ONE if rule.kind == "sums" else EQUAL if constant else SOFTMAX
        skipped = mode == EQUAL  # the first couplings aren't kept if they are equal
        c = passes.numbers(rule.iterations - skipped if call.learning and not passes.linear else 0)
        s = empty((rule.iterations, edges.num_parents, passes.batch, passes.parent_dim), u)  # (R, J, B, D)
        w = zeros(s.shape, s)
        coupling = passes.nothing
        for r in range(rule.iterations):
            if r > 0:
                w[r] = rule.next_query(s[r - 1], w[r - 1], ratio)
            last, couples = r == rule.iterations - 1, r > 0 or mode != ONE
            kept = c[r - skipped] if len(c) and r >= skipped else passes.nothing
            seen = call.observer is not None and couples or call.coupling and last
            coupling = passes.numbers(1)[0] if seen and not len(kept) else kept
            before, how = (w[r], SOFTMAX) if r else (passes.nothing, mode)
            s[r] = passes.iterate(before, how, prior=by_child, c=coupling)
            if call.observer is not None and couples:
                _observe(call, passes, r, prior, w[r], coupling, s[r])
        if call.learning:
            ctx.save_for_backward(given.u, weight, by_child, ratio, per_square, index, c, s, w)
            ctx.call, ctx.mode, ctx.reading = call, mode, passes if passes is not given else None
        coupling = edges.in_edge_order(coupling.clone()) if call.coupling else passes.nothing
        ctx.mark_non_differentiable(coupling)
        ctx.set_materialize_grads(False)  # don't allocate zeros as the couplings' gradient
        return s[-1].clone(), coupling

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor | None, _: None) -> tuple[Tensor | None, ...]:
        """Return the gradients of votes (or children and matrices), prior and ratio."""
        if grad is None:
            return (None,) * 7
        u, weight, prior, ratio, per_square, index, c, s, w = ctx.saved_tensors
        (edges, rule, *_), mode, passes = ctx.call, ctx.mode, Passes(u, weight, index, ctx.call.edges)
        reading = ctx.reading or (passes.with_sorted_votes() if len(s) > 1 else passes)
        needs_prior, nothing = ctx.needs_input_grad[2], passes.nothing
        db, ds = passes.numbers(0 if passes.linear else len(s) - 1), empty(s.shape, s)
        ds[-1], dprior, above = grad, None, nothing
        dratio = None if ratio is None else torch.zeros_like(ratio)
        for r in reversed(range(len(s))):
            if r == 0 and (not needs_prior or mode == ONE):
                break
            of_r = db[r - 1] if len(db) and r > 0 else nothing
            if needs_prior and not len(of_r) and (r == 0 or not rule.adds):
                of_r = passes.numbers(1)[0]
            dw = passes.sums() if r > 0 else s.new_empty(len(passes.ranges), 0)
            # For linear votes, a pass recomputes db of the later iterations whose logits contain those of r.
            logits = slice(r, None if rule.adds and passes.linear else r + 1)
            kept: dict[str, Any] = {} if passes.linear else {"c": c[r - (mode == EQUAL)], "db_above": above}
            kept |= {"prior": prior, "before": w[logits], "ds": ds[logits], "iterations": len(ds[logits])}
            reading.run(iterate_backward, **kept, mode=SOFTMAX, adds=True, db=of_r, dv=list(dw))
            if needs_prior:
                dprior = of_r if rule.adds or dprior is None else dprior + of_r
            if r > 0:
                ds[r - 1], ratio_slope = rule.next_query_backward(s[r - 1], ratio, sum_of(dw))
                dratio = None if dratio is None else dratio + ratio_slope
            above = of_r if rule.adds else nothing
        du = dweight = ctx.reading = reading = None  # free the sorted copy before du is allocated
        if ctx.needs_input_grad[0] or ctx.needs_input_grad[1]:
            added = squash(s[:-1]) if rule.adds else w[1:]  # the term that each iteration adds to the query
            if passes.linear:
                du, dweight = _gradient_of_linear(passes, prior, w, ds, added, mode, rule.adds)
            else:
                bend = nothing if per_square is None or dratio is None else -dratio * per_square
                du = _gradient_of_given(passes, c, ds, db, added, mode, bend)
        return du, dweight, None if dprior is None else edges.in_edge_order(dprior), dratio, None, None, None


def _observe(call: Call, passes: Passes, r: int, prior: Tensor, w: Tensor, c: Tensor, s: Tensor) -> None:
    """Hand iteration r to the observer, ``rule.shown`` times."""
    v, edges = squash(s), call.edges
    b = prior.expand(len(prior), passes.batch)
    b = b + _agreement(passes, w) if r else b
    state = b, edges.in_edge_order(c), _agreement(passes, v)
    b, c, agreement = (x.reshape(len(x), *call.trailing) for x in state)
    v = v.reshape(edges.num_parents, *call.trailing, -1)
    assert call.observer is not None
    first = 1 if call.rule.kind == "sums" else 0  # attention's pass for the unweighted sum isn't an iteration
    for shown in range(call.rule.shown):
        call.observer(r - first + shown, b, c, v, agreement)


def _agreement(passes: Passes, v: Tensor) -> Tensor:
    """<u_hat, v> (E, B) in edge order."""
    agreement = passes.numbers(1)[0]
    passes.iterate(v, b=agreement)
    return passes.edges.in_edge_order(agreement)


def _gradient_of_given(
    passes: Passes, c: Tensor, ds: Tensor, db: Tensor, added: Tensor, mode: int, bend: Tensor
) -> Tensor:
    """Return du_hat (E, B, D). It includes the term bend u_hat unless bend (J, B) is empty."""
    du = empty(passes.u.shape, passes.u)
    rows = [ds[0], *(row for pair in zip(ds[1:], added, strict=True) for row in pair)]
    parents = empty((*ds[0].shape[:2], len(rows), passes.parent_dim), passes.u)  # (J, B, 2R - 1, D)
    torch.stack(rows, dim=2, out=parents)
    passes.run(votes_gradient, c=c, db=db, parents=parents, iterations=len(ds), mode=mode, bend=bend, du=du)
    return du


def _gradient_of_linear(
    passes: Passes, prior: Tensor, w: Tensor, ds: Tensor, added: Tensor, mode: int, adds: bool
) -> tuple[Tensor, Tensor]:
    """Return du (I, B, P) and dweight."""
    du, weight, threads = torch.zeros_like(passes.u), passes.weight, len(passes.ranges)
    # If edges share matrices, several threads would add to the same one, so each gets its own copy.
    parts = weight.new_zeros(threads if passes.shared else 1, *weight.shape)
    dweight = list(parts) if passes.shared else [parts[0]] * threads
    logits = {"prior": prior, "before": w, "ds": ds, "iterations": len(ds), "mode": mode, "adds": adds}
    passes.run(iterate_backward, **logits, v=added, du=du, dweight=dweight)
    return du, sum_of(parts)
