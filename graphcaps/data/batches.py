"""Batches of images that stay on the training device as uint8; shuffled and augmented there, whole batches at once."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from ..errors import check_whole, expect
from .augment import SHIFT, draw_affine, draw_moves, draw_shifts, ink_room, moved, warp
from .images import Images, to_float
from .pairs import Pairs, PairSource, Take

AUGMENTS = ("none", "shift", "affine", "anywhere")


class Batches:
    """The batches of any epoch, from any step on.

    All that is random in an epoch (the permutation, each image's shift, place or affine map) is drawn on the CPU from
    (seed, epoch), before its first batch: an epoch taken up at step k has the batches of the whole one from there on,
    bit for bit, and the draws are the same on every device.

    Args:
        images: N images, or ``Pairs``, whose digits are always shifted, by up to 4 pixels.
        batch_size: images per step, over all processes together, ``world`` to N.
        device: where the images are held and the batches made.
        seed: >= 0; with the epoch, fixes all draws.
        augment: ``"none"``; ``"shift"``: each image by up to 2 whole pixels each way; ``"affine"``: each turned by up
            to 15 degrees, scaled by 0.9 to 1.1 and shifted by up to 2 pixels each way, bilinear. Outside is zero.
            Images with a margin are shifted by up to that instead, and a whole shift brings in what is there.
            ``"anywhere"``: the ink of each (what isn't 0) is moved by whole pixels to anywhere it fits, all places
            equally likely. Of pairs, ``"affine"`` and ``"anywhere"`` are refused, and the others are the same.
        rank: this process, 0 to world - 1. It gets its slice of each batch; the slices differ by at most one image.
        world: number of processes.
        balance: an epoch still has N images, of each class as many as of any other, up to one: those of a rare class
            come several times, of a frequent class some of them, and in the next epochs the others.

    Raises:
        InputError: an argument outside its range.

    >>> images = Images(torch.zeros(10, 1, 28, 28, dtype=torch.uint8), torch.arange(10))
    >>> [len(labels) for _, labels in Batches(images, 4).epoch(0)]
    [4, 4, 2]
    """

    def __init__(
        self,
        images: Images | Pairs,
        batch_size: int,
        *,
        device: torch.device | str = "cpu",
        seed: int = 0,
        augment: str = "none",
        rank: int = 0,
        world: int = 1,
        balance: bool = False,
    ) -> None:
        expect(augment in AUGMENTS, "augment", f"one of {', '.join(AUGMENTS)}", repr(augment))
        check_whole("seed", seed, 0)
        expect(world >= 1 and 0 <= rank < world, "rank", f"0 to world - 1 = {world - 1}", rank)
        check_whole("batch_size", batch_size, world, wanted=f"an integer >= {world}, one image per process")
        expect_single(balance, images)
        self.batch_size, self._balance = batch_size, balance
        self.augment = augment
        self._seed, self._rank, self._world = seed, rank, world
        self._source: PairSource | _ImageSource
        if isinstance(images, Pairs):
            expect(augment in ("none", "shift"), "augment", "none or shift for pairs", repr(augment))
            self._source = PairSource(images.to(device))
        else:
            self._source = _ImageSource(images.to(device), augment)

    def __len__(self) -> int:
        """Steps of an epoch."""
        return len(self._bounds()) - 1

    @property
    def num_images(self) -> int:
        """N, over all processes."""
        return len(self._source.labels)

    def epoch(self, epoch: int, start: int = 0) -> Iterator[tuple[Tensor, Tensor]]:
        """The shuffled, augmented batches of an epoch.

        Each image comes once, unless classes are balanced. A last batch that would leave a process with one image or
        none joins the one before: batch norm can't train on one image.

        Args:
            epoch: >= 0.
            start: the step to begin with, 0 to ``len(self)``.

        Returns:
            iterator of images float32 (B, C, H, W) in [0, 1] and labels int64 (B,); of pairs, layers (B, 2, C, H, W)
            with a digit in each and labels (B, 2), the lower class first.

        Raises:
            InputError: ``start`` or ``epoch`` outside its range, or more images in a batch than there are.
        """
        steps = len(self)
        check_whole("epoch", epoch, 0)
        expect(0 <= start <= steps, "start", f"0 to {steps}, the steps of an epoch", start)
        return self._epoch(epoch, start)

    def weight(self, step: int) -> float:
        """How much a mean over this process's images counts in the mean of all processes' means at a step: 1 if alike.

        >>> images = Images(torch.zeros(10, 1, 28, 28, dtype=torch.uint8), torch.arange(10))
        >>> [Batches(images, 10, rank=rank, world=4).weight(0) for rank in range(4)]
        [0.8, 1.2, 0.8, 1.2]
        """
        first, last = self._bounds()[step : step + 2]
        here = self._share(first, last)
        return (here.stop - here.start) * self._world / (last - first)

    def in_order(self) -> Iterator[tuple[Tensor, Tensor]]:
        """All images once, in order and not augmented, for evaluation; each process gets its slice of each batch.

        Pairs have the partners and shifts that everybody has.
        """
        take = self._source.fixed()
        for first in range(0, self.num_images, self.batch_size):
            here = self._share(first, min(first + self.batch_size, self.num_images))
            if here.start < here.stop:
                yield take(here)

    def at(self, places: Tensor) -> tuple[Tensor, Tensor]:
        """The images at some places (B,) int64 of the order of ``in_order``, made as there."""
        return self._source.fixed()(places)

    def _epoch(self, epoch: int, start: int) -> Iterator[tuple[Tensor, Tensor]]:
        seed = int(np.random.SeedSequence((self._seed, epoch)).generate_state(1)[0])
        generator = torch.Generator().manual_seed(seed)
        order, labels = torch.randperm(self.num_images, generator=generator), self._source.labels
        if self._balance:
            order = _in_turn(epoch * len(order) + order, labels.cpu(), self._seed)
        take = self._source.drawn(order.to(labels.device), generator)
        bounds = self._bounds()[start:]
        for first, last in zip(bounds[:-1], bounds[1:], strict=True):
            yield take(self._share(first, last))

    def _bounds(self) -> list[int]:
        """Where each batch of an epoch begins, and where the last one ends."""
        count = self.num_images
        expect(self.batch_size <= count, "batch_size", f"at most {count}, the number of images", self.batch_size)
        bounds = [*range(0, count, self.batch_size), count]
        if 0 < count % self.batch_size < 2 * self._world:
            del bounds[-2]
        return bounds

    def _share(self, first: int, last: int) -> slice:
        """This process's part of the batch first..last."""
        size = last - first
        return slice(first + size * self._rank // self._world, first + size * (self._rank + 1) // self._world)


def expect_single(balance: bool, images: Images | Pairs) -> None:
    """Raise ``InputError`` where classes are to be balanced and an image may have several."""
    fits = not balance or images.objects == 1
    expect(fits, "balance", "a class per image", images.objects or "any number", "Leave --balance out")


def _in_turn(turns: Tensor, labels: Tensor, seed: int) -> Tensor:
    """The rows (M,) of turns (M,) from 0: the classes take turns, and the images of each in an order of the seed."""
    shuffled = torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed))
    rows, sizes = shuffled[labels[shuffled].argsort(stable=True)], labels.unique(return_counts=True)[1]
    of, first = turns % len(sizes), sizes.cumsum(0) - sizes
    return rows[first[of] + turns // len(sizes) % sizes[of]]


class _ImageSource:
    """Takes images as they are, or moved or mapped as drawn for an epoch."""

    def __init__(self, images: Images, augment: str) -> None:
        self.labels, self._images = images.labels, images
        self._augment, self._reach = augment, images.margin or SHIFT
        self._beyond = SHIFT if augment == "shift" and not images.margin else 0
        self._centre = images.margin + self._beyond
        _, height, width = images.image_shape
        self._size = height, width
        self._room = ink_room(images.cut().pixels).cpu() if augment == "anywhere" else None

    def _windows(self, rows: Tensor, down: Tensor | int, right: Tensor | int) -> Tensor:
        """Images cut out of their padded frames, uint8 (B, C, H, W), from ``down`` and ``right``, one or (B,)."""
        padded = pad(self._images.at(rows), [self._beyond] * 4)
        # every window of an image in its padded frame, as a view: (B, C, 2 centre + 1, 2 centre + 1, H, W)
        windows = padded.unfold(2, self._size[0], 1).unfold(3, self._size[1], 1)
        return windows[torch.arange(len(rows), device=padded.device), :, down, right]

    def drawn(self, order: Tensor, generator: torch.Generator) -> Take:
        if self._room is not None:
            return self._anywhere(order, generator, self._room)
        count, device = len(self.labels), self.labels.device
        most = self._centre if self._augment == "shift" else 0
        down, right = draw_shifts(count, most, generator).add(self._centre - most).to(device)
        maps = None
        if self._augment == "affine":
            maps = draw_affine(count, self._size, generator, self._reach).to(device)

        def take(here: slice | Tensor) -> tuple[Tensor, Tensor]:
            rows = order[here]
            images = to_float(self._windows(rows, down[here], right[here]))  # (B, C, H, W)
            return images if maps is None else warp(images, maps[here]), self.labels[rows]

        return take

    def _anywhere(self, order: Tensor, generator: torch.Generator, room: Tensor) -> Take:
        numbers = torch.rand(2, len(order), generator=generator, dtype=torch.float64)
        down, right = draw_moves(room[:, :, order.cpu()], numbers).to(order.device)

        def take(here: slice | Tensor) -> tuple[Tensor, Tensor]:
            rows = order[here]
            images = self._windows(rows, self._centre, self._centre)  # (B, C, H, W)
            return to_float(moved(images, down[here], right[here])), self.labels[rows]

        return take

    def fixed(self) -> Take:
        order = torch.arange(len(self.labels), device=self.labels.device)
        return lambda here: (to_float(self._windows(order[here], self._centre, self._centre)), self.labels[here])
