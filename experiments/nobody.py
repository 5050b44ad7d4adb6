"""Dynamic routing in which a child may be coupled with no parent: the routing of one's own of docs/routings.md.

The "none-of-the-above" category of Sabour, Frosst & Hinton 2017, section 7: one logit more in each child's softmax,
which stays 0. The tables hold it against the other routings; it gained nothing.
"""

from __future__ import annotations

from torch import Tensor

from graphcaps import squash
from graphcaps.routing import Routing
from graphcaps.routing.edges import EdgeOps


class Nobody(Routing):
    """``Dynamic`` with nobody as a further parent, whose votes are zero."""

    def __init__(self, iterations: int = 3):
        super().__init__()
        self.iterations = iterations

    def forward(self, edges: EdgeOps, votes: Tensor, prior: Tensor, activation: Tensor | None = None) -> Tensor:
        b = prior
        for r in range(self.iterations):
            top = edges.child_max(b).clamp_min(0)  # exp overflows without
            raised = (b - top).exp()
            c = raised / ((-top).exp() + edges.child_sum(raised))
            s = edges.weighted_sum(c, votes)
            v = squash(s)
            edges.observe(r, b, c, v, votes)
            if r < self.iterations - 1:
                b = b + edges.agreement(votes, v)
        return s
