"""Augmentation: a shift by whole pixels, a new place for the ink, or an affine map for each image of an epoch.

Evaluation images have fixed places instead, drawn by NumPy's ``RandomState``, whose stream is frozen: they are the same
for everybody, and those of the first images are the same for any number of images.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Generator, Tensor
from torch.nn.functional import affine_grid, grid_sample, pad

from .images import FIXED_SEED, Images

SHIFT = 2
"""Pixels by which images without a margin are shifted at most."""
MAX_DEGREES, MIN_SCALE, MAX_SCALE = 15.0, 0.9, 1.1


def ink_room(pixels: Tensor) -> Tensor:
    """The rows above and below the ink of each image (N, C, H, W), the columns to its left and right: int64 (2, 2, N).

    Ink is what isn't 0. An image without ink has no room.

    >>> ink_room(torch.tensor([[[[0, 0, 0], [0, 9, 9]]]], dtype=torch.uint8)).flatten(1).tolist()
    [[1, 0], [1, 0]]
    """
    room = []
    for others in ((1, 3), (1, 2)):
        inked = pixels.amax(others).bool().byte()  # (N, H) or (N, W)
        room.append(torch.stack([inked.argmax(1), inked.flip(1).argmax(1)]))
    return torch.stack(room)


def draw_moves(room: Tensor, numbers: Tensor) -> Tensor:
    """Whole pixels down and right, int64 (2, N), that put ink with this room (2, 2, N) anywhere it fits.

    Numbers (2, N), uniform in [0, 1), draw them, all places equally likely.
    """
    before, behind = room.unbind(1)  # (2, N)
    return (numbers * (before + behind + 1)).long() - before


def moved(pixels: Tensor, down: Tensor, right: Tensor) -> Tensor:
    """Images (B, C, H, W), each moved by whole pixels (B,). Pixels that leave on one side enter on the other."""
    channels, height, width = pixels.shape[1:]
    rows = (torch.arange(height, device=pixels.device) - down[:, None]) % height  # (B, H)
    columns = (torch.arange(width, device=pixels.device) - right[:, None]) % width  # (B, W)
    places = (rows[:, :, None] * width + columns[:, None]).flatten(1)[:, None].expand(-1, channels, -1)  # (B, C, H W)
    return pixels.flatten(2).gather(2, places).view(pixels.shape)


def draw_affine(count: int, size: tuple[int, int], generator: Generator, most: int = SHIFT) -> Tensor:
    """``affine_maps`` for uniform turns by up to 15 degrees, scales 0.9 to 1.1, shifts by up to ``most`` pixels."""
    angle, scale, down, right = torch.rand(4, count, generator=generator)
    return affine_maps(
        (2 * angle - 1) * math.radians(MAX_DEGREES),
        MIN_SCALE + (MAX_SCALE - MIN_SCALE) * scale,
        torch.stack([2 * right - 1, 2 * down - 1]) * most,
        size,
    )


def affine_maps(angle: Tensor, scale: Tensor, shift: Tensor, size: tuple[int, int]) -> Tensor:
    """Matrices (N, 2, 3) for ``warp``: turn counter-clockwise about the centre and scale, then shift.

    Args:
        angle: (N,), radians.
        scale: (N,), > 1 enlarges.
        shift: (2, N), pixels to the right and down.
        size: (H, W).
    """
    cos, sin = torch.cos(angle) / scale, torch.sin(angle) / scale
    inverse = torch.stack([cos, -sin, sin, cos], -1).view(-1, 2, 2)  # (N, 2, 2)
    return inverse_maps(inverse, shift, size)


def inverse_maps(inverse: Tensor, shift: Tensor, size: tuple[int, int]) -> Tensor:
    """Matrices (N, 2, 3) for ``warp``: the result at x, counted from the centre, is read at ``inverse`` (x - shift).

    Args:
        inverse: (N, 2, 2), inverses of the maps of the image.
        shift: (2, N), pixels to the right and down.
        size: (H, W).
    """
    offset = -(inverse @ shift.T[:, :, None])  # (N, 2, 1)
    half = torch.tensor([size[1] / 2, size[0] / 2])  # affine_grid counts in half sizes of the image
    return torch.cat([inverse * half / half[:, None], offset / half[:, None]], -1)  # (N, 2, 3)


def warp(images: Tensor, maps: Tensor) -> Tensor:
    """Images (B, C, H, W) under ``affine_maps`` or ``inverse_maps`` (B, 2, 3), bilinear, zeros outside."""
    return grid_sample(images, affine_grid(maps, list(images.shape), align_corners=False), align_corners=False)


def in_frame(images: Images, border: int) -> Images:
    """Images to train on: centred, ``border`` black pixels on each side, and a margin by which ``Batches`` shifts."""
    return Images(pad(images.pixels, [2 * border] * 4), images.labels, margin=border)


def in_fixed_places(images: Images, border: int) -> Images:
    """Images to evaluate on: each in the frame of ``in_frame``, moved by up to ``border`` each way."""
    _, height, width = images.image_shape
    numbers = np.random.RandomState(FIXED_SEED).random_sample((len(images), 2))
    down, right = torch.from_numpy(numbers * (2 * border + 1)).long().T
    windows = pad(images.pixels, [2 * border] * 4).unfold(2, height + 2 * border, 1).unfold(3, width + 2 * border, 1)
    return Images(windows[torch.arange(len(images)), :, down, right], images.labels)


def ink_in_fixed_places(images: Images) -> Images:
    """Images (without a margin) to evaluate on: the ink of each at any place where it fits, all equally likely."""
    numbers = torch.from_numpy(np.random.RandomState(FIXED_SEED).random_sample((len(images), 2)).T)
    down, right = draw_moves(ink_room(images.pixels), numbers)
    return Images(moved(images.pixels, down, right), images.labels)
