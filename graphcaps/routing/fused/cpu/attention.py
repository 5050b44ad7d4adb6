"""Self-attention routing on the CPU in two of dynamic routing's passes over the votes, and its gradient in two more.

The first pass sums the votes unweighted, S_j; its product with a vote, over sqrt(D), is the logit of the second. That
is dynamic routing of two iterations, but for the first one's couplings, 1, and for S / sqrt(D) in place of squash(S).
So the kernels are the same (`kernels`), and `dynamic` says how they are called.
"""

from __future__ import annotations

import torch
from torch.autograd.function import once_differentiable

from ....functional import squash
from ...attention import scale
from ...edge_ops import repeated
from .dynamic import agreement_of, routed
from .kernels import step_back
from .passes import Passes, added, flat
from .tiles import COUPLED, WHOLE


def attention(graph, votes, activation, b, iterations, on_iteration, squash_output=True):
    """Self-attention routing; arguments as the other engines', and votes may be ``LinearVotes``, or narrower than b."""
    return routed(_Attention.apply, graph, votes, activation, b, iterations, on_iteration, squash_output)


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx, u, weight, prior, index, rows, iterations, on_iteration, trailing, learning):
        given = Passes(u, weight, index, rows)
        passes = given.arranged()
        plain = not any(prior.stride()) and not ctx.needs_input_grad[2] and bool(prior[0, 0].isfinite())
        by_child = passes.nothing if plain else rows.by_child(prior)
        before = passes.u.new_zeros(2, rows.num_parents, passes.batch, passes.dim)  # S / sqrt(D) in the second pass
        torch.mul(passes.iterate(by_child, passes.nothing, passes.nothing, WHOLE), scale(passes.dim), out=before[1])
        c = passes.numbers(2 if (learning and not passes.linear) or on_iteration is not None else 0)
        if len(c):
            c[0] = 1
        s = passes.iterate(by_child, before[1], c[1] if len(c) else passes.nothing, COUPLED)
        if on_iteration is not None:
            v = squash(s)
            b = prior + agreement_of(passes, before[1])
            seen = (b, rows.in_edge_order(c[1]), agreement_of(passes, v))
            b, coupling, agreement = (x.reshape(len(x), *trailing) for x in seen)
            v = v.reshape(rows.num_parents, *trailing, -1)
            repeated(on_iteration, iterations)(0, b, coupling, v, agreement)
        if learning:
            ctx.save_for_backward(given.u, weight, by_child, index, c[: 0 if passes.linear else 2], before)
            ctx.rows, ctx.reading = rows, passes if passes is not given else None
        return s

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        """Gradient of s with respect to votes (or u and weight) and prior.

        db = c (<u_hat, grad> - sum over the child's out-edges of c <u_hat, grad>) and
        dS = sum over in-edges of db u_hat / sqrt(D) give du_hat = dS + c grad + db S / sqrt(D).
        """
        u, weight, prior, index, c, before = ctx.saved_tensors
        rows, passes = ctx.rows, Passes(u, weight, index, ctx.rows)
        reading = ctx.reading or passes.arranged()
        grad, nothing, parts = grad.contiguous(), passes.nothing, passes.sums()
        db = passes.numbers(1)
        kept = nothing if passes.linear else c[1]
        numbers = [flat(prior), flat(before[1]), flat(grad), 1, flat(kept), flat(nothing), flat(db)]
        reading.run(step_back, *numbers, [flat(part) for part in parts])
        ds = torch.stack([added(parts) * scale(passes.dim), grad])  # (2, J, B, D)
        du = dweight = ctx.reading = reading = None  # of ordered votes, the memory is du's now
        if ctx.needs_input_grad[0] or ctx.needs_input_grad[1]:
            du, dweight = passes.gradient(prior, before, c, ds, db, before[1:], WHOLE)
        return du, dweight, rows.in_edge_order(db[0]) if ctx.needs_input_grad[2] else None, *[None] * 6
