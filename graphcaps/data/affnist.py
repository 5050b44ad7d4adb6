"""affNIST: MNIST's digits under random affine maps in 40 x 40, to test networks that saw only moved ones.

The official files (Tijmen Tieleman 2013, https://www.cs.toronto.edu/~tijmen/affNIST) are read where somebody has put
them. Else images in their style are made from MNIST: turned by up to 20 degrees, sheared by up to 0.2, scaled by 0.8 to
1.2 along each axis and shifted to anywhere in the frame. Differs: the order of the maps and the interpolation are ours,
and each digit comes once, not 32 times; so they have another name.

Most of these shifts are larger than those of ``mnist40``, which moves by up to 6 pixels. What fails there may fail at
places that training never had, and not at affine maps: ``within`` tells the two apart.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from ..errors import InputError, expect
from .augment import inverse_maps, warp
from .datasets import DATASETS, load_images
from .images import Images

SIDE = 40
DEGREES = 20.0
SHEAR = 0.2
SCALES = (0.8, 1.2)
AT_ONCE = 2000
OFFICIAL = "affNIST/test.mat"


class Poses(NamedTuple):
    """What is done to each of N digits about the middle of its image: scaled, then sheared, turned and shifted."""

    degrees: Tensor
    """(N,) counter-clockwise, -20 to 20."""
    shear: Tensor
    """(N,) -0.2 to 0.2: how far to the right a point moves per pixel that it lies below the middle."""
    scale: Tensor
    """(2, N) 0.8 to 1.2: of the width, of the height."""
    shift: Tensor
    """(2, N) pixels to the right and down."""

    def linear(self) -> Tensor:
        """(N, 2, 2): where turn, shear and scale take a point (right, down) counted from the middle."""
        turn = self.degrees * (math.pi / 180)
        cos, sin, one, zero = turn.cos(), turn.sin(), torch.ones_like(turn), torch.zeros_like(turn)
        turned = torch.stack([cos, sin, -sin, cos], -1).view(-1, 2, 2)
        sheared = torch.stack([one, self.shear, zero, one], -1).view(-1, 2, 2)
        return turned @ sheared * self.scale.T[:, None]


def load_affnist(root: Path | str, split: Literal["test", "val"] = "test") -> tuple[Images, str]:
    """Images to test a network trained on ``mnist40`` with, and what they are.

    Args:
        root: the folder that holds ``MNIST/raw`` and, where somebody has put it there, the official test file as
            ``affNIST/test.mat``. It is never downloaded; MNIST is.
        split: ``"val"``: made from MNIST's validation digits whatever is there, because the official validation images
            show digits that are training digits here.

    Returns:
        images (N, 1, 40, 40), and ``"affNIST"`` if they come from the official file, else ``"affNIST-style"``.

    Raises:
        InputError: the official file isn't what it should be, or another split.
        GraphcapsError: MNIST is missing and can't be downloaded.
    """
    expect(split in ("test", "val"), "split", "test or val", repr(split))
    root = Path(root).expanduser()
    if split == "test" and (root / OFFICIAL).exists():
        return read_affnist(root / OFFICIAL), "affNIST"
    return affnist_style(getattr(load_images("mnist", root), split)), "affNIST-style"


def within(images: Images) -> Tensor:
    """Which digits lie no further from the middle than ``mnist40`` moves them: to the nearest pixel, 6 each way.

    Told from the images alone, because official files are asked too. MNIST's images have a digit's centre of mass half
    a pixel below and to the right of the middle, and turns, shears and scales about the middle leave it near there. So
    where it lies is how far the digit was moved. On our test images it is 0.3 pixels (standard deviation) from the
    shift that was drawn.

    Args:
        images: (N, 1, H, W), such as ``load_affnist`` gives.

    Returns:
        bool (N,). An image without ink isn't moved.
    """
    most = (DATASETS["mnist40"].border or 0) + 0.5
    ink = images.pixels[:, 0].double()  # (N, H, W)
    total = ink.sum((1, 2)).clamp(min=1)
    right, down = (
        (ink.sum(axis) * (torch.arange(ink.shape[3 - axis]) - ink.shape[3 - axis] / 2)).sum(1) / total
        for axis in (1, 2)
    )  # (N,) each, from half a pixel below and to the right of the middle
    return (right.abs() <= most) & (down.abs() <= most)


def read_affnist(path: Path) -> Images:
    """Read one MATLAB 5 file with a struct ``affNISTdata``.

    Of its fields, ``image`` is uint8 (1600, N), each column an image row by row (as public readers that show the images
    take it), and ``label_int`` (1, N). SciPy reads such files without running anything in them.

    Returns:
        N images of (1, 40, 40).

    Raises:
        InputError: unreadable, truncated, or without these fields in these shapes.
    """
    from scipy.io import loadmat

    name = str(path)
    try:
        found = loadmat(path, variable_names=["affNISTdata"])
    except Exception as error:  # on damaged files SciPy raises whatever its parser meets
        reason = " ".join(str(error).split()) or type(error).__name__
        raise InputError(f"{name}: expected a whole MATLAB 5 file, got: {reason}. Fetch it again") from error
    data = found.get("affNISTdata")
    fields = getattr(getattr(data, "dtype", None), "names", None) or ()
    held = ", ".join(fields) or "no such struct"
    expect({"image", "label_int"} <= set(fields), name, "a struct affNISTdata with image and label_int", held)
    expect(data.size == 1, name, "one struct affNISTdata", data.size)
    pixels, labels = data["image"].item(), data["label_int"].item()
    fits = pixels.dtype == np.uint8 and pixels.ndim == 2 and len(pixels) == SIDE * SIDE and pixels.size
    expect(fits, f"{name}: image", f"uint8 ({SIDE * SIDE}, N)", f"{pixels.dtype} {pixels.shape}")
    count = pixels.shape[1]
    fits = labels.dtype.kind in "uif" and labels.size == count
    expect(fits, f"{name}: label_int", f"{count} numbers", f"{labels.dtype} {labels.shape}")
    labels = labels.reshape(-1)
    expect(
        bool(np.isin(labels, np.arange(10)).all()), f"{name}: label_int", "0 to 9", f"{labels.min()} to {labels.max()}"
    )
    images = np.ascontiguousarray(pixels.T).reshape(count, 1, SIDE, SIDE)
    return Images(torch.from_numpy(images), torch.from_numpy(labels.astype(np.int64)))


def affnist_style(digits: Images, seed: int = 0) -> Images:
    """Digits in the style of affNIST, ``drawn`` in the poses that ``draw_poses`` draws.

    Args:
        digits: (N, 1, H, W), white on black, at most 40 x 40; MNIST's 28 x 28.
        seed: of the poses.

    Returns:
        images (N, 1, 40, 40).

    Raises:
        InputError: a digit that doesn't fit into 40 x 40 once it is scaled and turned.

    >>> affnist_style(Images(torch.full((3, 1, 8, 8), 255, dtype=torch.uint8), torch.arange(3))).image_shape
    (1, 40, 40)
    """
    return drawn(digits, draw_poses(digits, seed))


def draw_poses(digits: Images, seed: int = 0) -> Poses:
    """A pose for each digit: turn, shear and scales uniform in their ranges, and the shift where no ink is lost.

    NumPy's ``RandomState`` draws them, whose stream is frozen; the first digits have the same poses however many there
    are.

    Args:
        digits: (N, 1, H, W).
        seed: 0 to 2**32 - 1.

    Returns:
        poses in float64.

    Raises:
        InputError: a digit that doesn't fit into 40 x 40.
    """
    numbers = torch.from_numpy(np.random.RandomState(seed).random_sample((len(digits), 6)).T)
    low, high = SCALES
    poses = Poses(
        (2 * numbers[0] - 1) * DEGREES, (2 * numbers[1] - 1) * SHEAR, low + (high - low) * numbers[2:4], numbers[4:6]
    )
    least, most = _room(digits, poses.linear())
    widest = (least - most).max().item() + SIDE
    expect(widest <= SIDE, "digits", f"ink of at most {SIDE} pixels once scaled and turned", f"{widest:.1f}")
    return poses._replace(shift=least + (most - least) * poses.shift)


def drawn(digits: Images, poses: Poses, side: int = SIDE) -> Images:
    """The digits in their poses, bilinear, in a black frame.

    Computed in float64, so that rounding to uint8 gives the same pixels on any machine but for ties.

    Returns:
        images (N, 1, side, side).
    """
    _, height, width = digits.image_shape
    top, left = (side - height) // 2, (side - width) // 2
    maps = inverse_maps(torch.linalg.inv(poses.linear()), poses.shift, (side, side))
    parts = []
    for pixels, some in zip(digits.pixels.split(AT_ONCE), maps.split(AT_ONCE), strict=True):
        framed = pad(pixels, [left, side - width - left, top, side - height - top])
        parts.append(warp(framed.double(), some).round().to(torch.uint8))
    return Images(torch.cat(parts), digits.labels)


def _room(digits: Images, linear: Tensor) -> tuple[Tensor, Tensor]:
    """The least and the largest shift (2, N), to the right and down, that lose nothing of a digit in the frame.

    Bilinear sampling spreads a pixel of ink over less than one pixel on each side of its place before the map.
    """
    _, height, width = digits.image_shape
    down, right = torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")
    points = torch.stack([right - (width - 1) / 2, down - (height - 1) / 2]).flatten(1).double()  # (2, H W)
    room = []
    for pixels, some in zip(digits.pixels.split(AT_ONCE), linear.split(AT_ONCE), strict=True):
        blank = (pixels == 0).all(1).flatten(1)[:, None]  # (B, 1, H W)
        places, spread = some @ points, some.abs().sum(2)  # (B, 2, H W), (B, 2)
        first = places.masked_fill(blank, math.inf).amin(2) - spread
        last = places.masked_fill(blank, -math.inf).amax(2) + spread
        room.append(torch.stack([-(SIDE + 1) / 2 - first, (SIDE + 1) / 2 - last]).nan_to_num(0, 0, 0))
    least, most = torch.cat(room, 1).transpose(1, 2)
    return least, most
