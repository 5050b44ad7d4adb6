"""Batches of images. The images stay on the training device as uint8, where a whole batch is augmented at once."""

import functools
import itertools
from collections.abc import Callable, Iterator

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from ...errors import expect
from ...names import AUGMENTS
from ...typed import Count, Size, typed
from .augment import draw_clutter, draw_maps, draw_moves, ink_room, warped, windows
from .images import ABSENT, EMPTY, FIXED_SEED, REACH, SINGLES, Images, Pairs, to_float

Take = Callable[[slice | Tensor], tuple[Tensor, Tensor]]
"""A function from places in an order to the images or layers at these places, float32 in [0, 1], and their labels."""


class Batches:
    """Makes the batches of any epoch, from any step on.

    All random numbers of an epoch are drawn on the CPU from (seed, epoch), before the first batch. So an epoch that is
    resumed at step k continues with the same batches, bit for bit, and the numbers are the same on every device.

    Args:
        images: N images, or ``Pairs``, whose digits are always shifted by up to 4 pixels.
        batch_size: images per step, from 1 to N.
        device: device of the images and the batches.
        augment: as in ``TrainConfig``. ``Pairs`` accept ``"none"`` and ``"shift"``, with the same result.

    Raises:
        InputError: an argument is outside its range.

    >>> images = Images(torch.zeros(10, 1, 28, 28, dtype=torch.uint8), torch.arange(10))
    >>> [len(labels) for _, labels in Batches(images, 4).epoch(0)]
    [4, 4, 2]
    """

    @typed
    def __init__(
        self,
        images: Images,
        batch_size: Size,
        *,
        device: torch.device | str = "cpu",
        seed: Count = 0,
        augment: str = "none",
    ) -> None:
        expect(augment in AUGMENTS, "augment", f"one of {', '.join(AUGMENTS)}", repr(augment))
        self.batch_size, self._seed = batch_size, seed
        fits = augment in ("none", "shift") or not isinstance(images, Pairs)
        expect(fits, "augment", "none or shift for pairs", repr(augment))
        self._images = images.to(device)
        self._reach = self._images.shift if augment in ("shift", "affine") else 0  # largest move in pixels
        self._affine = augment == "affine"
        self._room = None
        if augment == "anywhere":
            self._room = ink_room(self._images.pixels).cpu()
            self._reach = int(self._room.max())

    def __len__(self) -> int:
        """Number of steps in an epoch."""
        return len(self._bounds()) - 1

    @property
    def num_images(self) -> int:
        """N, the number of images."""
        return len(self._images)

    @typed
    def epoch(self, epoch: Count, start: Count = 0) -> Iterator[tuple[Tensor, Tensor]]:
        """Iterate over the shuffled, augmented batches of an epoch >= 0, from step ``start`` (0 to ``len(self)``) on.

        Returns:
            iterator of images float32 (B, C, H, W) in [0, 1] and labels int64 (B,). For pairs, it yields layers
            (B, 2, C, H, W) with one digit each and labels (B, 2), the lower class first. Of these images, 15 % show
            only one of the digits and 5 % show none. The label of an absent digit is -1, and its layer is black, except
            that the first layer of an image without a digit may have dots or noise.

        Raises:
            InputError: ``start`` or ``epoch`` is outside its range, or the batch size is larger than N.
        """
        bounds = self._bounds()
        expect(0 <= start < len(bounds), "start", f"0 to {len(self)}, the steps of an epoch", start)
        seed = int(np.random.SeedSequence((self._seed, epoch)).generate_state(1)[0])
        generator = torch.Generator().manual_seed(seed)
        order = torch.randperm(self.num_images, generator=generator).to(self._images.labels.device)
        if isinstance(self._images, Pairs):
            take = _without_some(_pairs(self._images, order, generator), self._images, generator)
        else:
            take = self._moved(order, generator)
        return (take(slice(*ends)) for ends in itertools.pairwise(bounds[start:]))

    def in_order(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Iterate over all images in order, without augmentation."""
        for first in range(0, self.num_images, self.batch_size):
            yield self.at(slice(first, first + self.batch_size))

    @functools.cached_property
    def at(self) -> Take:
        """A function from places in the order of ``in_order``, a slice or (B,) int64, to their images and labels."""
        if isinstance(self._images, Pairs):
            return _pairs(self._images, torch.arange(self.num_images, device=self._images.labels.device))
        return lambda places: (to_float(self._images.pixels[places]), self._images.labels[places])

    def _moved(self, order: Tensor, generator: torch.Generator) -> Take:
        """The images in the order ``order`` (N,), each with its own random move."""
        if self._room is None:
            corners = torch.randint(0, 2 * self._reach + 1, (2, len(order)), generator=generator)
        else:
            numbers = torch.rand(2, len(order), generator=generator, dtype=torch.float64)
            corners = self._reach - draw_moves(self._room[:, :, order.cpu()], numbers)
        maps = draw_maps(torch.rand(4, len(order), generator=generator)).to(order.device) if self._affine else None
        top, left = corners.to(order.device)  # of the part of a padded image that is cut out

        def take(places: slice | Tensor) -> tuple[Tensor, Tensor]:
            padded = pad(self._images.pixels[order[places]], [self._reach] * 4)
            shown = to_float(windows(padded, top[places], left[places], self._images.image_shape[1:]))
            shown = shown if maps is None else warped(shown, maps[places])
            return shown, self._images.labels[order[places]]

        return take

    def _bounds(self) -> list[int]:
        """The start of each batch in an epoch, and the end of the last batch.

        A last batch of one image is merged with the one before it, because batch norm can't train on one image.
        """
        count = self.num_images
        expect(self.batch_size <= count, "batch_size", f"at most {count}, the number of images", self.batch_size)
        bounds = [*range(0, count, self.batch_size), count]
        if count % self.batch_size == 1:
            del bounds[-2]
        return bounds


def _pairs(pairs: Pairs, order: Tensor, generator: torch.Generator | None = None) -> Take:
    """The pairs whose first digits are in the order ``order`` (N,), with random partners and shifts.

    A partner is a digit of another class. Both digits are shifted by up to ``REACH`` pixels each way (Sabour, Frosst &
    Hinton 2017, section 6.1). Without a generator, partners and shifts are the same on any machine.
    """
    if generator is None:
        numbers = torch.from_numpy(np.random.RandomState(FIXED_SEED).random_sample((5, len(order))))
    else:
        numbers = torch.rand(5, len(order), generator=generator, dtype=torch.float64)
    partners = draw_partners(pairs.labels.cpu(), numbers[0]).to(order.device)
    corners = (numbers[1:] * (2 * REACH + 1)).long().unflatten(0, (2, 2)).to(order.device)  # (axes 2, digits 2, N)

    def take(places: slice | Tensor) -> tuple[Tensor, Tensor]:
        rows = order[places]
        both = torch.stack([rows, partners[rows]], dim=1)  # (B, 2)
        labels, ascending = pairs.labels[both].sort(dim=1)
        top, left = corners[:, :, rows].mT.flatten(1)  # (2 B,)
        padded = pad(pairs.pixels[both.gather(1, ascending).flatten()], [2 * REACH] * 4)
        return to_float(windows(padded, top, left, pairs.image_shape[1:])).unflatten(0, (-1, 2)), labels

    return take


def _without_some(take_whole: Take, pairs: Pairs, generator: torch.Generator) -> Take:
    """The pairs without one digit (``SINGLES``), or with clutter instead of both digits (``EMPTY``)."""
    chance, device = torch.rand(len(pairs), generator=generator), pairs.labels.device
    empty = chance < EMPTY
    second = empty | (chance >= 1 - SINGLES / 2)
    absent = torch.stack([chance < EMPTY + SINGLES / 2, second], dim=1).to(device)  # (N, 2)
    clutter = draw_clutter(int(empty.sum()), pairs.image_shape, generator)
    clutter = pad(clutter, (0, 0, 0, 0, 0, 0, 1, 0)).to(device)  # number 0 is black
    number = torch.where(empty, empty.cumsum(0), 0).to(device)  # (N,)

    def take(places: slice | Tensor) -> tuple[Tensor, Tensor]:
        layers, labels = take_whole(places)
        layers = layers.masked_fill(absent[places][:, :, None, None, None], 0)
        layers[:, 0] += to_float(clutter[number[places]])
        return layers, labels.masked_fill(absent[places], ABSENT)

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
