"""The three parts of a data set, and how images are held out: the same for everybody."""

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
"""Names of folders and files, and the part that they hold."""


class UnsplitImages(NamedTuple):
    """Images as they were read."""

    pixels: Tensor  # uint8 (N, C, H, W)
    labels: np.ndarray  # (N,) names, where "a+b" stands for two classes, or numbers; or (N, J) bool
    parts: np.ndarray  # (N,) of ``PARTS``, or "" for an image that is left out


@dataclass(frozen=True, eq=False)
class ImageSplits:
    """A data set: ``train`` to learn from, ``val`` to choose the model by, ``test`` to read once, at the end.

    All three are ``Images``, or all are ``Pairs``: no digit of one part is laid over one of another.

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
        """The same data set with ``count`` of its training images, of each class in proportion, the same for everybody.

        Raises:
            InputError: not from 1 to the number of training images.
        """
        total = len(self.train)
        expect(1 <= count <= total, "train_images", f"1 to {total}, the training images of {self.name}", count)
        if count == total:
            return self
        return replace(self, train=self.train.take(stratified_split(self.train.labels, count)[1]))

    def for_augment(self, augment: str) -> ImageSplits:
        """The same data set with validation images of the kind that training with ``augment`` sees.

        With ``"anywhere"``, ink stands anywhere in the frame, at the same places for everybody. Test images stay the
        same, so that networks trained in different ways are compared on them.
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
        """K, how many objects an image shows: 2 for pairs, else 1; None: any number of classes."""
        return self.train.objects

    @property
    def num_classes(self) -> int:
        """J, the number of class names."""
        return len(self.class_names)


def stratified_split(labels: Tensor, count: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Take ``count`` of the images, of each class in proportion (largest remainders, ties to the lower class).

    If images show any number of classes, each set of classes is taken in proportion, rounded: images are sorted by
    their sets, and every n-th one is taken. NumPy's ``RandomState``, whose stream is frozen, draws them.

    Args:
        labels: int64 (N,), or bool (N, J).
        count: 1 to N - 1.

    Returns:
        kept (N - count,) and taken (count,): int64 indices, each ascending.

    Raises:
        InputError: ``count`` outside 1 to N - 1.

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
