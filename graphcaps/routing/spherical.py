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
from typing import NamedTuple

import torch
from torch import Tensor

from ..errors import expect
from ..functional import squash
from .edge_ops import EdgeOps, Observer, Parents, per_parent, with_length

LEAST = 1e-24  # a mean square of lengths up to which votes have no direction


class SphericalParameters(NamedTuple):
    """What spherical routing learns beside the votes.

    Args:
        concentration: kappa >= 0, a number or (J,): the logit of a vote of usual length that points where its parent
            does. 0 couples uniformly.
    """

    concentration: Tensor | float = 1.0

    def check(self, num_parents: int, dim: int, device: torch.device) -> None:
        """Raise ``InputError`` where a shape or device doesn't fit ``num_parents``."""
        kappa = self.concentration
        if isinstance(kappa, Tensor):
            wanted = f"a number or (J={num_parents},)"
            expect(kappa.shape in ((), (num_parents,)), "concentration", wanted, tuple(kappa.shape))
            expect(kappa.device == device, "concentration", f"device {device} as the votes", kappa.device)
        else:
            fits = isinstance(kappa, numbers.Real) and 0 <= kappa < math.inf
            expect(fits, "concentration", "a finite number >= 0", repr(kappa)[:40])


def spherical(
    edges: EdgeOps,
    u_hat: Tensor,
    activation: Tensor | None,
    prior: Tensor,
    iterations: int,
    on_iteration: Observer | None,
    parameters: SphericalParameters | None = None,
) -> Parents:
    """Spherical routing of votes and prior logits, laid out as ``edges`` has them; ``activation`` isn't used."""
    if iterations > 1:
        squares = u_hat.square().sum(-1)  # edge numbers
        votes = edges.sum_to_parents(torch.ones_like(squares))  # (J, *), how many
        kappa_per_rho = concentration_per_length(edges.sum_to_parents(squares), votes, parameters)
    b = prior
    for r in range(iterations):
        c = edges.child_softmax(b)
        s = edges.weighted_sum(c, u_hat)  # (J, *, D)
        last = r == iterations - 1
        if last or on_iteration:
            v = squash(s)
        if on_iteration:
            on_iteration(r, b, c, v, edges.agreement(u_hat, v))
        if not last:
            b = prior + edges.agreement(u_hat, with_length(s, kappa_per_rho))
    return Parents(s, v, torch.linalg.vector_norm(v, dim=-1))


def concentration_per_length(squares: Tensor, votes: Tensor, parameters: SphericalParameters | None) -> Tensor:
    """kappa / rho (J, *) from the sum of |u_hat|^2 and the number of each parent's votes; 0 where all are zero."""
    mean = squares / votes.clamp_min(1)
    some = mean > LEAST
    kappa = per_parent((parameters or SphericalParameters()).concentration, mean)
    return torch.where(some, kappa * torch.where(some, mean, 1).rsqrt(), 0)
