"""Images somewhere in a larger black frame: MNIST in 40 x 40, as ``mnist40``.

Sabour, Frosst & Hinton 2017, section 5.2, train on such images, each digit at a random place, and test on affNIST.
"""

from __future__ import annotations

import numpy as np
import torch
from torch.nn.functional import pad

from .images import Images
from .pairs import FIXED_SEED


def anywhere(images: Images, border: int) -> Images:
    """Images to train on: centred in their frame, and ``Batches`` shifts each to any place in it, anew each epoch.

    Args:
        images: (N, C, H, W), without a margin.
        border: black pixels on each side; the frame is (H + 2 border, W + 2 border).

    Returns:
        images of the frame's size, ``border`` their margin.
    """
    return Images(pad(images.pixels, [2 * border] * 4), images.labels, margin=border)


def in_fixed_places(images: Images, border: int) -> Images:
    """Images to evaluate on: each at a place of its own that everybody has, all places equally likely.

    NumPy's ``RandomState`` draws them, whose stream is frozen; the first images have the same places however many
    there are.

    Args:
        images: (N, C, H, W), without a margin.
        border: black pixels on each side of an image in the middle.

    Returns:
        images of the frame's size, without a margin.
    """
    _, height, width = images.image_shape
    numbers = np.random.RandomState(FIXED_SEED).random_sample((len(images), 2))
    down, right = torch.from_numpy(numbers * (2 * border + 1)).long().T
    windows = pad(images.pixels, [2 * border] * 4).unfold(2, height + 2 * border, 1).unfold(3, width + 2 * border, 1)
    return Images(windows[torch.arange(len(images)), :, down, right], images.labels)
