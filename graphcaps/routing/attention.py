"""Self-attention routing: Mazzia, Salvetti & Chiaberge 2021, "Efficient-CapsNet" (arXiv 2101.12491), section 3.

Children whose vote for a parent agrees with all votes for that parent give it more; nothing is iterated:

    A_n = U_n U_n^T / sqrt(D)               for each parent n, of the votes U_n (children, D) it gets
    C_n = softmax over the parents of (sum over the children of A_n)
    s_n = U_n^T (C_n + B_n)

A is symmetric, so the sum over either of its axes is, on the edge e = (i, j) of a graph of votes,

    a_e = <u_hat_e, sum over j's in-edges of u_hat> / sqrt(D)

and the matrix of all pairs of children need not be made. A child's own vote is in the sum, as in the paper.

Differs:
    A prior is added to the logits a, so that couplings stay couplings. The paper's learned B, "log priors", is added to
    C instead, after the softmax; without a prior both are the same.
    v = squash(s) is that of the 2017 paper, so that between two trainings only the routing differs. Efficient-CapsNet
    has (1 - exp(-|s|)) s / |s| there.
    D is that of the votes, as in the authors' code.

One pass, whatever the number of iterations; an observer is handed the same state in each.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..functional import squash
from .edge_ops import EdgeOps, Observer, Parents, repeated


def attention(
    edges: EdgeOps,
    u_hat: Tensor,
    activation: Tensor | None,
    prior: Tensor,
    iterations: int,
    on_iteration: Observer | None,
    parameters: None = None,
) -> Parents:
    """Self-attention routing of votes and prior logits, laid out as ``edges`` has them; ``activation`` isn't used."""
    a = edges.agreement(u_hat, edges.sum_to_parents(u_hat)) * scale(u_hat.shape[-1])
    b = prior + a
    c = edges.child_softmax(b)
    s = edges.weighted_sum(c, u_hat)  # (J, *, D)
    v = squash(s)
    if observer := repeated(on_iteration, iterations):
        observer(0, b, c, v, edges.agreement(u_hat, v))
    return Parents(s, v, torch.linalg.vector_norm(v, dim=-1))


def scale(dim: int) -> float:
    """1 / sqrt(D)."""
    return max(1, dim) ** -0.5
