"""Self-attention routing: Mazzia, Salvetti & Chiaberge 2021, "Efficient-CapsNet" (arXiv 2101.12491), section 3.

The better a child's vote agrees with all votes for a parent, the larger its coupling. There are no iterations:

    A_n = U_n U_n^T / sqrt(D)               for each parent n, where U_n (children, D) are the votes for it
    C_n = softmax over the parents of (sum over the children of A_n)
    s_n = U_n^T (C_n + B_n)

A is symmetric. On the edge e = (i, j) of a graph, its sum over the children is

    a_e = <u_hat_e, sum over j's in-edges of u_hat> / sqrt(D)

so the matrix of all pairs of children is never built. The sum includes the child's own vote, as in the paper.

Differs:
    A prior is added to the logits a, so that the couplings of a child still add up to 1. The paper adds its learned
    "log priors" B to C, after the softmax.
    v = squash(s) as in the 2017 paper, so that trainings with different routings differ in the routing alone.
    Efficient-CapsNet uses (1 - exp(-|s|)) s / |s| instead.
    D is the size of a vote, as in the authors' code.
"""

from typing import Any

from torch import Tensor

from ..functional import squash
from ..typed import Size, typed
from .base import Edges, Parents, Routing, squashed
from .rule import Rule


class Attention(Routing):
    """Self-attention routing (Mazzia, Salvetti & Chiaberge 2021), in one pass.

    Args:
        iterations: how often observers get the one state, so that traces are as long as those of other routings.
    """

    @typed
    def __init__(self, iterations: Size = 3):
        super().__init__()
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
        return Rule(2, "sums")
