"""Spherical routing: a mixture of von Mises-Fisher distributions, whose logits have a scale of their own.

Parents are directions, and a child's couplings are the probabilities that its vote's direction comes from each of them
(Banerjee et al. 2005, "Clustering on the unit hypersphere using von Mises-Fisher distributions", JMLR 6):

    c  = softmax of b over each child's out-edges     (b = prior at first)
    s  = sum over each parent's in-edges of c u_hat
    mu = s / |s|
    b  = prior + kappa <u_hat / |u_hat|, mu>          (not after the last iteration)
    v  = squash(s)

So |b - prior| <= kappa, however long the votes are and however many a parent has: multiplying all votes by a number
changes no coupling. In dynamic routing <u_hat, v> grows with the votes, v with their sum, and b with each iteration.

kappa, the concentration, is how much is routed. It is learned by the layers. At 0 the couplings are uniform, or what
the prior says, and v is that of uniform coupling: a layer that has nothing to gain from routing can do without.

The routing of capsules in a graph's neighbourhoods of Ma et al. 2019 (Disentangled graph convolutional networks, ICML)
is of this kind, with kappa given.

Differs:
    Votes are counted by their length: in a mixture of directions s is the sum of c u_hat / |u_hat|. A short vote says
    little about where a parent is, as in all routings here.
    Mixing weights, and the normalisers of the distributions where kappa differs among parents, are left to the prior.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ..errors import expect
from ..functional import squash
from .edge_ops import EdgeOps, Observer, Parents, per_parent, with_length

SHORTEST = 1e-12  # a vote no longer than this has no direction


class SphericalParameters(NamedTuple):
    """What spherical routing learns beside the votes.

    Args:
        concentration: kappa >= 0, a number or (J,): the logit of a vote that points where its parent does. 0 couples
            uniformly.
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
            expect(kappa >= 0, "concentration", "a number >= 0", kappa)


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
    kappa = (parameters or SphericalParameters()).concentration
    if iterations > 1:
        length = torch.linalg.vector_norm(u_hat, dim=-1)  # edge numbers
        per_length = torch.where(length > SHORTEST, 1 / length.clamp_min(SHORTEST), 0)
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
            n = torch.linalg.vector_norm(s, dim=-1)  # (J, *)
            kappa_mu = with_length(s, per_parent(kappa, n).expand_as(n))
            b = prior + edges.agreement(u_hat, kappa_mu) * per_length
    return Parents(s, v, torch.linalg.vector_norm(v, dim=-1))
