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
"""

from __future__ import annotations

from typing import Any

from torch import Tensor

from ..errors import check_whole
from ..functional import squash
from .engines.edges import Edges
from .routing import Parents, Routing, squashed
from .rule import Rule


class Attention(Routing):
    """Self-attention routing (Mazzia, Salvetti & Chiaberge 2021), in one pass.

    Args:
        iterations: the number of times that an observer sees the one state, so that traces of all routings compare.
    """

    def __init__(self, iterations: int = 3):
        super().__init__()
        check_whole("iterations", iterations)
        self.iterations = iterations

    def forward(self, edges: Edges, votes: Any, prior: Tensor, activation: Tensor | None = None) -> Parents:
        b = prior + edges.agreement(votes, edges.sum_to_parents(votes)) * max(1, votes.shape[-1]) ** -0.5
        c = edges.child_softmax(b)
        s = edges.weighted_sum(c, votes)  # (J, *, D)
        v = squash(s)
        for r in range(self.iterations):
            edges.observe(r, b, c, v, votes)
        return squashed(s, c)

    def rule(self) -> Rule:
        return Rule(2, "sums", shown=self.iterations)
