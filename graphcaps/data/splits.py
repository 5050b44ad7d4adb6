"""The three parts of a data set (training, validation and test images), and how images are split into them.

``stratified_split`` holds out images of named data sets, and ``split`` splits your own images. The same seed gives the
same split on any machine.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..errors import expect
from ..names import short_name
from .augment import ink_in_fixed_places
from .images import Images
from .listing import short
from .pairs import Pairs

PARTS = ("train", "val", "test")
HELD_OUT_SHARE = 0.15
"""For each missing part, this share of each class's training images is held out, but at least one image."""
MAX_BYTES_IN_MEMORY = 2**31
"""Larger pixel arrays of your own images stay in a file of the cache."""

log = logging.getLogger(__name__)


class UnsplitImages(NamedTuple):
    """Images and labels of your own, as they were read from files."""

    pixels: Tensor  # uint8 (N, C, H, W)
    labels: np.ndarray  # (N,) numbers, or (N,) text, or (N, J) bool
    parts: np.ndarray  # (N,): the part of each image, as in ``PARTS``, or "" if the image is left out
    names: list[str]  # N names of files, or numbers
    hashes: list[str]  # N hashes of the files or pixels


class Recorded(NamedTuple):
    """An image of a run. The images of a run don't change if files are added, renamed or moved."""

    file: str
    label: str
    split: str
    sha256: str


@dataclass(frozen=True, eq=False)
class ImageSplits:
    """A data set: ``train`` for training, ``val`` for choosing the best epoch, ``test`` to be used once, at the end.

    All three are ``Images``, or all three are ``Pairs``. Both digits of a pair come from the same part.

    Raises:
        InputError: the parts differ in image shape, or a label has no class name.
    """

    name: str
    class_names: tuple[str, ...]
    train: Images | Pairs
    val: Images | Pairs
    test: Images | Pairs
    files: tuple[Recorded, ...] = field(
        default=(), kw_only=True
    )  # of your own images: which ones are in the three parts, in order

    def __post_init__(self) -> None:
        for part in PARTS:
            images, most, of_part = getattr(self, part), self.num_classes - 1, f"{self.name} {part}"
            shape = images.image_shape
            expect(shape == self.image_shape, f"{of_part} images", f"shape {self.image_shape}", f"{shape}")
            if images.objects is not None:
                low, high = images.labels.min().item(), images.labels.max().item()
                expect(low >= 0 and high <= most, f"{of_part} labels", f"0 to {most}", f"{low} to {high}")

    def with_train(self, count: int) -> ImageSplits:
        """The same data set with ``count`` >= 1 training images, always the same ones, each class in proportion."""
        total = len(self.train)
        expect(1 <= count <= total, "train_images", f"1 to {total}, the training images of {self.name}", count)
        if count == total:
            return self
        return replace(self, train=self.train.take(stratified_split(self.train.labels, count)[1]))

    def for_augment(self, augment: str) -> ImageSplits:
        """The same data set. For ``"anywhere"``, the ink of its validation images is moved to fixed random places.

        Test images stay the same, so that networks trained with different augmentations can be compared.
        """
        if augment != "anywhere":
            return self
        assert isinstance(self.val, Images), "pairs can't be augmented this way"
        return replace(self, val=ink_in_fixed_places(self.val))

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """(C, H, W) of every image."""
        return self.train.image_shape

    @property
    def objects(self) -> int | None:
        """K, the number of objects in an image: 1, or 2 for pairs; None: any number of classes (multi-label)."""
        return self.train.objects

    @property
    def num_classes(self) -> int:
        """J, the number of class names."""
        return len(self.class_names)


