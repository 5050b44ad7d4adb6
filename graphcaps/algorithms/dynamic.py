"""Dynamic routing: Sabour, Frosst & Hinton 2017, "Dynamic Routing Between Capsules" (arXiv 1710.09829), Procedure 1.

    c = softmax of b over each child's out-edges
    s = sum over each parent's in-edges of c u_hat
    v = squash(s)
    b = b + <u_hat, v>                                (skipped in the last iteration)

``forward`` consists of these four lines, written with the operations of ``graphcaps.engines``.
"""

from typing import Any

from torch import Tensor

from ..functional import squash
from ..typed import Size, typed
from .base import Edges, Parents, Routing, squashed
from .rule import Rule


class Dynamic(Routing):
    """Routing by agreement (Sabour, Frosst & Hinton 2017, Procedure 1).

    Args:
        iterations: R >= 1. The first couplings are the softmax of the prior, and uniform without a prior.
    """

    @typed
    def __init__(self, iterations: Size = 3):
        super().__init__()
        self.iterations = iterations

    def forward(self, edges: Edges, votes: Any, prior: Tensor, activation: Tensor | None = None) -> Parents:
        b = prior
        for r in range(self.iterations):
            c = edges.child_softmax(b)
            s = edges.weighted_sum(c, votes)  # (J, *, D)
            v = squash(s)
            edges.observe(r, b, c, v, votes)
            if r < self.iterations - 1:
                b = b + edges.agreement(votes, v)
        return squashed(s, c)

    def rule(self) -> Rule:
        return Rule(self.iterations)
