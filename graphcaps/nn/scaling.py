"""How long capsules are before training: deep stacks of layers learn only where lengths last from layer to layer."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from ..errors import expect
from .routed import route_layer

LENGTH = 0.5  # squash makes it of |s| = 1, where it passes on a relative change of length or direction as it is
ROUNDS = 4  # routing isn't linear in the votes; after four the mean is within 0.01


@torch.no_grad()
def scale_layers(layers: Iterable[Any], u: torch.Tensor) -> torch.Tensor:
    """Multiply the matrices of stacked layers so that each one's parents are 0.5 long, in the mean over a batch.

    A layer starts with matrices that make a parent's sum as long as one child. Squash shortens it to n^2 / (1 + n^2),
    so that in a stack a length of 0.14 becomes 0.02, then 4e-4, then 2e-7, and nothing learns. This is the
    data-dependent start of Mishkin & Matas 2016, "All you need is a good init" (arXiv 1511.06422), of lengths in place
    of variances. Call it before training, once.

    Args:
        layers: ``CapsuleLayer``, ``SharedCaps`` or ``ConvCaps``, from the lowest to the last; ``nn.Sequential`` too.
        u: (I, B, P), children of the lowest layer, of a batch of real images.

    Returns:
        v (J, B, D): the parents of the last layer.

    Raises:
        InputError: a layer without matrices of votes, or children that are all zero.

    >>> from graphcaps.nn import CapsuleLayer
    >>> layers = torch.nn.Sequential(*(CapsuleLayer(16, 16, 8, 8) for _ in range(8)))
    >>> u = torch.randn(16, 32, 8) / 30
    >>> layers(u).norm(dim=-1).max() < 1e-30, abs(scale_layers(layers, u).norm(dim=-1).mean() - 0.5) < 0.02
    (tensor(True), tensor(True))
    """
    for layer in layers:
        scalable = hasattr(layer, "votes") and isinstance(u, torch.Tensor)
        expect(scalable, "layers", "CapsuleLayer, SharedCaps or ConvCaps", type(layer).__name__)
        sums = torch.linalg.vector_norm(route_layer(layer, u, squash_output=False).v, dim=-1).mean()
        expect(bool(sums > 0), "u", "children of which one is longer than 0", "none")
        layer.weight.div_(sums)
        for _ in range(ROUNDS):
            mean = torch.linalg.vector_norm(layer(u), dim=-1).mean().clamp(0.01, 0.99)
            layer.weight.mul_(((1 - mean) / mean * LENGTH / (1 - LENGTH)).sqrt())
        u = layer(u)
    return u
