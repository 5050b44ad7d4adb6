"""Routing by a rule on the CPU: R passes over the votes, and R - 1 passes and one write for the gradient.

This module runs the passes of `kernels_by_child` and does the work between them. `README.md` derives the formulas.
Linear votes are not built.
"""

from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from ...algorithms.rule import Rule
from ...algorithms.votes import LinearVotes, Votes
from ...functional import squash
from ...graph import ByChild, Links
from ..operators import operator, or_none
from ..ratio import ratio_of
from .kernels_by_child import iterate, iterate_backward, votes_gradient
from .passes import Passes, empty, sum_of, zeros
from .tiles import EQUAL, ONE, SOFTMAX

KINDS: tuple[Literal["capsules", "directions", "sums"], ...] = "capsules", "directions", "sums"


def sums_by_child(
    links: Links, votes: Votes, rule: Rule, prior: Tensor, coupling: bool
) -> tuple[Tensor, Tensor | None]:
    """Return the last sums s (J, *, D) and, with ``coupling``, the last couplings (E, *), detached."""
    trailing, order = tuple(prior.shape[1:]), links.by_child
    if isinstance(votes, LinearVotes):
        u, weight, index = votes.u, votes.weight, votes.index
    else:
        u = votes.build(links)
        weight, index = u.new_empty(0), None
    u, weight = u.reshape(len(u), -1, u.shape[-1]).contiguous(), weight.contiguous()  # (I, B, P), or (E, B, D)
    ratio, per_square = ratio_of(links, LinearVotes(u, weight, index) if weight.numel() else u, rule.kappa)
    learning = torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in (u, weight, prior, ratio))
    logits = None if _is_constant(prior) else prior.reshape(len(prior), -1)
    settings = rule.iterations, KINDS.index(rule.kind), coupling, learning, links.num_parents, order.most, order.sorted
    s, c = route_by_child(u, weight, logits, ratio, per_square, index, *order[:3], settings=settings)
    s = s.reshape(s.shape[0], *trailing, s.shape[-1])
    return s, c.reshape(c.shape[0], *trailing) if coupling else None


def _is_constant(prior: Tensor) -> bool:
    """Whether the prior is one finite number for all edges, by its strides. It then doesn't change the softmax."""
    if any(prior.stride()) or (torch.is_grad_enabled() and prior.requires_grad):
        return False
    return torch.compiler.is_compiling() or bool(prior[(0,) * prior.dim()].isfinite())


class _Call(NamedTuple):
    """The arguments of the operator, and what follows from them."""

    u: Tensor  # votes (E, B, D), or children (I, B, P)
    weight: Tensor  # (M, P, D), or empty for given votes
    prior: Tensor  # (E, B) in edge order, or empty if it is one number for all edges
    ratio: Tensor | None  # (J, B), kappa / rho in spherical routing
    per_square: Tensor | None  # (J, B): `ratio_of` describes it
    edges: ByChild
    passes: Passes
    rule: Rule
    coupling: bool  # whether to return couplings
    learning: bool  # whether a gradient will be needed
    mode: int  # how the first couplings are computed


def _call(tensors: list[Tensor], settings: list[int]) -> _Call:
    iterations, kind, coupling, learning, num_parents, most, in_order = settings
    (u, weight, prior), (ratio, per_square, index) = tensors[:3], map(or_none, tensors[3:6])
    indptr, eid, dst = tensors[6:9]
    edges, rule = ByChild(indptr, eid, dst, most, bool(in_order)), Rule(iterations, KINDS[kind])
    mode = ONE if rule.kind == "sums" else SOFTMAX if prior.numel() else EQUAL
    passes = Passes(u, weight, index, edges, num_parents)
    return _Call(u, weight, prior, ratio, per_square, edges, passes, rule, bool(coupling), bool(learning), mode)


