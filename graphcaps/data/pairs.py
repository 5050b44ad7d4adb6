"""Two digits in one image: the MultiMNIST of Sabour, Frosst & Hinton 2017, section 6.1, made in each batch.

Every digit is combined with a digit of another class from the same part of the data set. Both are first shifted by up
to 4 pixels each way, so that 28 x 28 becomes 36 x 36.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Generator, Tensor
from torch.nn.functional import pad

from ..errors import expect
from .augment import windows
from .images import FIXED_SEED, Images, to_float

Take = Callable[[slice | Tensor], tuple[Tensor, Tensor]]
"""A function from places in an order to the images or layers at these places, float32 in [0, 1], and their labels."""

REACH = 4
"""Largest shift of a digit in pixels."""


@dataclass(frozen=True, eq=False)
class Pairs:
    """Images of two digits. Each of ``digits`` (two classes or more) is the first digit of one image."""

    digits: Images

    objects = 2
    """Number of objects in an image."""

    def __post_init__(self) -> None:
        classes = len(self.digits.labels.unique())
        expect(classes > 1, "digits", "images of two classes or more to pair", f"{classes}")

    def __len__(self) -> int:
        return len(self.digits)

    @property
    def labels(self) -> Tensor:
        """The classes of the first digits, int64 (N,)."""
        return self.digits.labels

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """(C, H, W) of an image of two digits."""
        channels, height, width = self.digits.image_shape
        return channels, height + 2 * REACH, width + 2 * REACH

    def take(self, rows: Tensor) -> Pairs:
        """Pairs made only of the digits at ``rows``, int64 (K,)."""
        return Pairs(self.digits.take(rows))

    def to(self, device: torch.device | str) -> Pairs:
        """The same digits on ``device``."""
        return Pairs(self.digits.to(device))


class PairSource:
    """Source of layers (B, 2, C, H, W) with one digit each, and of their labels (B, 2), the lower class first."""

    def __init__(self, pairs: Pairs) -> None:
        self.labels, self._size = pairs.labels, pairs.image_shape[1:]
        self._padded = pad(pairs.digits.pixels, [2 * REACH] * 4)

    def drawn(self, order: Tensor, generator: Generator) -> Take:
        """The pairs whose first digits are in the order ``order`` (N,), with new partners and shifts."""
        return self._taking(order, torch.rand(5, len(order), generator=generator, dtype=torch.float64))

    def fixed(self) -> Take:
        """The pairs whose first digits are in their original order. Partners and shifts are the same on any machine."""
        order = torch.arange(len(self.labels), device=self.labels.device)
        numbers = np.random.RandomState(FIXED_SEED).random_sample((5, len(order)))
        return self._taking(order, torch.from_numpy(numbers))

    def _taking(self, order: Tensor, numbers: Tensor) -> Take:
        """The pairs with first digits in this order, and partners and shifts from random numbers (5, N) in [0, 1)."""
        device = self.labels.device
        partners = draw_partners(self.labels.cpu(), numbers[0]).to(device)
        corners = (numbers[1:] * (2 * REACH + 1)).long().unflatten(0, (2, 2)).to(device)  # (axes 2, digits 2, N)

        def take(here: slice | Tensor) -> tuple[Tensor, Tensor]:
            rows = order[here]
            both = torch.stack([rows, partners[rows]], dim=1)  # (B, 2)
            labels, ascending = self.labels[both].sort(dim=1)
            top, left = corners[:, :, rows].mT.flatten(1)  # (2 B,)
            layers = windows(self._padded[both.gather(1, ascending).flatten()], top, left, self._size)
            return to_float(layers).unflatten(0, (-1, 2)), labels

        return take


def draw_partners(labels: Tensor, numbers: Tensor) -> Tensor:
    """Choose partners of another class: rows (N,), from labels int64 (N,) and random float64 numbers (N,) in [0, 1).

    >>> draw_partners(torch.tensor([0, 1, 0, 2]), torch.tensor([0.0, 0.99, 0.99, 0.5], dtype=torch.float64))
    tensor([1, 3, 3, 2])
    """
    by_class = labels.argsort(stable=True)
    sizes = labels.bincount()
    first, size = (sizes.cumsum(0) - sizes)[labels], sizes[labels]  # first: where the image's class starts in by_class
    others = len(labels) - size
    place = (numbers * others).long().minimum(others - 1)  # the product may round up
    return by_class[torch.where(place < first, place, place + size)]
