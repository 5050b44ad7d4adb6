"""The logits that couple a child, as a function of its own votes: for a loss that asks children to choose.

In the last iteration, with everything but the votes held fixed,

    dynamic      b = <u_hat, sum of v over the iterations before>
    spherical    b = kappa <u_hat, mu> / rho

so that a child learns whom to vote for, and no parent learns to follow its children. Both are <u W, V> = <u, W V> with
one V for each parent: no vote is built.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..errors import required
from ..routing.routing import rule_of
from .dense_caps import SharedCaps
from .routed import route_layer

MIN_SQUARED_AGREEMENT = 1e-24  # below, a parent's votes agree with nothing


def routed_with_logits(layer: SharedCaps, u: Tensor) -> tuple[Tensor, Tensor]:
    """Parents v (J, B, D) of children u (I, B, P), and the logits b (I, J, B) that couple them in the last iteration.

    The gradient of b goes to u, to the layer's weights and prior, and to kappa.
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
            # b is agreement with v times one number for each parent and image: this one
            power = agreement.square().sum(0).clamp_min(MIN_SQUARED_AGREEMENT)
            factor = (b * agreement).sum(0) / power  # (J, B)
            fixed = factor.unsqueeze(-1) * before * (1 if rule.kappa is None else rule.kappa / rule.kappa.detach())
        by_child = weight.unflatten(0, (layer.num_children, -1))  # (I, J, P, D)
        logits = torch.einsum("ibp,ijbp->ijb", u, torch.einsum("ijpd,jbd->ijbp", by_child, fixed))
    if layer.prior is not None:
        logits = logits + layer.prior.view(layer.num_children, -1, 1)
    return v, logits
