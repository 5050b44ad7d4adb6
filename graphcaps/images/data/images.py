"""Labelled images of one object, or of two digits, as uint8 tensors."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ...errors import expect

FIXED_SEED = 0
"""Seed of all random numbers for evaluation images, the same for every user."""
REACH = 4
"""Largest shift in pixels of a digit in a pair."""
SINGLES, EMPTY = 0.15, 0.05
"""Shares of the training images of ``Pairs`` that show only one digit, and none."""
ABSENT = -1
"""The label of a digit that such an image doesn't show."""


@dataclass(frozen=True, eq=False)
class Images:
    """Images and their labels, on one device.

    Args:
        pixels: uint8 (N, C, H, W), N >= 1.
        labels: int64 (N,), class numbers from 0; or bool (N, J), whether an image shows each class.
        shift: largest shift in pixels, each way, of an augmented image in training.

    Raises:
        InputError: a dtype or rank is wrong, there is no image, or the numbers of images and labels differ.

    >>> images = Images(torch.zeros(5, 1, 28, 28, dtype=torch.uint8), torch.arange(5))
    >>> len(images), images[4][0].shape, images[4][1]
    (5, torch.Size([1, 28, 28]), tensor(4))
    """

    pixels: Tensor
    labels: Tensor
    shift: int = 2

    def __post_init__(self) -> None:
        pixels, labels = self.pixels, self.labels
        fits, count = pixels.dtype == torch.uint8 and pixels.dim() == 4 and pixels.numel() > 0, len(pixels)
        expect(fits, "pixels", "uint8 (N, C, H, W) that isn't empty", f"{pixels.dtype} {tuple(pixels.shape)}")
        fits = len(labels) == count and (labels.dtype, labels.dim()) in ((torch.int64, 1), (torch.bool, 2))
        wanted, got = f"int64 ({count},), one per image, or bool ({count}, J)", f"{labels.dtype} {tuple(labels.shape)}"
        expect(fits, "labels", wanted, got)

    @property
    def objects(self) -> int | None:
        """Number of objects in an image; None: any number (multi-label)."""
        return 1 if self.labels.dim() == 1 else None

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, row: int) -> tuple[Tensor, Tensor]:
        """An image, float32 in [0, 1], and its label, for torch's ``DataLoader``."""
        expect(self.objects != 2, "images", "one object per image", "pairs", "Batches draws pairs")
        return to_float(self.pixels[row]), self.labels[row]

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """(C, H, W) of an image."""
        channels, height, width = self.pixels.shape[1:]
        return channels, height, width

    def to(self, device: torch.device | str) -> Images:
        """The same images on ``device``."""
        return replace(self, pixels=self.pixels.to(device), labels=self.labels.to(device))

    def take(self, rows: Tensor) -> Images:
        """The images at ``rows`` (M,) int64."""
        return replace(self, pixels=self.pixels[rows], labels=self.labels[rows])


class Pairs(Images):
    """Images of two digits, as in MultiMNIST. ``pixels`` and ``labels`` are those of the first digit of each image.

    The second digit is one of another class, which ``Batches`` draws.

    Raises:
        InputError: all digits are of one class.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        classes = len(self.labels.unique())
        expect(classes > 1, "digits", "images of two classes or more to pair", f"{classes}")

    @property
    def objects(self) -> int:
        """Number of objects in an image."""
        return 2

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """(C, H, W) of an image of two digits."""
        channels, height, width = super().image_shape
        return channels, height + 2 * REACH, width + 2 * REACH


def to_float(pixels: Tensor) -> Tensor:
    """Convert pixels for a network: uint8 of any shape -> float32 in [0, 1], with the same bits on any device.

    >>> to_float(torch.tensor([0, 255], dtype=torch.uint8))
    tensor([0., 1.])
    """
    expect(pixels.dtype == torch.uint8, "pixels", "torch.uint8", pixels.dtype)
    # Multiply: for a division by 255, CUDA would multiply by 1 / 255 and round differently from a CPU.
    return pixels.to(torch.float32).mul_(1 / 255)
