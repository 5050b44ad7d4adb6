"""What the readers of a person's own images give, and how large the images are made."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from torch import Tensor

PARTS = ("train", "val", "test")
PART_OF = {"train": "train", "val": "val", "valid": "val", "validation": "val", "test": "test"}
SMALLEST, LARGEST = 28, 64
"""Pixels of the longer side, between which images are left as they are."""


class Found(NamedTuple):
    """pixels uint8 (N, C, H, W); labels (N,), names or numbers; parts (N,) of ``PARTS``, "" for what is left out."""

    pixels: Tensor
    labels: np.ndarray
    parts: np.ndarray


def common_size(sizes: np.ndarray, size: int | None) -> tuple[int, int]:
    """(H, W) for images of ``sizes`` (N, 2): their own proportions where they share one size, else a square.

    The longer side gets ``size`` pixels, by default the median of theirs, but 28 to 64.

    >>> common_size(np.array([[480, 640], [480, 640]]), None), common_size(np.array([[20, 40], [50, 30]]), None)
    ((48, 64), (45, 45))
    """
    longer = size or int(np.clip(np.median(sizes.max(axis=1)), SMALLEST, LARGEST))
    height, width = sizes[0].tolist() if (sizes == sizes[0]).all() else (1, 1)
    most = max(height, width)
    return max(1, round(height * longer / most)), max(1, round(width * longer / most))
