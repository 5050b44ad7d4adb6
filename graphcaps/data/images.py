"""Labelled images as uint8 tensors."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ..errors import expect

FIXED_SEED = 0
"""Seed of what is drawn for evaluation images, the same for everybody."""


@dataclass(frozen=True, eq=False)
class Images:
    """Images and their labels, on one device.

    Args:
        pixels: uint8 (N, C, H + 2 margin, W + 2 margin), 0 to 255, N >= 1.
        labels: int64 (N,), class numbers from 0; or bool (N, J), the classes that an image shows, any number of them.
        margin: pixels beyond each side of an image, by which ``Batches`` shifts it in training. With 0, shifts bring in
            black.
        rows: int64 (M,), if ``pixels`` stay in a file because they are too large for memory: the rows of these images,
            with a label for each. None: all of them, in order.

    Raises:
        InputError: wrong dtype or rank, no image, or not one label per image.

    >>> images = Images(torch.zeros(5, 1, 28, 28, dtype=torch.uint8), torch.arange(5))
    >>> len(images)
    5
    """

    pixels: Tensor
    labels: Tensor
    margin: int = 0
    rows: Tensor | None = None

    def __post_init__(self) -> None:
        pixels, labels = self.pixels, self.labels
        fits = pixels.dtype == torch.uint8 and pixels.dim() == 4 and pixels.numel() > 0
        got = f"{pixels.dtype} {tuple(pixels.shape)}"
        expect(fits, "pixels", "uint8 (N, C, H, W), none of them 0", got)
        count = len(pixels) if self.rows is None else len(self.rows)
        fits = len(labels) == count and (labels.dtype, labels.dim()) in ((torch.int64, 1), (torch.bool, 2))
        wanted, got = f"int64 ({count},), one per image, or bool ({count}, J)", f"{labels.dtype} {tuple(labels.shape)}"
        expect(fits, "labels", wanted, got)

    @property
    def objects(self) -> int | None:
        """How many objects an image shows; None: any number."""
        return 1 if self.labels.dim() == 1 else None

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """(C, H, W), without the margin."""
        channels, height, width = self.pixels.shape[1:]
        return channels, height - 2 * self.margin, width - 2 * self.margin

    def to(self, device: torch.device | str) -> Images:
        """The same images on ``device``; pixels in a file stay there until ``at`` reads them."""
        pixels = self.pixels.to(device) if self.rows is None else self.pixels
        return replace(self, pixels=pixels, labels=self.labels.to(device))

    def at(self, rows: Tensor) -> Tensor:
        """The pixels of the images at ``rows`` (M,) int64, with their margin, on the device of the labels."""
        if self.rows is None:
            return self.pixels[rows]
        return self.pixels[self.rows[rows.cpu()]].to(self.labels.device)

    def take(self, rows: Tensor) -> Images:
        """The images at ``rows`` (M,) int64, with their margin."""
        pixels, left = (self.pixels[rows], None) if self.rows is None else (self.pixels, self.rows[rows])
        return Images(pixels, self.labels[rows], self.margin, left)

    def cut(self) -> Images:
        """The images without their margin, in memory."""
        _, height, width = self.image_shape
        pixels = self.pixels if self.rows is None else self.pixels[self.rows]
        inside = pixels[:, :, self.margin :, self.margin :][:, :, :height, :width]
        return Images(inside.contiguous(), self.labels)


def to_float(pixels: Tensor) -> Tensor:
    """Pixels for a network: uint8 0 to 255, any shape -> float32 in [0, 1], the same bits on any device.

    >>> to_float(torch.tensor([0, 255], dtype=torch.uint8))
    tensor([0., 1.])
    """
    expect(pixels.dtype == torch.uint8, "pixels", "torch.uint8", pixels.dtype)
    # Not a division: a CPU divides, CUDA multiplies by 1 / 255, which rounds differently.
    return pixels.to(torch.float32).mul_(1 / 255)
