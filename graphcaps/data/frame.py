"""Images somewhere in a larger black frame: MNIST in 40 x 40, as ``mnist40``.

Sabour, Frosst & Hinton 2017, section 5.2, train on such images, each digit at a random place, and test on affNIST.
The frame leaves a border of 6 pixels around an image of 28 x 28, and the image, not its ink, is what is moved: by up to
6 pixels each way. MNIST's ink fills at most 20 x 20 of it, so it fits at more places than these moves give it.
"""

from __future__ import annotations

import numpy as np
import torch
from torch.nn.functional import pad

from .augment import draw_moves, ink_room, moved
from .images import Images
from .pairs import FIXED_SEED


def in_frame(images: Images, border: int) -> Images:
    """Images to train on: centred in their frame, and ``Batches`` moves each by up to ``border``, anew each epoch.

    Args:
        images: (N, C, H, W), without a margin.
        border: black pixels on each side; the frame is (H + 2 border, W + 2 border).

    Returns:
        images of the frame's size, ``border`` their margin.
    """
    return Images(pad(images.pixels, [2 * border] * 4), images.labels, margin=border)


def in_fixed_places(images: Images, border: int) -> Images:
    """Images to evaluate on: each moved by up to ``border`` each way as everybody has it, all moves equally likely.

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


def ink_in_fixed_places(images: Images) -> Images:
    """Images to evaluate on: the ink of each anywhere it fits, as everybody has it, all places equally likely.

    Args:
        images: (N, C, H, W), without a margin; where their ink stands doesn't matter.

    Returns:
        images of the same size, drawn as ``in_fixed_places`` draws.
    """
    numbers = torch.from_numpy(np.random.RandomState(FIXED_SEED).random_sample((len(images), 2)).T)
    down, right = draw_moves(ink_room(images.pixels), numbers)
    return Images(moved(images.pixels, down, right), images.labels)
