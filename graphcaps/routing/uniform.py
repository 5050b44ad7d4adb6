"""Uniform coupling, the control: each child gives every parent an equal part, and nothing is routed.

    c = 1 / number of the child's out-edges           (with a prior: softmax of the prior over them)
    s = sum over each parent's in-edges of c u_hat
    v = squash(s)

It is dynamic routing's first iteration. Paik, Kwak & Kim 2019 (arXiv 1907.13327) found that routing often does no
better.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor

from ..errors import check_whole
from ..functional import squash
from .engines.edges import Edges
from .routing import Parents, Routing, squashed
from .rule import Rule


class Uniform(Routing):
    """Equal couplings, the control.

    Args:
        iterations: the number of times that an observer sees the one state, so that traces of all routings compare.
    """

    def __init__(self, iterations: int = 3):
        super().__init__()
        check_whole("iterations", iterations)
        self.iterations = iterations

    def forward(self, edges: Edges, votes: Any, prior: Tensor, activation: Tensor | None = None) -> Parents:
        c = edges.child_softmax(prior)
        s = edges.weighted_sum(c, votes)  # (J, *, D)
        v = squash(s)
        for r in range(self.iterations):
            edges.observe(r, prior, c, v, votes)
        return squashed(s, c)

    def rule(self) -> Rule:
        return Rule(1, shown=self.iterations)
