"""Routing logits as a differentiable function of a child's votes, for a loss that makes children choose a parent.

The logits are those of the last iteration, with everything but the votes held fixed:

    dynamic      b = <u_hat, sum of v over the iterations before>
    spherical    b = kappa <u_hat, mu> / rho

So a child learns which parent to vote for, and parents don't learn to follow their children. Both logits have the form
<u W, V> = <u, W V> with one V for each parent, so they are computed without building the votes.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..errors import required
from ..routing.routing import rule_of
from .dense_caps import SharedCaps
from .routed import route_layer

MIN_SQUARED_AGREEMENT = 1e-24  # avoids a division by zero if no vote agrees with a parent


def routed_with_logits(layer: SharedCaps, u: Tensor) -> tuple[Tensor, Tensor]:
    """Route children u (I, B, P); return parents v (J, B, D) and the last iteration's logits b (I, J, B).

    The gradient of b reaches u, the layer's weights and prior, and kappa.
    """
    rule = required(rule_of(layer.routing), "routing", "Dynamic or Spherical", repr(layer.routing))
    seen = []
    v = route_layer(layer, u, on_iteration=lambda r, b, c, v, agreement: seen.append((b, v, agreement))).v
    with torch.autocast(u.device.type, enabled=False):
        votes = layer.votes(u)
        u, weight = votes.u, votes.weight
        if rule.adds:
            fixed = torch.stack([parents for _, parents, _ in seen[:-1]]).sum(0)  # (J, B, D)
        else:
            (_, before, agreement), (b, _, _) = seen[-2:]
            b = b if layer.prior is None else b - layer.prior.detach().unsqueeze(1)
            b, agreement = (x.unflatten(0, (layer.num_children, layer.num_parents)) for x in (b, agreement))
            # b is the agreement times one factor per parent and image; least squares recovers the factor.
            power = agreement.square().sum(0).clamp_min(MIN_SQUARED_AGREEMENT)
            factor = (b * agreement).sum(0) / power  # (J, B)
            fixed = factor.unsqueeze(-1) * before * (1 if rule.kappa is None else rule.kappa / rule.kappa.detach())
        by_child = weight.unflatten(0, (layer.num_children, -1))  # (I, J, P, D)
        logits = torch.einsum("ibp,ijbp->ijb", u, torch.einsum("ijpd,jbd->ijbp", by_child, fixed))
    if layer.prior is not None:
        logits = logits + layer.prior.view(layer.num_children, -1, 1)
    return v, logits
