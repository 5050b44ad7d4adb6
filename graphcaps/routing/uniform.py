"""Uniform coupling, the control: each child gives every parent an equal part, and nothing is routed.

    c = 1 / number of the child's out-edges           (with a prior: softmax of the prior over them)
    s = sum over each parent's in-edges of c u_hat
    v = squash(s)

It is dynamic routing's first iteration. Paik, Kwak & Kim 2019 (arXiv 1907.13327) found that routing often does no
better.
"""

from __future__ import annotations

from torch import Tensor

from ..errors import check_flag, check_whole
from ..functional import squash
from .edges import EdgeOps
from .routing import Parents, Routing, squashed


class Uniform(Routing):
    """Equal couplings, the control.

    Args:
        iterations: how often an observer sees the one state that there is, so that traces of all routings compare.
        unit_votes: whether votes are divided by their length first.
    """

    def __init__(self, iterations: int = 3, unit_votes: bool = False):
        super().__init__()
        check_whole("iterations", iterations)
        check_flag("unit_votes", unit_votes)
        self.iterations, self.unit_votes = iterations, unit_votes

    def forward(self, edges: EdgeOps, votes: Tensor, prior: Tensor, activation: Tensor | None = None) -> Parents:
        c = edges.child_softmax(prior)
        s = edges.weighted_sum(c, votes)  # (J, *, D)
        v = squash(s)
        for r in range(self.iterations):
            edges.observe(r, prior, c, v, votes)
        return squashed(s, v)
