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

from ..functional import squash
from . import edge_ops as steps


def on_dgl(graph, u_hat, activation, b, iterations, on_iteration, squash_output=True):
    """Route with DGL's kernels."""
    return _route(steps.on_dgl(graph, u_hat), u_hat, b, iterations, on_iteration, squash_output)


def on_torch(graph, u_hat, activation, b, iterations, on_iteration, squash_output=True):
    """Route with torch's scatter operations; the graph may stay on the CPU."""
    return _route(steps.on_torch(graph, u_hat), u_hat, b, iterations, on_iteration, squash_output)


def _route(edges, u_hat, prior, iterations, on_iteration, squash_output):
    a = edges.agree(u_hat, edges.gather(u_hat)) * scale(u_hat.shape[-1])  # (E, *)
    b = prior + a
    c = edges.couple(b)
    s = edges.gather(c.unsqueeze(-1) * u_hat)  # (J, *, D)
    v = squash(s)
    if on_iteration:
        steps.repeated(on_iteration, iterations)(0, b, c, v, edges.agree(u_hat, v))
    return v if squash_output else s, torch.linalg.vector_norm(v, dim=-1)


def scale(dim: int) -> float:
    """1 / sqrt(D)."""
    return max(1, dim) ** -0.5
