"""How long capsules are before training: stacked layers learn only where lengths last from layer to layer."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from ..errors import expect
from .routed import route_layer


@torch.no_grad()
def scale_layers(layers: Iterable[Any], u: torch.Tensor) -> torch.Tensor:
    """Multiply the matrices of stacked layers so that each one's parents are 0.5 long, in the mean over a batch.

    As drawn, matrices make a parent's sum n as long as one child, and squash makes n^2 / (1 + n^2) of it: in a stack
    lengths are squared from layer to layer, and nothing learns. At 0.5 squash passes relative changes on as they are.
    A data-dependent start, as in Mishkin & Matas 2016, "All you need is a good init" (arXiv 1511.06422).

    Args:
        layers: ``CapsuleLayer``, ``SharedCaps`` or ``ConvCaps``, from the lowest to the last; ``nn.Sequential`` too.
        u: (I, B, P), children of the lowest layer, of a batch of real images.

    Returns:
        v (J, B, D): the parents of the last layer.

    Raises:
        InputError: a layer without matrices of votes, or children that are all zero.
    """
    for layer in layers:
        scalable = hasattr(layer, "votes") and isinstance(u, torch.Tensor)
        expect(scalable, "layers", "CapsuleLayer, SharedCaps or ConvCaps", type(layer).__name__)
        sums = torch.linalg.vector_norm(route_layer(layer, u).pose, dim=-1).mean()
        expect(bool(sums > 0), "u", "children of which one is longer than 0", "none")
        layer.weight.div_(sums)
        for _ in range(4):  # routing isn't linear in the votes; then the mean is within 0.01
            mean = torch.linalg.vector_norm(layer(u), dim=-1).mean().clamp(0.01, 0.99)
            layer.weight.mul_(((1 - mean) / mean).sqrt())
        u = layer(u)
    return u
