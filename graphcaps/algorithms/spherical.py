"""Spherical routing: a mixture of von Mises-Fisher distributions. Its logits don't depend on the scale of the votes.

Parents are directions mu. A child's coupling to a parent is the probability that its vote comes from that parent:

    rho = sqrt(mean over each parent's in-edges of |u_hat|^2)
    c   = softmax of b over each child's out-edges            (in the first iteration, b = prior)
    s   = sum over each parent's in-edges of c u_hat
    mu  = s / |s|
    b   = prior + kappa <u_hat, mu> / rho                     (skipped in the last iteration)
    v   = squash(s)

This is expectation maximisation for the mixture of Banerjee et al. 2005 ("Clustering on the unit hypersphere using von
Mises-Fisher distributions", JMLR 6). A vote is an observation of its direction u_hat / |u_hat| with the concentration
kappa |u_hat| / rho: the longer a vote is, compared with the parent's other votes, the more certain it is.

The neighbourhood routing of Ma et al. 2019 (Disentangled graph convolutional networks, ICML) is the special case with
unit votes and a fixed kappa.

Differs:
    Each vote has its own concentration. In the paper, all votes for a parent share one, which would couple a
    very short vote as firmly as a long one.
    There are no mixing weights, and no normalisers for parents of different kappa. A prior can replace both.
"""

import math
from typing import Any

import torch
from torch import Tensor, nn

from ..functional import per_root, squash, with_length
from ..typed import Positive, Size, typed
from .base import Edges, Parents, Routing, squashed
from .rule import Rule


class Spherical(Routing):
    """Routing by a mixture of von Mises-Fisher distributions. The learned concentration kappa sets how much it routes.

    Votes of root mean square length 1e-12 or less count as zero, so that their couplings are those of the prior.

    Args:
        iterations: R >= 1.
        concentration: > 0, kappa before training. kappa is the logit of a vote of length rho in its parent's direction.
            Start near 4 if you expect clearly different groups of votes.
        rate: how fast kappa is learned: a step of Adam changes log kappa by ``rate`` times the learning rate.
    """

    @typed
    def __init__(self, iterations: Size = 3, concentration: Positive = 0.1, rate: Positive = 1.0):
        super().__init__()
        self.iterations, self.concentration, self.rate = iterations, concentration, rate
        self.exponent = nn.Parameter(torch.empty(1))  # FSDP refuses parameters without dims
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Reset kappa to its initial value."""
        nn.init.constant_(self.exponent, math.log(self.concentration) / self.rate)

    @property
    def kappa(self) -> Tensor:
        """The current concentration, () > 0."""
        exponent = self.exponent.view(())
        return (exponent if self.rate == 1 else self.rate * exponent).exp()

    def forward(self, edges: Edges, votes: Any, prior: Tensor, activation: Tensor | None = None) -> Parents:
        if self.iterations > 1:
            squares = votes.square().sum(-1)  # edge numbers
            count = edges.sum_to_parents(torch.ones_like(squares))  # (J, *), the number of votes for each parent
            ratio = kappa_over_rho(edges.sum_to_parents(squares), count, self.kappa)
        b = prior
        for r in range(self.iterations):
            c = edges.child_softmax(b)
            s = edges.weighted_sum(c, votes)  # (J, *, D)
            v = squash(s)
            edges.observe(r, b, c, v, votes)
            if r < self.iterations - 1:
                b = prior + edges.agreement(votes, with_length(s, ratio))
        return squashed(s, c)

    def rule(self) -> Rule:
        return Rule(self.iterations, "directions", self.kappa) if self.iterations > 1 else Rule(1)


def kappa_over_rho(squares: Tensor, count: Tensor, kappa: Tensor) -> Tensor:
    """Return kappa / rho (J, *) from each parent's sum of |u_hat|^2 and number of votes; 0 if all votes are zero."""
    return kappa.to(squares.dtype) * per_root(squares / count.clamp_min(1))