def stratified_split(labels: Tensor, count: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Take ``count`` images at random, from each class in proportion (largest remainders, ties to the lower class).

    With multi-label images, the images are sorted by their sets of classes, and every n-th one is taken.

    Args:
        labels: int64 (N,), or bool (N, J).
        count: 1 to N - 1.

    Returns:
        indices of the kept images (N - count,) and of the taken images (count,), int64, both ascending.

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


def split(
    images: UnsplitImages, dataset: str, seed: int, separator: str | None, recorded: list[Recorded] | None
) -> ImageSplits:
    """Split your own images as ``recorded``; else by their parts. Missing parts are held out of the training images."""
    rows = {part: np.flatnonzero(images.parts == part) for part in PARTS}
    if recorded is not None:
        rows = _rows_of(recorded, images, dataset)
    missing = [part for part in ("test", "val") if not len(rows[part])]
    used = np.isin(np.arange(len(images.parts)), np.concatenate([*rows.values()]))
    names, labels = _classes(images.labels, used, dataset, separator)
    if labels.ndim == 1:
        counts = np.bincount(labels[rows["train"]], minlength=len(names))
        expect(len(names) > 1, dataset, "training images of two classes or more", ", ".join(map(str, names)) or "none")
        wanted = f"{1 + len(missing)} images or more of each class, one for each of {', '.join(['train', *missing])}"
        got = f"{counts.min()} of {names[counts.argmin()]}"
        expect(int(counts.min()) > len(missing), dataset, wanted, got, "Add some, or leave the class out")
    _hold_out(rows, missing, labels, seed)
    if labels.ndim == 2:
        unseen = ", ".join(map(str, names[~labels[rows["train"]].any(axis=0)]))
        expect(not unseen, dataset, "training images of each class", f"none of {unseen}", "Add some, or another --seed")
    loaded = {
        part: Images(images.pixels, torch.from_numpy(labels[k]), rows=torch.from_numpy(k)) for part, k in rows.items()
    }
    if images.pixels.numel() <= MAX_BYTES_IN_MEMORY:
        loaded = {part: each.cut() for part, each in loaded.items()}
    keys = [*zip(images.names, _as_text(images.labels), images.hashes, strict=True)]
    files = tuple(Recorded(*keys[k][:2], part, keys[k][2]) for part in PARTS for k in rows[part])
    known = {each.sha256: each.file for each in files if each.split == "train"}
    tested = [each for each in files if each.split != "train" and each.sha256 in known]
    if twice := [f"{known[each.sha256]} = {each.file} ({each.split})" for each in tested]:
        log.warning("%d images are both in training and in validation or test: %s", len(twice), short(twice))
    return ImageSplits(short_name(dataset), tuple(map(str, names)), **loaded, files=files)


def _as_text(labels: np.ndarray) -> list[str]:
    return ["".join(map(str, each)) for each in labels.astype(int)] if labels.ndim == 2 else [*map(str, labels)]


def _rows_of(recorded: list[Recorded], images: UnsplitImages, dataset: str) -> dict[str, np.ndarray]:
    """Find the rows of a run's images by their hashes. Raise ``InputError`` if one is missing or has another label."""
    rows = dict[tuple[str, str], int]()
    for row, key in enumerate(zip(images.hashes, _as_text(images.labels), strict=True)):
        if images.parts[row]:
            rows.setdefault(key, row)
    lost, there = [each for each in recorded if (each.sha256, each.label) not in rows], {key[0] for key in rows}
    gone = [each.file for each in lost if each.sha256 not in there]
    moved = [f"{each.file} of {each.label}" for each in lost if each.sha256 in there]
    got = [f"{len(gone)} removed or changed ({short(gone)})"] * bool(gone)
    got += [f"{len(moved)} now of another class ({short(moved)})"] * bool(moved)
    wanted = f"the {len(recorded)} images of the run, as in its images.csv"
    expect(not lost, dataset, wanted, " and ".join(got), "Restore them, or train another run")
    return {part: np.array([rows[e.sha256, e.label] for e in recorded if e.split == part], int) for part in PARTS}


def _hold_out(rows: dict[str, np.ndarray], missing: list[str], labels: np.ndarray, seed: int) -> None:
    """Move ``HELD_OUT_SHARE`` of the training rows to each missing part.

    The share is the same for each class; for labels (N, J), for each set of classes.
    """
    train, random = rows["train"], np.random.RandomState(np.random.SeedSequence(seed).generate_state(4))
    shares = [max(1, round(HELD_OUT_SHARE * count)) for count in np.bincount(labels[train])] if labels.ndim == 1 else []
    count = max(1, round(HELD_OUT_SHARE * len(train)))
    for number, part in enumerate(missing):
        if labels.ndim == 1:
            drawn = [random.permutation(train[labels[train] == k])[:share] for k, share in enumerate(shares)]
            rows[part] = np.sort(np.concatenate(drawn))
        else:
            state = int(np.random.SeedSequence((seed, number)).generate_state(1)[0])
            rows[part] = train[stratified_split(torch.from_numpy(labels[train]), count, state)[1].numpy()]
        train = np.setdiff1d(train, rows[part])
    rows["train"] = train


def classes_of(label: object, separator: str | None) -> list:
    """The classes that a label names. A separator alone, or an empty label, names no class.

    >>> [classes_of(label, "+") for label in ("cat+dog", "cat", "+", "c++")], classes_of("c+c", None)
    ([['cat', 'dog'], ['cat'], [], ['c++']], ['c+c'])
    """
    if not separator or not isinstance(label, str):
        return [label]
    names = [name.strip() for name in label.split(separator)]
    return names if all(names) else [label] if label.strip(separator) else []


def _classes(labels: np.ndarray, used: np.ndarray, name: str, separator: str | None) -> tuple[np.ndarray, np.ndarray]:
    """Return class names (J,) and labels: int64 (N,), or bool (N, J) if some images show several classes or none.

    Only images that are ``used``, bool (N,), determine the class names.
    """
    if labels.ndim == 2:
        if (labels.sum(axis=1) != 1).any():
            return np.arange(labels.shape[1]), labels
        labels = labels.argmax(axis=1)
    sets = [classes_of(label, separator) for label in labels.tolist()]
    blank = sum(each == [""] for each in sets)
    then = "For images of no class or of several, use --separator +"
    expect(not blank, name, "a label for each image", f"{blank} of {len(sets)} without", then)
    if any(len(each) != 1 for each in sets):
        several = sorted(set().union(*(each for each, is_used in zip(sets, used, strict=True) if is_used)))
        return np.array(several), np.array([[name in each for name in several] for each in sets])
    names = np.unique(labels[used])
    joined = [each for each in names.tolist() if isinstance(each, str) and len({*classes_of(each, "+")} & {*names}) > 1]
    if joined and not separator:
        log.warning("%s: each a class of its own; with --separator +, they name several", ", ".join(joined))
    return names, np.searchsorted(names, labels).astype(np.int64)
