"""Spherical routing: a mixture of von Mises-Fisher distributions, whose logits have a scale of their own.

Parents are directions mu. A child's couplings are the probabilities that its vote comes from each of them:

    rho = sqrt(mean over each parent's in-edges of |u_hat|^2)
    c   = softmax of b over each child's out-edges            (b = prior at first)
    s   = sum over each parent's in-edges of c u_hat
    mu  = s / |s|
    b   = prior + kappa <u_hat, mu> / rho                     (not after the last iteration)
    v   = squash(s)

This is expectation maximisation of the mixture of Banerjee et al. 2005 ("Clustering on the unit hypersphere using von
Mises-Fisher distributions", JMLR 6), in which a vote is an observation of its direction u_hat / |u_hat|, of
concentration kappa |u_hat| / rho: the longer a vote is beside the others for that parent, the surer it is.

Multiplying all votes for a parent by a number changes no coupling, nor does having more of them. In dynamic routing
<u_hat, v> grows with the votes, v with their sum, and b with every iteration.

kappa, the concentration of a vote of usual length, is how much is routed. Layers learn it. At 0 couplings are uniform,
or what the prior says, and v is that of uniform coupling: a layer that gains nothing from routing can do without.

The neighbourhood routing of Ma et al. 2019 (Disentangled graph convolutional networks, ICML) is of this kind, with unit
votes and kappa given.

Differs:
    Observations of different concentration; in the paper all have that of their parent. With kappa for all, a vote that
    says nothing would be coupled as firmly as any other.
    The mixing weights, and the distributions' normalisers where kappa differs among parents, are left to the prior.
"""

from __future__ import annotations

import math
import numbers
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import check_whole, expect
from ..functional import squash
from .engines.edges import Edges
from .routing import Parents, Routing, squashed
from .rule import Rule, concentration_per_length, with_length


class Spherical(Routing):
    """A mixture of von Mises-Fisher distributions, which learns its concentration kappa: how much it routes.

    Args:
        iterations: R >= 1. The first couples uniformly, or as the prior says.
        concentration: kappa before training, > 0: the logit of a vote of usual length that points where its parent
            does. Start it larger, near 4, where you expect votes of several kinds.
        rate: kappa is e^(rate exponent) and the exponent is learned: a step of Adam changes log kappa by ``rate``
            times the learning rate.
    """

    def __init__(self, iterations: int = 3, concentration: float = 0.1, rate: float = 1.0):
        super().__init__()
        check_whole("iterations", iterations)
        for name, value in (("concentration", concentration), ("rate", rate)):
            fits = isinstance(value, numbers.Real) and 0 < value < math.inf
            expect(fits, name, "a finite number > 0", repr(value)[:40])
        self.iterations, self.concentration, self.rate = iterations, concentration, rate
        self.exponent = nn.Parameter(torch.empty(()))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Set kappa back to its start."""
        nn.init.constant_(self.exponent, math.log(self.concentration) / self.rate)

    @property
    def kappa(self) -> Tensor:
        """() > 0: the concentration as it is now."""
        return (self.rate * self.exponent).exp()

    def forward(self, edges: Edges, votes: Any, prior: Tensor, activation: Tensor | None = None) -> Parents:
        if self.iterations > 1:
            squares = edges.squared_lengths(votes)  # edge numbers
            count = edges.sum_to_parents(torch.ones_like(squares))  # (J, *), votes of each parent
            length = concentration_per_length(edges.sum_to_parents(squares), count, self.kappa)
        b = prior
        for r in range(self.iterations):
            c = edges.child_softmax(b)
            s = edges.weighted_sum(c, votes)  # (J, *, D)
            v = squash(s)
            edges.observe(r, b, c, v, votes)
            if r < self.iterations - 1:
                b = prior + edges.agreement(votes, with_length(s, length))
        return squashed(s, c)

    def rule(self) -> Rule:
        return Rule(self.iterations, "directions", self.kappa) if self.iterations > 1 else Rule(1)
