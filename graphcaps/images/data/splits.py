"""The three parts of a data set (training, validation and test images), and how images are split into them.

``stratified_split`` holds out images of named data sets, and ``split`` splits your own images. The same seed gives the
same split on any machine.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from ...errors import expect
from ...names import short_name
from .augment import ink_in_fixed_places
from .images import Images
from .listing import short

if TYPE_CHECKING:
    import pandas

PARTS = ("train", "val", "test")
HELD_OUT_SHARE = 0.15
"""For each missing part, this share of each class's training images is held out, but at least one image."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class ImageSplits:
    """A data set: ``train`` for training, ``val`` for choosing the best epoch, ``test`` to be used once, at the end.

    If one is ``Pairs``, all three are. Both digits of a pair come from the same part.

    Raises:
        InputError: a label has no class name, for example because a file of labels is damaged.
    """

    name: str
    class_names: tuple[str, ...]
    train: Images
    val: Images
    test: Images
    files: pandas.DataFrame | None = field(default=None, kw_only=True)
    """The images of your own in the three parts, in order: columns file, label, split and sha256."""

    def __post_init__(self) -> None:
        for part in PARTS:
            images, most = getattr(self, part), self.num_classes - 1
            if images.objects is not None:
                low, high = images.labels.min().item(), images.labels.max().item()
                expect(low >= 0 and high <= most, f"{self.name} {part} labels", f"0 to {most}", f"{low} to {high}")

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
        return replace(self, val=ink_in_fixed_places(self.val)) if augment == "anywhere" else self

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
    pixels: np.ndarray,
    labels: np.ndarray,
    table: pandas.DataFrame,
    dataset: str,
    seed: int,
    recorded: pandas.DataFrame | None,
) -> ImageSplits:
    """Split your own images as ``recorded``; else by their parts. Missing parts are held out of the training images.

    Args:
        pixels: uint8 (N, C, H, W).
        labels: (N,) numbers or text, or (N, J) bool.
        table: N rows as in ``ImageSplits.files``; split is "" for an image that is left out.
        recorded: the images.csv of a run.
    """
    table = table[table["split"] != ""]
    if recorded is not None:
        table = _of_run(table, recorded, dataset)
    names, labels = _classes(labels[table.index], dataset)
    parts = table["split"].to_numpy(str)
    missing = [part for part in ("test", "val") if part not in parts]
    if labels.ndim == 1:
        counts = np.bincount(labels[parts == "train"], minlength=len(names))
        got = f"{len(names)}: {', '.join(map(str, names))}"
        expect(len(names) > 1, dataset, "training images of two classes or more", got)
        wanted = f"{1 + len(missing)} images or more of each class, one for each of {', '.join(['train', *missing])}"
        got = f"{counts.min()} of {names[counts.argmin()]}"
        expect(int(counts.min()) > len(missing), dataset, wanted, got, "Add some, or leave the class out")
    if "group" not in table:
        _hold_out(parts, missing, labels, seed)
    elif recorded is None:
        _hold_out_groups(parts, missing, labels, table["group"].to_numpy(str), seed, dataset)
    if labels.ndim == 2:
        unseen = ", ".join(map(str, names[~labels[parts == "train"].any(axis=0)]))
        expect(not unseen, dataset, "training images of each class", f"none of {unseen}", "Add some, or another --seed")
    rows = {part: np.flatnonzero(parts == part) for part in PARTS}
    loaded = {
        part: Images(torch.from_numpy(pixels[table.index[of_part]]), torch.from_numpy(labels[of_part]))
        for part, of_part in rows.items()
    }
    files = table.assign(split=parts).iloc[np.concatenate([*rows.values()])]
    file_of = dict(files.loc[files["split"] == "train", ["sha256", "file"]].to_numpy().tolist())
    several = files.groupby("sha256")["label"].transform("nunique") > 1
    if several.any():
        pair = files[several & (files["sha256"] == files["sha256"][several].iloc[0])].drop_duplicates("label")
        shown = " and ".join((pair["file"] + " of " + pair["label"])[:2])
        log.warning("the labels of %d images contradict each other: %s are equal", int(several.sum()), shown)
    twice = files[files["sha256"].isin(file_of) & (files["split"] != "train")]
    if len(twice):
        shown = short(twice["sha256"].map(file_of) + " = " + twice["file"] + " (" + twice["split"] + ")")
        log.warning("%d images are both in training and in validation or test: %s", len(twice), shown)
    return ImageSplits(short_name(dataset), tuple(map(str, names)), **loaded, files=files)


