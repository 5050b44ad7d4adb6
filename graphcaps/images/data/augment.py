"""Augmentation: in each epoch, an image gets a shift by whole pixels, an affine map, or a new place for its ink.

Evaluation images get fixed random places instead, drawn by NumPy's ``RandomState``, whose stream never changes. So they
are the same on every machine, and an image's place doesn't depend on the number of images.
"""

import math

import numpy as np
import torch
from torch import Generator, Tensor
from torch.nn.functional import affine_grid, grid_sample, max_pool2d, pad

from .images import FIXED_SEED, Images

MOST_DOTS = 15  # in an image of ``draw_clutter``, on average
MAX_AFFINE = math.radians(15), 0.15, 0.15, 0.15  # turn, shear, and logarithms of two scales, each way


def ink_room(pixels: Tensor) -> Tensor:
    """Count the blank rows above and below each image's ink, and the blank columns left and right of it.

    Images are (N, C, H, W), counts int64 (2, 2, N). Ink is every pixel that isn't 0. Without ink, all counts are 0.

    >>> ink_room(torch.tensor([[[[0, 0, 0], [0, 9, 9]]]], dtype=torch.uint8)).flatten(1).tolist()
    [[1, 0], [1, 0]]
    """
    room = []
    for others in ((1, 3), (1, 2)):
        inked = pixels.amax(others).bool().byte()  # (N, H) or (N, W)
        room.append(torch.stack([inked.argmax(1), inked.flip(1).argmax(1)]))
    return torch.stack(room)


def draw_moves(room: Tensor, numbers: Tensor) -> Tensor:
    """Turn random numbers (2, N), uniform in [0, 1), into moves down and right, int64 (2, N), within ``ink_room``."""
    before, behind = room.unbind(1)  # (2, N)
    return (numbers * (before + behind + 1)).long() - before


def windows(pixels: Tensor, top: Tensor | int, left: Tensor | int, size: tuple[int, int]) -> Tensor:
    """Cut a window (C, *size) out of each image (B, C, H, W), starting at row ``top``, column ``left``: (B,) or int."""
    views = pixels.unfold(2, size[0], 1).unfold(3, size[1], 1)  # (B, C, rows, columns, *size)
    return views[torch.arange(len(pixels), device=pixels.device), :, top, left]


def moved(pixels: Tensor, down: Tensor, right: Tensor) -> Tensor:
    """Move each image (B, C, H, W) by whole pixels (B,). Pixels that leave on one side enter on the other."""
    height, width = pixels.shape[2:]
    return windows(pixels.repeat(1, 1, 2, 2), -down % height, -right % width, (height, width))


def draw_maps(numbers: Tensor) -> Tensor:
    """Turn random numbers (4, N), uniform in [0, 1), into linear maps (N, 2, 2) that scale, shear and turn an image."""
    angle, shear, *scales = (2 * numbers - 1) * numbers.new_tensor(MAX_AFFINE).unsqueeze(1)
    cos, sin = angle.cos(), angle.sin()
    turned = torch.stack([cos, cos * shear - sin, sin, sin * shear + cos], 1).view(-1, 2, 2)
    return turned * torch.stack(scales, 1).exp().unsqueeze(1)


def warped(images: Tensor, inverse: Tensor, shift: Tensor | None = None) -> Tensor:
    """Apply affine maps to images (B, C, H, W): bilinear, with zeros outside.

    The result's value at x, measured from the centre, is the image's value at inverse (x - shift). Inverse linear maps
    are (B, 2, 2), and shifts (2, B) in pixels to the right and down; None: no shift.
    """
    offset = inverse.new_zeros(len(inverse), 2, 1) if shift is None else -(inverse @ shift.T[:, :, None])
    half = inverse.new_tensor([images.shape[3] / 2, images.shape[2] / 2])  # affine_grid's unit of length
    maps = torch.cat([inverse * half / half[:, None], offset / half[:, None]], -1).to(images)  # (B, 2, 3)
    return grid_sample(images, affine_grid(maps, list(images.shape), align_corners=False), align_corners=False)


def draw_clutter(count: int, image_shape: tuple[int, int, int], generator: Generator) -> Tensor:
    """Draw images uint8 (N, C, H, W) without an object. A third each are blank, have up to 15 dots, or have noise."""
    kind, level, share, wide = torch.rand(4, count, 1, 1, 1, generator=generator)
    noise, places = torch.rand(2, count, *image_shape, generator=generator)
    dots = (0.3 + 0.7 * noise) * (places < share * MOST_DOTS / math.prod(image_shape))
    dots = torch.where(wide < 0.5, max_pool2d(pad(dots, (1, 0, 1, 0)), 2, 1), dots)  # half of them have 2 x 2 pixels
    noise = noise * level * (places < 2 * share)
    return (255 * torch.where(kind < 1 / 3, 0, torch.where(kind < 2 / 3, dots, noise))).round().to(torch.uint8)


def in_frame(images: Images, border: int) -> Images:
    """Add ``border`` black pixels to each side of training images, and let ``Batches`` shift them by as many."""
    return Images(pad(images.pixels, [border] * 4), images.labels, shift=border)


def in_fixed_places(images: Images, border: int) -> Images:
    """Add ``border`` black pixels to each side of evaluation images, then move each by up to ``border`` each way."""
    numbers = np.random.RandomState(FIXED_SEED).random_sample((len(images), 2))
    down, right = border - torch.from_numpy(numbers * (2 * border + 1)).long().T
    return Images(moved(pad(images.pixels, [border] * 4), down, right), images.labels)


def ink_in_fixed_places(images: Images) -> Images:
    """Move the ink of each evaluation image to a random place where it fits, all equally likely."""
    numbers = torch.from_numpy(np.random.RandomState(FIXED_SEED).random_sample((len(images), 2)).T)
    down, right = draw_moves(ink_room(images.pixels), numbers)
    return Images(moved(images.pixels, down, right), images.labels)
