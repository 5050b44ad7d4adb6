"""Changes of test images (rotation, shift, noise, scrambled patches) at several severities.

Random numbers depend only on ``SEED`` and on an image's place in its data set, so a changed image is the same in any
batch and on any device.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import fold, unfold

from .augment import affine_maps, warp

SEED = 0
DIRECTIONS = ((1, 0), (-1, 0), (0, 1), (0, -1))  # (right, down)


def rotated(images: Tensor, degrees: float, places: Tensor) -> Tensor:
    """Turn images (B, C, H, W) counter-clockwise about their centre."""
    return moved(images, torch.full((len(images),), float(degrees)), torch.zeros(2, len(images)))


def shifted(images: Tensor, pixels: float, places: Tensor) -> Tensor:
    """Shift images (B, C, H, W) right, left, down or up. An image's place determines the direction."""
    drawn = [DIRECTIONS[_random(place).randint(len(DIRECTIONS))] for place in places.tolist()]
    return moved(images, torch.zeros(len(images)), pixels * torch.tensor(drawn, dtype=torch.float32).T)


def moved(images: Tensor, degrees: Tensor, shift: Tensor) -> Tensor:
    """Turn images (B, C, H, W) by degrees (B,), then shift them by pixels (2, B) to the right and down.

    Values are interpolated linearly, with zeros outside.
    """
    size = (images.shape[2], images.shape[3])
    maps = affine_maps(torch.deg2rad(degrees), torch.ones(len(images)), shift, size)
    return warp(images, maps.to(images))


def noisy(images: Tensor, sd: float, places: Tensor) -> Tensor:
    """Add Gaussian noise with standard deviation ``sd``, and clip to [0, 1]. An image's place determines its noise."""
    noise = np.stack([_random(place).standard_normal(images.shape[1:]) for place in places.tolist()])
    return (images + sd * torch.from_numpy(noise).to(images.dtype).to(images.device)).clamp(0, 1)


def scrambled(images: Tensor, side: float, places: Tensor) -> Tensor:
    """Cut images (B, C, H, W) into side x side patches and rearrange the patches, so that only local content survives.

    An image's place determines a permutation that moves every patch. Pixels at the border that fill no patch stay.

    >>> scrambled(torch.arange(4.0).view(1, 1, 2, 2), 2, torch.tensor([0])).flatten().eq(torch.arange(4)).any()
    tensor(False)
    """
    side, (height, width) = int(side), images.shape[2:]
    high, wide = height // side, width // side
    top, left = (height - side * high) // 2, (width - side * wide) // 2
    result = images.clone()
    inner, patch = result[:, :, top : top + side * high, left : left + side * wide], (high, wide)
    patches = unfold(inner, patch, stride=patch)  # (B, C * high * wide, side * side)
    order = np.stack([_derangement(_random(place), side * side) for place in places.tolist()])
    patches = patches.gather(2, torch.from_numpy(order).to(images.device)[:, None].expand_as(patches))
    inner.copy_(fold(patches, inner.shape[2:], patch, stride=patch))
    return result


@dataclass(frozen=True)
class Transform:
    """A change of test images at several severities."""

    apply: Callable[[Tensor, float, Tensor], Tensor]
    """Maps images (B, C, H, W) in [0, 1], a severity and places (B,) to images of the same shape."""
    severities: tuple[float, ...]
    clean: float  # the severity that leaves images unchanged
    says: str  # label of the severity's axis


TRANSFORMS = {
    "rotated": Transform(rotated, tuple(range(-60, 61, 15)), 0, "turned counter-clockwise, degrees"),
    "shifted": Transform(shifted, tuple(range(9)), 0, "shifted right, left, down or up, pixels"),
    "noisy": Transform(noisy, (0, 0.1, 0.2, 0.3, 0.4, 0.5), 0, "noise, standard deviation"),
    "scrambled": Transform(scrambled, (1, 2, 4), 1, "patches per side, none in its place"),
}


def _random(place: int) -> np.random.RandomState:
    """The generator of one place; ``RandomState`` has the same stream in all versions and on all platforms."""
    return np.random.RandomState([SEED, place])


def _derangement(random: np.random.RandomState, count: int) -> np.ndarray:
    """Draw a random permutation of ``count`` >= 2 numbers that leaves none in its place; all are equally likely."""
    while True:
        order = random.permutation(count)
        if (order != np.arange(count)).all():
            return order
