"""Images of a person's own: read by ``readers.folder`` and ``readers.arrays``, split where no split is given.

Labels are a class per image or, of each image, any number of classes: text such as "cat+dog", or 0 and 1 of each class.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from ..atomic import replacing
from ..config import short_name
from ..errors import expect
from .images import Images
from .readers import arrays, folder
from .splits import PARTS, Found, ImageSplits, stratified_split

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

SHARE = 0.15
"""Of each class's images, that are held out for each part that isn't given: one at least."""
IN_MEMORY = 2**31
"""Bytes of pixels, more than which stay in the cache's file."""


def load_own(
    kind: str, path: Path, root: Path, size: int | None, channels: int | None, skip_bad: bool, seed: int
) -> ImageSplits:
    """As ``load_images`` does ``KIND:PATH``; ``root`` also holds the cache of decoded files.

    Where PATH isn't there, its last part is looked for in ``root``.
    """
    dataset = f"{kind}:{path}"
    expect(channels in (None, 1, 3), "channels", "1 (grey) or 3 (RGB)", repr(channels))
    if not path.exists() and (root / path.name).exists():
        path = root / path.name
    expect(path.exists(), dataset, f"something at {path.absolute()}", "nothing there", f"It may also be in {root}")
    files = {"folder": folder.read, "csv": folder.read_list}.get(kind)
    found = files(path, root / "cache", size, channels, skip_bad) if files else None
    return split(found or arrays.read(kind, path, size, channels), dataset, seed)


def write_arrays(images: ArrayLike, labels: ArrayLike, root: Path) -> str:
    """Write images and their labels into ``root``, checked, once; give the data set's name."""
    pixels = arrays.as_pixels(np.asarray(images), "images")
    of = arrays.as_labels(np.asarray(labels), len(pixels), "labels")
    digest = hashlib.sha256(f"{pixels.shape} {of.tolist()}".encode() + pixels.tobytes()).hexdigest()[:8]
    path = root / f"arrays-{digest}.npz"
    if not path.exists():
        with replacing(path) as temporary:
            np.savez(temporary, images=pixels, labels=of)
    return f"npz:{path}"


def classes_of(label: str) -> list[str]:
    """The classes that a label names, joined by "+"; a "+" alone, or nothing, is none of them.

    >>> classes_of("cat+dog"), classes_of("cat"), classes_of("+"), classes_of("c++")
    (['cat', 'dog'], ['cat'], [], ['c++'])
    """
    parts = [part.strip() for part in label.split("+")]
    return parts if all(parts) else [label] if label.strip("+") else []


def _classes(labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Names of the classes (J,), and labels (N,) as they are or, where an image shows none or several, (N, J) bool."""
    if labels.ndim == 2:
        alone = (labels.sum(axis=1) == 1).all()  # a class per image, written as 0 and 1
        return np.arange(labels.shape[1]), labels.argmax(axis=1) if alone else labels
    of = [classes_of(label) if isinstance(label, str) else [label] for label in labels.tolist()]
    if all(len(each) == 1 for each in of):
        return np.unique(labels), labels
    names = sorted(set().union(*of))
    return np.array(names), np.array([[name in each for name in names] for each in of])


def split(found: Found, dataset: str, seed: int) -> ImageSplits:
    """The three parts; those that weren't found are held out of the training images, of each class its share."""
    in_part = {part: np.flatnonzero(found.parts == part) for part in PARTS}
    missing = [part for part in ("test", "val") if not len(in_part[part])]
    names, labels = _classes(found.labels)
    if labels.ndim == 1:
        names, labels = _hold_out(in_part, missing, labels, found.parts, dataset, seed)
    else:
        _hold_out_sets(in_part, missing, labels, names, dataset, seed)
    whole, of = found.pixels, torch.from_numpy(labels)
    parts = {part: torch.from_numpy(np.sort(rows)) for part, rows in in_part.items()}
    if whole.numel() > IN_MEMORY:
        images = {part: Images(whole, of[rows], rows=rows) for part, rows in parts.items()}
    else:
        images = {part: Images(whole[rows], of[rows]) for part, rows in parts.items()}
    return ImageSplits(short_name(dataset), tuple(map(str, names)), **images)


def _hold_out_sets(
    in_part: dict[str, np.ndarray], missing: list[str], labels: np.ndarray, names: np.ndarray, dataset: str, seed: int
) -> None:
    """Fill the missing parts from the training images, of each set of classes its share; labels (N, J) bool."""
    count = max(1, round(SHARE * len(in_part["train"])))
    for k, part in enumerate(missing):
        rows = in_part["train"]
        drawn = int(np.random.SeedSequence((seed, k)).generate_state(1)[0])
        kept, taken = stratified_split(torch.from_numpy(labels[rows]), count, drawn)
        in_part["train"], in_part[part] = rows[kept.numpy()], rows[taken.numpy()]
    unseen = ", ".join(map(str, names[~labels[in_part["train"]].any(axis=0)]))
    expect(not unseen, dataset, "training images of each class", f"none of {unseen}", "Add some, or another --seed")


def _hold_out(
    in_part: dict[str, np.ndarray], missing: list[str], of: np.ndarray, parts: np.ndarray, dataset: str, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """Fill the missing parts from the training images, of each class its share; give the classes and int64 (N,)."""
    names, counts = np.unique(of[in_part["train"]], return_counts=True)
    expect(len(names) > 1, dataset, "training images of two classes or more", ", ".join(map(str, names)) or "none")
    wanted = f"{1 + len(missing)} images or more of each class, one for each of {', '.join(['train', *missing])}"
    few, fewest = int(counts.min()), names[counts.argmin()]
    expect(few > len(missing), dataset, wanted, f"{few} of {fewest}", "Add some, or leave the class out")
    unknown = ", ".join(map(str, np.setdiff1d(of[parts != ""], names)))
    expect(not unknown, dataset, "the classes of the training images", f"also {unknown}")
    labels = np.searchsorted(names, of).astype(np.int64)  # of what is left out, whatever comes
    random = np.random.RandomState(np.random.SeedSequence(seed).generate_state(4))
    for part in missing:
        rows = in_part["train"]
        for k, count in enumerate(counts):
            drawn = random.permutation(rows[labels[rows] == k])[: max(1, round(SHARE * count))]
            in_part[part] = np.append(in_part[part], drawn)
        in_part["train"] = np.setdiff1d(rows, in_part[part])
    return names, labels