def _of_run(table: pandas.DataFrame, recorded: pandas.DataFrame, dataset: str) -> pandas.DataFrame:
    """Find a run's images by their hashes. Raise ``InputError`` if one is missing or has another label."""
    key = ["sha256", "label"]
    usable = table.reset_index(names="row").drop_duplicates(key)
    matched = recorded.merge(usable[[*key, "row"]], on=key, how="left")
    lost = matched[matched["row"].isna()]
    relabelled = lost["sha256"].isin(usable["sha256"])
    gone, moved = lost["file"][~relabelled], (lost["file"] + " of " + lost["label"])[relabelled]
    got = [f"{len(gone)} removed or changed ({short(gone)})"] * (len(gone) > 0)
    got += [f"{len(moved)} now of another class ({short(moved)})"] * (len(moved) > 0)
    wanted = f"the {len(recorded)} images of the run, as in its images.csv"
    expect(lost.empty, dataset, wanted, " and ".join(got), "Restore them, or train another run")
    return table.loc[matched["row"].astype(int)].assign(split=matched["split"].to_numpy())


def _hold_out(parts: np.ndarray, missing: list[str], labels: np.ndarray, seed: int) -> None:
    """Move ``HELD_OUT_SHARE`` of each class's training images, or of each set of classes', to each missing part."""
    random, is_train = np.random.RandomState(np.random.SeedSequence(seed).generate_state(4)), parts == "train"
    for number, part in enumerate(missing):
        train = np.flatnonzero(parts == "train")
        if labels.ndim == 1:
            for k, count in enumerate(np.bincount(labels[is_train]).tolist()):
                share = max(1, round(HELD_OUT_SHARE * count))
                parts[random.permutation(train[labels[train] == k])[:share]] = part
        else:
            count, state = max(1, round(HELD_OUT_SHARE * int(is_train.sum()))), np.random.SeedSequence((seed, number))
            taken = stratified_split(torch.from_numpy(labels[train]), count, int(state.generate_state(1)[0]))[1]
            parts[train[taken]] = part


def _hold_out_groups(
    parts: np.ndarray, missing: list[str], labels: np.ndarray, groups: np.ndarray, seed: int, dataset: str
) -> None:
    """Move whole groups of training images, at random, to each missing part, up to ``HELD_OUT_SHARE`` of the images."""
    for part in ("val", "test"):
        shared = {*groups[parts == part]} & {*groups[parts != part]}
        expect(not shared, dataset, "each group in one part", f"{short(sorted(shared))} in {part} and another part")
    random, train = np.random.RandomState(seed % 2**32), parts == "train"
    wanted, classes = max(1, HELD_OUT_SHARE * train.sum()), {*labels[train]}
    order = random.permutation(np.unique(groups[train]))
    for part in missing:
        for group in order:
            of_group, held = (parts == "train") & (groups == group), (parts == part).sum()
            is_small = not held or held + of_group.sum() <= 1.5 * wanted
            if held < wanted and is_small and {*labels[(parts == "train") & ~of_group]} == classes:
                parts[of_group] = part
        fix = "Name smaller groups, or leave out --group-by"
        expect(part in parts, dataset, f"groups for {part}, and each class in the others", short(order), fix)


def _classes(labels: np.ndarray, dataset: str) -> tuple[np.ndarray, np.ndarray]:
    """Return class names (J,) and labels: int64 (N,), or bool (N, J) if some images show several classes or none."""
    if labels.ndim == 2:
        if (labels.sum(axis=1) != 1).any():
            return np.arange(labels.shape[1]), labels
        labels = labels.argmax(axis=1)
    blank = np.count_nonzero(labels.astype(str) == "")
    expect(not blank, dataset, "a label for each image", f"{blank} of {len(labels)} without")
    return np.unique(labels, return_inverse=True)
