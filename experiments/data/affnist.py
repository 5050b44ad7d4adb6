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

from graphcaps.images.data import Images, load_images
from graphcaps.images.data.augment import warped

SIDE, BORDER = 40, 6  # pixels: of an image, and the largest shift of a digit in mnist40
MAX_DEGREES, MAX_SHEAR, MIN_SCALE, MAX_SCALE = 20.0, 0.2, 0.8, 1.2
BATCH = 2000


def load_affnist(root: Path | str) -> Images:
    """Make test images (10000, 1, 40, 40) from MNIST's, for a network trained on ``mnist40``."""
    return affnist_style(load_images("mnist", root).test)


def affnist_style(digits: Images) -> Images:
    """Randomly scale, shear, turn and shift digits (N, 1, 28, 28), white on black; return (N, 1, 40, 40).

    A digit's ink may end up anywhere in the frame. Its random map doesn't depend on N.

    >>> affnist_style(Images(torch.full((3, 1, 28, 28), 9, dtype=torch.uint8), torch.arange(3))).image_shape
    (1, 40, 40)
    """
    numbers = torch.from_numpy(np.random.RandomState(0).random_sample((len(digits), 6)).T)  # in [0, 1)
    parts, framed = [], pad(digits.pixels, [(SIDE - 28) // 2] * 4)
    for pixels, drawn in zip(framed.split(BATCH), numbers.split(BATCH, dim=1), strict=True):
        angle, shear = (2 * drawn[0] - 1) * MAX_DEGREES * (math.pi / 180), (2 * drawn[1] - 1) * MAX_SHEAR
        cos, sin, scale = angle.cos(), angle.sin(), MIN_SCALE + (MAX_SCALE - MIN_SCALE) * drawn[2:4]
        # First scale width and height, then shear to the right, then turn.
        linear = torch.stack([cos, cos * shear + sin, -sin, cos - sin * shear], -1).view(-1, 2, 2) * scale.T[:, None]
        least, most = _shift_range(pixels, linear)
        # In float64, rounding to uint8 gives the same pixels on any machine, except for ties.
        moved = warped(pixels.double(), torch.linalg.inv(linear), least + (most - least) * drawn[4:6])
        parts.append(moved.round().to(torch.uint8))
    return Images(torch.cat(parts), digits.labels)


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


def parts(images: Images) -> dict[str, Tensor]:
    """All images (key ""), those ``within`` the shifts of ``mnist40``, and those ``beyond`` them, each as bool (N,).

    A digit's shift is taken to be that of its centre of mass, rounded to pixels; turns, shears and scaling about the
    middle move the centre of mass little. A blank image counts as close. Empty parts are left out.
    """
    # MNIST's centre of mass is half a pixel below and to the right of the middle.
    ink, places = images.pixels[:, 0].double(), torch.arange(SIDE).double() - SIDE / 2
    shifts = torch.stack([ink.sum(1) @ places, ink.sum(2) @ places]) / ink.sum((1, 2)).clamp(min=1)  # (2, N)
    close = (shifts.abs() <= BORDER + 0.5).all(dim=0)
    named = {"": torch.ones_like(close), "within": close, "beyond": ~close}
    return {name: part for name, part in named.items() if part.any()}
