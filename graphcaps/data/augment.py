"""What is drawn for each image of an epoch: a shift by whole pixels, a place for its ink, or an affine map."""

from __future__ import annotations

import math

import torch
from torch import Generator, Tensor
from torch.nn.functional import affine_grid, grid_sample

SHIFT = 2
"""How far images without a margin of their own are shifted, in pixels."""
DEGREES = 15.0
SCALES = (0.9, 1.1)


def draw_shifts(count: int, most: int, generator: Generator) -> Tensor:
    """Where each image is cut out of its frame padded by ``most``: rows and columns, (2, count), 0 to 2 * most."""
    return torch.randint(0, 2 * most + 1, (2, count), generator=generator)


def ink_room(pixels: Tensor) -> Tensor:
    """How far the ink of each image can move up, down, left and right before it leaves the image.

    Args:
        pixels: uint8 (N, C, H, W); ink is what isn't 0. An image without ink has no room.

    Returns:
        int64 (2, 2, N): of rows and of columns, the room before the ink and behind it.

    >>> ink_room(torch.tensor([[[[0, 0, 0], [0, 9, 9]]]], dtype=torch.uint8)).flatten(1).tolist()
    [[1, 0], [1, 0]]
    """
    room = []
    for others in ((1, 3), (1, 2)):
        inked = pixels.amax(others).bool().byte()  # (N, H) or (N, W)
        room.append(torch.stack([inked.argmax(1), inked.flip(1).argmax(1)]))
    return torch.stack(room)


def draw_moves(room: Tensor, numbers: Tensor) -> Tensor:
    """Whole pixels down and right, int64 (2, N), that put ink anywhere it fits, all places equally likely.

    Args:
        room: as ``ink_room`` gives it.
        numbers: (2, N) float64 in [0, 1), uniform.
    """
    before, behind = room.unbind(1)  # (2, N)
    return (numbers * (before + behind + 1)).long() - before


def moved(pixels: Tensor, down: Tensor, right: Tensor) -> Tensor:
    """Images (B, C, H, W), each moved by whole pixels (B,). What leaves on one side comes back on the other."""
    channels, height, width = pixels.shape[1:]
    rows = (torch.arange(height, device=pixels.device) - down[:, None]) % height  # (B, H)
    columns = (torch.arange(width, device=pixels.device) - right[:, None]) % width  # (B, W)
    places = (rows[:, :, None] * width + columns[:, None]).flatten(1)[:, None].expand(-1, channels, -1)  # (B, C, H W)
    return pixels.flatten(2).gather(2, places).view(pixels.shape)


def draw_affine(count: int, size: tuple[int, int], generator: Generator, most: int = SHIFT) -> Tensor:
    """``affine_maps`` for uniform turns by up to 15 degrees, scales 0.9 to 1.1, shifts by up to ``most`` pixels."""
    angle, scale, down, right = torch.rand(4, count, generator=generator)
    low, high = SCALES
    return affine_maps(
        (2 * angle - 1) * math.radians(DEGREES),
        low + (high - low) * scale,
        torch.stack([2 * right - 1, 2 * down - 1]) * most,
        size,
    )


def affine_maps(angle: Tensor, scale: Tensor, shift: Tensor, size: tuple[int, int]) -> Tensor:
    """Matrices for ``warp``: turn counter-clockwise about the centre and scale, then shift.

    The result at x, counted from the centre, is read at R(angle)^-1 (x - shift) / scale.

    Args:
        angle: (N,), radians.
        scale: (N,), > 1 enlarges.
        shift: (2, N), pixels to the right and down.
        size: (H, W).

    Returns:
        (N, 2, 3)
    """
    cos, sin = torch.cos(angle) / scale, torch.sin(angle) / scale
    inverse = torch.stack([cos, -sin, sin, cos], -1).view(-1, 2, 2)  # (N, 2, 2)
    return inverse_maps(inverse, shift, size)


def inverse_maps(inverse: Tensor, shift: Tensor, size: tuple[int, int]) -> Tensor:
    """Matrices for ``warp``: the result at x, counted from the centre, is read at ``inverse`` (x - shift).

    ``affine_grid`` counts in half sizes of the image, so the matrix is scaled by them on both sides.

    Args:
        inverse: (N, 2, 2), of what is done to the image.
        shift: (2, N), pixels to the right and down.
        size: (H, W).

    Returns:
        (N, 2, 3)
    """
    offset = -(inverse @ shift.T[:, :, None])  # (N, 2, 1)
    half = torch.tensor([size[1] / 2, size[0] / 2])
    return torch.cat([inverse * half / half[:, None], offset / half[:, None]], -1)  # (N, 2, 3)


def warp(images: Tensor, maps: Tensor) -> Tensor:
    """Images (B, C, H, W) under ``affine_maps`` or ``inverse_maps`` (B, 2, 3), bilinear, zeros outside."""
    return grid_sample(images, affine_grid(maps, list(images.shape), align_corners=False), align_corners=False)
