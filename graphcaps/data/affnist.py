"""affNIST: MNIST's digits under random affine maps in 40 x 40, to test networks that were trained on shifted digits.

If the data folder contains the official file (Tijmen Tieleman 2013, https://www.cs.toronto.edu/~tijmen/affNIST), it is
read. Otherwise similar images, "affNIST-style", are made from MNIST. Differs: the order of the maps and the
interpolation are not the official ones, and each digit occurs once instead of 32 times.
"""

import math
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from ..atomic import reading
from ..errors import expect
from ..names import DATASETS
from .augment import inverse_maps, warp
from .datasets import load_images
from .images import Images

SIDE = 40
MAX_DEGREES, MAX_SHEAR, MIN_SCALE, MAX_SCALE = 20.0, 0.2, 0.8, 1.2
BATCH = 2000
OFFICIAL_FILE = "affNIST/test.mat"


def load_affnist(root: Path | str) -> tuple[Images, str]:
    """Return test images (N, 1, 40, 40) for a network trained on ``mnist40``, and "affNIST" or "affNIST-style".

    Raises:
        InputError: the official file exists but isn't in the expected format.
        GraphcapsError: MNIST isn't in ``root`` and can't be downloaded.
    """
    root = Path(root).expanduser()
    if (root / OFFICIAL_FILE).exists():
        return read_affnist(root / OFFICIAL_FILE), "affNIST"
    digits = load_images("mnist", root).test
    assert isinstance(digits, Images), "mnist isn't made of pairs"
    return affnist_style(digits), "affNIST-style"


def within(images: Images) -> Tensor:
    """Whether each of N digits is as close to the middle as in ``mnist40``, which shifts by up to 6 pixels each way.

    The official file doesn't store shifts. So a digit's shift is taken to be that of its centre of mass, rounded to
    pixels; turns, shears and scaling about the middle move the centre of mass little. A blank image counts as close.
    """
    # MNIST's centre of mass is half a pixel below and to the right of the middle.
    ink, places = images.pixels[:, 0].double(), torch.arange(SIDE).double() - SIDE / 2
    shifts = torch.stack([ink.sum(1) @ places, ink.sum(2) @ places]) / ink.sum((1, 2)).clamp(min=1)  # (2, N)
    return (shifts.abs() <= (DATASETS["mnist40"].border or 0) + 0.5).all(dim=0)


def read_affnist(path: Path) -> Images:
    """Read an official file, whose struct has ``image`` uint8 (1600, N) and ``label_int`` (1, N). It can't run code."""
    from scipy.io import loadmat

    with reading(path, "a MATLAB 5 file with a struct affNISTdata of image and label_int", "Fetch it again"):
        data = loadmat(path, variable_names=["affNISTdata"])["affNISTdata"]
        pixels, labels = data["image"].item(), data["label_int"].item().reshape(-1)
    fits = pixels.dtype == np.uint8 and pixels.shape == (SIDE * SIDE, len(labels)) and np.isin(labels, range(10)).all()
    got = f"{pixels.dtype} {pixels.shape}, {len(labels)} labels from {min(labels)} to {max(labels)}"
    expect(bool(fits), str(path), f"uint8 ({SIDE * SIDE}, N) and N labels 0 to 9", got)
    images = np.ascontiguousarray(pixels.T).reshape(-1, 1, SIDE, SIDE)
    return Images(torch.from_numpy(images), torch.from_numpy(labels.astype(np.int64)))


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
