"""Losses of ``CapsNet``: margin loss, reconstruction loss and coupling loss, which makes children choose a parent."""

from __future__ import annotations

from typing import Any

import torch

from ..errors import check_labels, expect, required
from ..functional import margin_loss
from ..nn import SharedCaps
from ..nn.routed import route_layer
from ..routing.base import rule_of
from .answers import present

RECONSTRUCTION_WEIGHT = 0.0005  # weight of the squared errors, summed over pixels: section 4.1
MIN_SQUARED_AGREEMENT = 1e-24  # avoids a division by zero if no vote agrees with a parent


def routed_with_logits(layer: SharedCaps, u: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Route children u (I, B, P); return parents v (J, B, D) and the last iteration's logits b (I, J, B).

    The logits are a differentiable function of the votes, the prior and kappa, with everything else held fixed. So a
    child learns which parent to vote for, and parents don't learn to follow their children. The logits are

        dynamic      b = <u_hat, sum of v over the iterations before>
        spherical    b = kappa <u_hat, mu> / rho

    Both have the form <u W, V> = <u, W V> with one V for each parent, so they are computed without building the votes.
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


def coupling_loss(logits: torch.Tensor, ink: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Mean of -ln c, weighted by ink, where c couples a child with the class of the object at its field's centre.

    The loss is 0 if there is no ink, and ln J if all couplings are equal.

    Args:
        logits: b (I, J, B), routing logits.
        ink: (B, K, I) in [0, 1], brightness of each object at the centre of each child's field.
        labels: (B,) or (B, K), classes of the objects.
    """
    check_labels(labels, logits.shape[1])
    expect(labels.numel() == ink[..., 0].numel(), "labels", f"{tuple(ink.shape[:2])}, per object", tuple(labels.shape))
    classes = labels.reshape(len(labels), -1).t().unsqueeze(0).expand(len(logits), -1, -1)  # (I, K, B)
    ink = ink.permute(2, 1, 0)  # (I, K, B)
    return -(ink * logits.log_softmax(dim=1).gather(1, classes)).sum() / ink.sum().clamp_min(1)


def capsnet_loss(
    output: Any, images: torch.Tensor, labels: torch.Tensor, reconstruction_weight: float = RECONSTRUCTION_WEIGHT
) -> torch.Tensor:
    """Margin loss + weight x squared errors summed over pixels, both averaged over the batch (section 4.1).

    If images show K objects, each reconstruction is compared with its own object, and the errors are averaged over the
    objects; section 6.1 uses one object at a time.

    Args:
        images: (B, C, H, W), or layers (B, K, C, H, W) whose overlay was the network's input.
        labels: for images, (B,) classes or (B, J) of 0 and 1; for layers, (B, K) classes in the order of the layers.

    Raises:
        InputError: images and reconstructions differ in shape (torch might broadcast them).
    """
    if images.dim() == 5:
        layers = tuple(images.shape[:2])
        expect(labels.shape == layers, "labels", f"(B, K)={layers} of layers", tuple(labels.shape))
        labels = present(labels, output.lengths.shape[1])
    margin = margin_loss(output.lengths, labels)
    if output.reconstruction is None:
        return margin
    drawn = tuple(output.reconstruction.shape)
    expect(tuple(images.shape) == drawn, "images", f"{drawn}, like the reconstructions", tuple(images.shape))
    errors = (output.reconstruction - images).square().flatten(-3).sum(dim=-1)  # (B,) or (B, K)
    return margin + reconstruction_weight * errors.mean()
