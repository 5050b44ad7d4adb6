"""Dynamic routing: Sabour, Frosst & Hinton 2017, "Dynamic Routing Between Capsules" (arXiv 1710.09829), Procedure 1.

    c = softmax of b over each child's out-edges
    s = sum over each parent's in-edges of c u_hat
    v = squash(s)
    b = b + <u_hat, v>                                (not after the last iteration)

The same four lines stand below, over the edge operations of ``edge_ops``.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..functional import squash
from .edge_ops import EdgeOps, Observer, Parents


def dynamic(
    edges: EdgeOps,
    u_hat: Tensor,
    activation: Tensor | None,
    prior: Tensor,
    iterations: int,
    on_iteration: Observer | None,
    parameters: None = None,
) -> Parents:
    """Dynamic routing of votes and prior logits, laid out as ``edges`` has them; ``activation`` isn't used."""
    b = prior
    for r in range(iterations):
        c = edges.child_softmax(b)
        s = edges.weighted_sum(c, u_hat)  # (J, *, D)
        v = squash(s)
        last = r == iterations - 1
        if not last or on_iteration:
            agreement = edges.agreement(u_hat, v)
        if on_iteration:
            on_iteration(r, b, c, v, agreement)
        if not last:
            b = b + agreement
    return Parents(s, v, torch.linalg.vector_norm(v, dim=-1))
