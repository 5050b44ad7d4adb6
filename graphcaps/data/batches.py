"""Batches of images that stay on the training device as uint8; shuffled and augmented there, whole batches at once."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from ..errors import check_whole, expect
from .augment import SHIFT, draw_affine, draw_moves, ink_room, moved, warp
from .images import Images, to_float
from .pairs import Pairs, PairSource, Take

AUGMENTS = ("none", "shift", "affine", "anywhere")


class Batches:
    """The batches of any epoch, from any step on.

    All random numbers of an epoch (the permutation, each image's shift, place or affine map) are drawn on the CPU from
    (seed, epoch), before its first batch: an epoch that is resumed at step k goes on with the same batches, bit for
    bit, and the draws are the same on every device.

    Args:
        images: N images, or ``Pairs``, whose digits are always shifted, by up to 4 pixels.
        batch_size: images per step, over all processes together, ``world`` to N.
        device: of the images and the batches.
        seed: >= 0.
        augment: ``"none"``; ``"shift"``: each image by up to 2 whole pixels each way; ``"affine"``: each turned by up
            to 15 degrees, scaled by 0.9 to 1.1 and shifted by up to 2 pixels each way, bilinear. Outside is zero.
            Images with a margin are shifted by up to the margin instead, and shifts by whole pixels bring its pixels
            in. ``"anywhere"``: the ink of each (pixels above 0) is moved by whole pixels to any place where it fits,
            all equally likely. Pairs take ``"none"`` and ``"shift"``, which are the same for them.
        rank: this process, 0 to world - 1. It gets its slice of each batch; the slices differ by at most one image.
        world: number of processes.
        balance: take all classes equally often, up to one image. An epoch still has N images: those of a rare class
            come several times, some of a frequent class come, and the others in the next epochs.

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
        check_balance(balance, images)
        self.batch_size, self.augment = batch_size, augment
        self._balance, self._seed, self._rank, self._world = balance, seed, rank, world
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
        """The shuffled, augmented batches of an epoch >= 0, from a step on, 0 to ``len(self)``.

        Each image comes once, unless classes are balanced. If the last batch would leave a process with one image or
        none, it joins the one before: batch norm can't train on one image.

        Returns:
            iterator of images float32 (B, C, H, W) in [0, 1] and labels int64 (B,); for pairs, layers (B, 2, C, H, W)
            with a digit in each and labels (B, 2), the lower class first.

        Raises:
            InputError: ``start`` or ``epoch`` outside its range, or more images in a batch than there are.
        """
        steps = len(self)
        check_whole("epoch", epoch, 0)
        expect(0 <= start <= steps, "start", f"0 to {steps}, the steps of an epoch", start)
        return self._epoch(epoch, start)

    def weight(self, step: int) -> float:
        """The weight of this process's mean in the mean of all processes' means at a step: 1 if slices are alike."""
        first, last = self._bounds()[step : step + 2]
        here = self._slice(first, last)
        return (here.stop - here.start) * self._world / (last - first)

    def in_order(self) -> Iterator[tuple[Tensor, Tensor]]:
        """All images once, in order and not augmented, for evaluation; each process gets its slice of each batch.

        Pairs have fixed partners and shifts, the same for everybody.
        """
        take = self._source.fixed()
        for first in range(0, self.num_images, self.batch_size):
            here = self._slice(first, min(first + self.batch_size, self.num_images))
            if here.start < here.stop:
                yield take(here)

    def at(self, places: Tensor) -> tuple[Tensor, Tensor]:
        """The images that ``in_order`` gives at some places (B,) int64."""
        return self._source.fixed()(places)

    def _epoch(self, epoch: int, start: int) -> Iterator[tuple[Tensor, Tensor]]:
        seed = int(np.random.SeedSequence((self._seed, epoch)).generate_state(1)[0])
        generator = torch.Generator().manual_seed(seed)
        order, labels = torch.randperm(self.num_images, generator=generator), self._source.labels
        if self._balance:
            order = _balanced(epoch * len(order) + order, labels.cpu(), self._seed)
        take = self._source.drawn(order.to(labels.device), generator)
        bounds = self._bounds()[start:]
        for first, last in zip(bounds[:-1], bounds[1:], strict=True):
            yield take(self._slice(first, last))

    def _bounds(self) -> list[int]:
        """The place where each batch of an epoch begins, and the end of the last one."""
        count = self.num_images
        expect(self.batch_size <= count, "batch_size", f"at most {count}, the number of images", self.batch_size)
        bounds = [*range(0, count, self.batch_size), count]
        if 0 < count % self.batch_size < 2 * self._world:
            del bounds[-2]
        return bounds

    def _slice(self, first: int, last: int) -> slice:
        """This process's part of the batch first..last."""
        size = last - first
        return slice(first + size * self._rank // self._world, first + size * (self._rank + 1) // self._world)


def check_balance(balance: bool, images: Images | Pairs) -> None:
    """Raise ``InputError`` if classes are to be balanced and an image may show several."""
    fits = not balance or images.objects == 1
    expect(fits, "balance", "a class per image", images.objects or "any number", "Leave --balance out")


def _balanced(turns: Tensor, labels: Tensor, seed: int) -> Tensor:
    """The rows (M,) for turns (M,) from 0: the classes take turns, and the seed orders the images of each."""
    shuffled = torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed))
    rows, sizes = shuffled[labels[shuffled].argsort(stable=True)], labels.unique(return_counts=True)[1]
    turn_class, first = turns % len(sizes), sizes.cumsum(0) - sizes
    return rows[first[turn_class] + turns // len(sizes) % sizes[turn_class]]


class _ImageSource:
    """A maker of images as they are, or with an epoch's moves or maps."""

    def __init__(self, images: Images, augment: str) -> None:
        self.labels, self._images, self._augment = images.labels, images, augment
        self._padding = SHIFT if augment == "shift" and not images.margin else 0
        self._centre = images.margin + self._padding  # first row and column of an image that isn't shifted
        self._room = ink_room(images.cut().pixels).cpu() if augment == "anywhere" else None

    def _windows(self, rows: Tensor, down: Tensor | int, right: Tensor | int) -> Tensor:
        """Images cut out of their padded frames, uint8 (B, C, H, W), from ``down`` and ``right``, one or (B,)."""
        _, height, width = self._images.image_shape
        padded = pad(self._images.at(rows), [self._padding] * 4)
        # All windows of an image in its padded frame, as a view.
        windows = padded.unfold(2, height, 1).unfold(3, width, 1)  # (B, C, 2 centre + 1, 2 centre + 1, H, W)
        return windows[torch.arange(len(rows), device=padded.device), :, down, right]

    def drawn(self, order: Tensor, generator: torch.Generator) -> Take:
        """The images in an order (N,), each with a move or map of its own."""
        count, device, maps = len(order), order.device, None
        most = self._centre if self._augment == "shift" else 0
        if self._room is None:
            shifts = torch.randint(0, 2 * most + 1, (2, count), generator=generator)
            down, right = shifts.add(self._centre - most).to(device)
        else:
            numbers = torch.rand(2, count, generator=generator, dtype=torch.float64)
            down, right = draw_moves(self._room[:, :, order.cpu()], numbers).to(device)
        if self._augment == "affine":
            size = self._images.image_shape[1:]
            maps = draw_affine(count, size, generator, self._images.margin or SHIFT).to(device)

        def take(here: slice | Tensor) -> tuple[Tensor, Tensor]:
            rows = order[here]
            if self._room is None:
                images = to_float(self._windows(rows, down[here], right[here]))  # (B, C, H, W)
            else:
                images = to_float(moved(self._windows(rows, self._centre, self._centre), down[here], right[here]))
            return images if maps is None else warp(images, maps[here]), self.labels[rows]

        return take

    def fixed(self) -> Take:
        """The images in their own order, as they are."""
        order = torch.arange(len(self.labels), device=self.labels.device)
        return lambda here: (to_float(self._windows(order[here], self._centre, self._centre)), self.labels[here])
