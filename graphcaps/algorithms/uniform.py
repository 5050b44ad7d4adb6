"""Uniform coupling, the control: each child has the same coupling to all of its parents, so nothing is routed.

    c = 1 / number of the child's out-edges           (with a prior: the prior's softmax over these edges)
    s = sum over each parent's in-edges of c u_hat
    v = squash(s)

Paik, Kwak & Kim 2019 (arXiv 1907.13327) found that routing is often no better than this.
"""

from typing import Any

from torch import Tensor

from ..functional import squash
from ..typed import Size, typed
from .base import Edges, Parents, Routing, squashed
from .rule import Rule


class Uniform(Routing):
    """Uniform coupling, which is the first iteration of dynamic routing.

    Args:
        iterations: how often observers get the one state, so that traces are as long as those of other routings.
    """

    @typed
    def __init__(self, iterations: Size = 3):
        super().__init__()
        self.iterations = iterations

    def forward(self, edges: Edges, votes: Any, prior: Tensor, activation: Tensor | None = None) -> Parents:
        c = edges.child_softmax(prior)
        s = edges.weighted_sum(c, votes)  # (J, *, D)
        v = squash(s)
        for r in range(self.iterations):
            edges.observe(r, prior, c, v, votes)
        return squashed(s, c)

    def rule(self) -> Rule:
        return Rule(1)