def _forward(tensors: list[Tensor], settings: list[int]) -> list[Tensor]:
    """Return the last s (J, B, D), the last couplings (E, B) or an empty tensor, and for the gradient:

    c (R or R - 1, E, B), the couplings of given votes sorted by child; s and w (R, J, B, D); and the votes sorted by
    child, if the passes read such a copy. All are empty if no gradient is needed.
    """
    call = _call(tensors, settings)
    rule, given, edges = call.rule, call.passes, call.edges
    passes = given.with_sorted_votes() if rule.iterations > 1 else given
    by_child = edges.in_this_order(call.prior) if call.prior.numel() else passes.nothing
    skipped = call.mode == EQUAL  # the first couplings aren't kept if they are equal
    c = passes.numbers(rule.iterations - skipped if call.learning and not passes.linear else 0)
    s = empty((rule.iterations, passes.num_parents, passes.batch, passes.parent_dim), call.u)  # (R, J, B, D)
    w = zeros(s.shape, s)
    coupling = passes.nothing
    for r in range(rule.iterations):
        if r > 0:
            w[r] = rule.next_query(s[r - 1], w[r - 1], call.ratio)
        of_iteration = c[r - skipped] if len(c) and r >= skipped else passes.nothing
        needs_own = call.coupling and r == rule.iterations - 1 and not len(of_iteration)
        coupling = passes.numbers(1)[0] if needs_own else of_iteration
        before, mode = (w[r], SOFTMAX) if r else (passes.nothing, call.mode)
        parts = passes.sums()
        passes.run(iterate, prior=by_child, before=before, mode=mode, c=coupling, s=list(parts))
        s[r] = sum_of(parts)
    result, nothing = s[-1].clone(), call.u.new_empty(0)
    coupling = edges.in_edge_order(coupling.clone()) if call.coupling else nothing
    if not call.learning:
        return [result, coupling, nothing, nothing.clone(), nothing.clone(), nothing.clone()]
    return [result, coupling, c, s, w, passes.u if passes is not given else nothing.clone()]


def _shapes(tensors: list[Tensor], settings: list[int]) -> list[tuple[int, ...]]:
    u, weight, prior, *_, eid, _ = tensors
    iterations, kind, coupling, learning, num_parents, _, in_order = settings
    num_edges, linear = eid.shape[0], weight.shape[0] > 0
    s = num_parents, u.shape[1], weight.shape[-1] if linear else u.shape[-1]
    skipped = KINDS[kind] != "sums" and prior.shape[0] == 0
    c = iterations - skipped if learning and not linear else 0
    sorts = not linear and not in_order and iterations > 1 and Passes.saves_time_sorted(u)
    numbers = (num_edges, u.shape[1])
    shapes = [s, numbers if coupling else (0,)]
    if not learning:
        return [*shapes, *[(0,)] * 4]
    return [*shapes, (c, *numbers), (iterations, *s), (iterations, *s), u.shape if sorts else (0,)]


def _differentiate(
    grads: list[Tensor], saved: list[Tensor], settings: list[int], needed: list[bool]
) -> tuple[Tensor | None, ...]:
    """Return the gradients of votes (or children and matrices), prior and ratio."""
    call, (c, s, w, gathered) = _call(saved[:9], settings), saved[9:]
    passes, rule, ratio, mode = call.passes, call.rule, call.ratio, call.mode
    reading = passes.reading_sorted(gathered) if gathered.numel() else passes
    nothing = passes.nothing
    prior = call.edges.in_this_order(call.prior) if call.prior.numel() else nothing
    db, ds = passes.numbers(0 if passes.linear else len(s) - 1), empty(s.shape, s)
    ds[-1], dprior, above = grads[0], None, nothing
    dratio = None if ratio is None else torch.zeros_like(ratio)
    for r in reversed(range(len(s))):
        if r == 0 and (not needed[2] or mode == ONE):
            break
        of_r = db[r - 1] if len(db) and r > 0 else nothing
        if needed[2] and not len(of_r) and (r == 0 or not rule.adds):
            of_r = passes.numbers(1)[0]
        dw = passes.sums() if r > 0 else s.new_empty(len(passes.ranges), 0)
        # For linear votes, a pass recomputes db of the later iterations whose logits contain those of r.
        logits = slice(r, None if rule.adds and passes.linear else r + 1)
        arrays: dict[str, Any] = {} if passes.linear else {"c": c[r - (mode == EQUAL)], "db_above": above}
        arrays |= {"prior": prior, "before": w[logits], "ds": ds[logits], "iterations": len(ds[logits])}
        reading.run(iterate_backward, **arrays, mode=SOFTMAX, adds=True, db=of_r, dv=list(dw))
        if needed[2]:
            dprior = of_r if rule.adds or dprior is None else dprior + of_r
        if r > 0:
            ds[r - 1], ratio_slope = rule.next_query_backward(s[r - 1], ratio, sum_of(dw))
            dratio = None if dratio is None or ratio_slope is None else dratio + ratio_slope
        above = of_r if rule.adds else nothing
    du = dweight = None
    if needed[0] or needed[1]:
        added = squash(s[:-1]) if rule.adds else w[1:]  # the term that each iteration adds to the query
        if passes.linear:
            du, dweight = _gradient_of_linear(passes, prior, w, ds, added, mode, rule.adds)
        else:
            bend = nothing if call.per_square is None or dratio is None else -dratio * call.per_square
            du = _gradient_of_given(passes, c, ds, db, added, mode, bend)
    of_prior = None if dprior is None else call.edges.in_edge_order(dprior)
    return du, dweight, of_prior, dratio, *[None] * (len(needed) - 4)


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


route_by_child = operator("by_child", _forward, _shapes, _differentiate, num_saved=0)
