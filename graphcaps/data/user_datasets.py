"""Your own images as a data set: they are read from image files or arrays, and split if they have no split.

An image has one class or any number of classes. Several are given as text such as "cat+dog", or as 0 and 1 per class.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from ..atomic import replacing
from ..errors import expect, required
from ..names import own_images, short_name
from .array_files import as_labels, as_pixels, read_arrays
from .image_folder import list_csv, list_folder, read_files
from .images import Images
from .splits import PARTS, ImageSplits, UnsplitImages, stratified_split

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

HELD_OUT_SHARE = 0.15
"""Share of each class's training images, at least one image, that is held out for each missing part."""
MAX_BYTES_IN_MEMORY = 2**31
"""Pixel arrays larger than this stay in the cache's file."""


def read_user_dataset(
    name: str, root: Path, size: int | None, channels: int | None, skip_bad: bool, seed: int
) -> ImageSplits:
    """Read and split ``KIND:PATH``; if PATH was moved, look in ``root``. Decoded files are cached in ``root/cache``."""
    kind, path = required(own_images(name), "dataset", "KIND:PATH", name)
    if not path.exists() and (root / path.name).exists():
        path = root / path.name
    expect(path.exists(), name, f"something at {path.absolute()}", "nothing there", f"It may also be in {root}")
    files = list_folder(path) if kind == "folder" else list_csv(path) if kind == "csv" else None
    if files is not None:
        images = read_files(path, files, root / "cache", size, channels, skip_bad)
    else:
        images = read_arrays(kind, path, size, channels)
    return split(images, f"{kind}:{path}", seed)


def write_arrays(images: ArrayLike, labels: ArrayLike, root: Path) -> str:
    """Check images and labels, save them in ``root`` unless they are there already, and return the data set's name."""
    pixels = as_pixels(np.asarray(images), "images")
    classes = as_labels(np.asarray(labels), len(pixels), "labels")
    digest = hashlib.sha256(f"{pixels.shape} {classes.tolist()}".encode() + pixels.tobytes()).hexdigest()[:8]
    path = root / f"arrays-{digest}.npz"
    if not path.exists():
        with replacing(path) as temporary:
            np.savez(temporary, images=pixels, labels=classes)
    return f"npz:{path}"


def split(images: UnsplitImages, dataset: str, seed: int) -> ImageSplits:
    """Make the three parts; missing ones are held out of the training images, the same share of each class."""
    rows = {part: np.flatnonzero(images.parts == part) for part in PARTS}
    missing = [part for part in ("test", "val") if not len(rows[part])]
    names, labels = _classes(images.labels, images.parts != "")
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
    return ImageSplits(short_name(dataset), tuple(map(str, names)), **loaded)


def _hold_out(rows: dict[str, np.ndarray], missing: list[str], labels: np.ndarray, seed: int) -> None:
    """Move training rows to each missing part: a share of each class, or of each set of classes for labels (N, J)."""
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


def classes_of(label: str) -> list[str]:
    """The classes that a label names, separated by "+"; a single "+" or an empty label names none.

    >>> classes_of("cat+dog"), classes_of("cat"), classes_of("+"), classes_of("c++")
    (['cat', 'dog'], ['cat'], [], ['c++'])
    """
    names = [name.strip() for name in label.split("+")]
    return names if all(names) else [label] if label.strip("+") else []


def _classes(labels: np.ndarray, used: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return class names (J,) and labels int64 (N,), or bool (N, J) if some images show no class or several.

    If each image shows one class, only the ``used`` (N,) images determine the class names.
    """
    if labels.ndim == 2:
        if (labels.sum(axis=1) != 1).any():
            return np.arange(labels.shape[1]), labels
        labels = labels.argmax(axis=1)
    sets = [classes_of(label) if isinstance(label, str) else [label] for label in labels.tolist()]
    if any(len(each) != 1 for each in sets):
        several = sorted(set().union(*sets))
        return np.array(several), np.array([[name in each for name in several] for each in sets])
    names = np.unique(labels[used])
    return names, np.searchsorted(names, labels).astype(np.int64)
