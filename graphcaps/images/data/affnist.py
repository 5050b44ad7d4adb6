"""affNIST-style images: MNIST's digits under random affine maps in 40 x 40, to test networks trained on shifted digits.

They resemble affNIST (Tijmen Tieleman 2013, https://www.cs.toronto.edu/~tijmen/affNIST). Differs: the order of the maps
and the interpolation are not the official ones, and each digit occurs once instead of 32 times.
"""

import math
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from ...names import DATASETS
from .augment import inverse_maps, warp
from .datasets import load_images
from .images import Images

SIDE = 40
MAX_DEGREES, MAX_SHEAR, MIN_SCALE, MAX_SCALE = 20.0, 0.2, 0.8, 1.2
BATCH = 2000


def load_affnist(root: Path | str) -> Images:
    """Make test images (10000, 1, 40, 40) from MNIST's, for a network trained on ``mnist40``.

    Raises:
        GraphcapsError: MNIST isn't in ``root`` and can't be downloaded.
    """
    return affnist_style(load_images("mnist", root).test)


def within(images: Images) -> Tensor:
    """Whether each of N digits is as close to the middle as in ``mnist40``, which shifts by up to 6 pixels each way.

    A digit's shift is taken to be that of its centre of mass, rounded to pixels; turns, shears and scaling about the
    middle move the centre of mass little. A blank image counts as close.
    """
    # MNIST's centre of mass is half a pixel below and to the right of the middle.
    ink, places = images.pixels[:, 0].double(), torch.arange(SIDE).double() - SIDE / 2
    shifts = torch.stack([ink.sum(1) @ places, ink.sum(2) @ places]) / ink.sum((1, 2)).clamp(min=1)  # (2, N)
    return (shifts.abs() <= (DATASETS["mnist40"].border or 0) + 0.5).all(dim=0)


def affnist_style(digits: Images, seed: int = 0) -> Images:
    """Randomly scale, shear, turn and shift digits (N, 1, 28, 28), white on black; return (N, 1, 40, 40).

    A digit's ink may end up anywhere in the frame. Its random map doesn't depend on N.

    >>> affnist_style(Images(torch.full((3, 1, 28, 28), 9, dtype=torch.uint8), torch.arange(3))).image_shape
    (1, 40, 40)
    """
    numbers = torch.from_numpy(np.random.RandomState(seed).random_sample((len(digits), 6)).T)  # in [0, 1)
    parts, framed = [], pad(digits.pixels, [(SIDE - 28) // 2] * 4)
    for pixels, some in zip(framed.split(BATCH), numbers.split(BATCH, dim=1), strict=True):
        scale = MIN_SCALE + (MAX_SCALE - MIN_SCALE) * some[2:4]
        linear = linear_maps((2 * some[0] - 1) * MAX_DEGREES, (2 * some[1] - 1) * MAX_SHEAR, scale)
        least, most = _shift_range(pixels, linear)
        maps = inverse_maps(torch.linalg.inv(linear), least + (most - least) * some[4:6], (SIDE, SIDE))
        # In float64, rounding to uint8 gives the same pixels on any machine, except for ties.
        parts.append(warp(pixels.double(), maps).round().to(torch.uint8))
    return Images(torch.cat(parts), digits.labels)


def linear_maps(degrees: Tensor, shear: Tensor, scale: Tensor) -> Tensor:
    """Matrices (N, 2, 2) that first scale width and height (2, N), then shear to the right (N,), then turn (N,)."""
    angle = degrees * (math.pi / 180)
    cos, sin = angle.cos(), angle.sin()
    turned = torch.stack([cos, cos * shear + sin, -sin, cos - sin * shear], -1).view(-1, 2, 2)
    return turned * scale.T[:, None]


def _shift_range(pixels: Tensor, linear: Tensor) -> Tensor:
    """The smallest and the largest shift (2, 2, N), right and down, that keep all ink of (N, 1, 40, 40) in view."""
    at = torch.arange(SIDE).double() - (SIDE - 1) / 2
    points = torch.cartesian_prod(at, at).T.flip(0)  # (2, 1600): right, down
    blank = (pixels == 0).flatten(2)  # (N, 1, 1600)
    # Bilinear sampling spreads a pixel of ink by less than one pixel of the original image to each side.
    places, spread = linear @ points, linear.abs().sum(2)  # (N, 2, 1600), (N, 2)
    first = places.masked_fill(blank, math.inf).amin(2) - spread
    last = places.masked_fill(blank, -math.inf).amax(2) + spread
    return torch.stack([-(SIDE + 1) / 2 - first, (SIDE + 1) / 2 - last]).nan_to_num(0, 0, 0).transpose(1, 2)
