"""The three parts of a data set, and a reproducible split."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..errors import expect
from .augment import ink_in_fixed_places
from .images import Images
from .pairs import Pairs

PARTS = ("train", "val", "test")
PART_OF = {"train": "train", "val": "val", "valid": "val", "validation": "val", "test": "test"}
"""The part that a folder or file holds, by its name."""


class UnsplitImages(NamedTuple):
    """Images and labels as read from files."""

    pixels: Tensor  # uint8 (N, C, H, W)
    labels: np.ndarray  # (N,) numbers, or names, where "a+b" means two classes; or (N, J) bool
    parts: np.ndarray  # (N,), each one of ``PARTS``, or "" for an image that is left out


@dataclass(frozen=True, eq=False)
class ImageSplits:
    """A data set: ``train`` for training, ``val`` for the choice of the model, ``test`` for one use at the end.

    All three are ``Images``, or all are ``Pairs``. Both digits of a pair come from the same part.

    Raises:
        InputError: the parts differ in image shape, or a label has no class name.
    """

    name: str
    class_names: tuple[str, ...]
    train: Images | Pairs
    val: Images | Pairs
    test: Images | Pairs

    def __post_init__(self) -> None:
        for part in PARTS:
            images, most, of_part = getattr(self, part), self.num_classes - 1, f"{self.name} {part}"
            shape = images.image_shape
            expect(shape == self.image_shape, f"{of_part} images", f"shape {self.image_shape}", f"{shape}")
            if images.objects is not None:
                low, high = images.labels.min().item(), images.labels.max().item()
                expect(low >= 0 and high <= most, f"{of_part} labels", f"0 to {most}", f"{low} to {high}")

    def with_train(self, count: int) -> ImageSplits:
        """The same data set with ``count`` >= 1 of its training images: a fixed choice, each class in proportion."""
        total = len(self.train)
        expect(1 <= count <= total, "train_images", f"1 to {total}, the training images of {self.name}", count)
        if count == total:
            return self
        return replace(self, train=self.train.take(stratified_split(self.train.labels, count)[1]))

    def for_augment(self, augment: str) -> ImageSplits:
        """The same data set; with ``"anywhere"``, the ink of its validation images is moved to fixed random places.

        Test images stay the same, so that networks trained with different augmentations can be compared.
        """
        if augment != "anywhere":
            return self
        assert isinstance(self.val, Images), "pairs aren't trained so"
        return replace(self, val=ink_in_fixed_places(self.val))

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """(C, H, W) of every image."""
        return self.train.image_shape

    @property
    def objects(self) -> int | None:
        """K, the number of objects that an image shows: 2 for pairs, else 1; None: any number of classes."""
        return self.train.objects

    @property
    def num_classes(self) -> int:
        """J, the number of class names."""
        return len(self.class_names)


def stratified_split(labels: Tensor, count: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Take ``count`` images at random, from each class in proportion (largest remainders, ties to the lower class).

    If images show any number of classes, images are sorted by their sets of classes, and every n-th one is taken.

    Args:
        labels: int64 (N,), or bool (N, J).
        count: 1 to N - 1.

    Returns:
        kept (N - count,) and taken (count,): int64 indices, each ascending.

    Raises:
        InputError: ``count`` is not from 1 to N - 1.

    >>> kept, taken = stratified_split(torch.tensor([0, 1, 0, 1, 0, 1]), 2)
    >>> sorted(torch.tensor([0, 1, 0, 1, 0, 1])[taken].tolist())
    [0, 1]
    """
    total = len(labels)
    expect(0 < count < total, "count", f"1 to {total - 1}, fewer than the images", count)
    numbers, random = labels.numpy(), np.random.RandomState(seed)
    if labels.dim() == 2:
        order = np.lexsort((random.permutation(total), *numbers.T))
        taken = np.sort(order[(np.arange(count) * total + random.randint(total)) // count])
    else:
        classes, sizes = np.unique(numbers, return_counts=True)
        quota, remainder = np.divmod(sizes * count, total)
        quota[np.argsort(-remainder, kind="stable")[: count - quota.sum()]] += 1
        drawn = [random.permutation(np.flatnonzero(numbers == k))[:q] for k, q in zip(classes, quota, strict=True)]
        taken = np.sort(np.concatenate(drawn))
    return torch.from_numpy(np.setdiff1d(np.arange(total), taken)), torch.from_numpy(taken)
