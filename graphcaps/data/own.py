"""Images of a person's own: read by the readers of their kind, split where no split is given.

``folder:PATH`` is read by ``readers.folder``, ``idx:``, ``npz:`` and ``csv:`` by ``readers.arrays``.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from ..atomic import replacing
from ..config import own_images, short_name
from ..errors import InputError, expect
from .images import Images
from .readers import arrays, folder
from .readers.found import PARTS, Found
from .splits import ImageSplits

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

SHARE = 0.15
"""Of each class's images, that are held out for each part that isn't given: one at least."""
IN_MEMORY = 2**31
"""Bytes of pixels, more than which stay in the cache's file."""


def load_own(dataset: str, root: Path, size: int | None = None, skip_bad: bool = False, seed: int = 0) -> ImageSplits:
    """Read images of a person's own.

    Args:
        dataset: ``KIND:PATH``. Where PATH isn't there, its last part is looked for in ``root``.
        root: also holds the cache of decoded files.
        size: pixels of the longer side; None: as it is, but from 28 to 64.
        skip_bad: leave out files that can't be read.
        seed: of the split, where none is given.

    Raises:
        InputError: nothing there, another format, a bad file, or images that can't be split.
    """
    own = own_images(dataset)
    assert own is not None, "images of one's own"
    kind, path = own
    if not path.exists() and (root / path.name).exists():
        path = root / path.name
    expect(path.exists(), dataset, f"something at {path.absolute()}", "nothing there", f"It may also be in {root}")
    files = kind == "folder"
    found = folder.read(path, root / "cache", size, skip_bad) if files else arrays.read(kind, path, size)
    return split(found, dataset, seed)


def write_arrays(images: ArrayLike, labels: ArrayLike, root: Path) -> str:
    """Write images and their labels into ``root``, checked, once; give the data set's name.

    Raises:
        InputError: images or labels that aren't.
    """
    pixels = arrays.as_pixels(np.asarray(images), "images")
    of = arrays.as_labels(np.asarray(labels), len(pixels), "labels")
    digest = hashlib.sha256(f"{pixels.shape} {of.tolist()}".encode() + pixels.tobytes()).hexdigest()[:8]
    path = root / f"arrays-{digest}.npz"
    if not path.exists():
        with replacing(path) as temporary:
            np.savez(temporary, images=pixels, labels=of)
    return f"npz:{path}"


def split(found: Found, dataset: str, seed: int) -> ImageSplits:
    """The three parts; those that weren't found are held out of the training images, of each class its share."""
    in_part = {part: np.flatnonzero(found.parts == part) for part in PARTS}
    names, of_train = np.unique(found.labels[in_part["train"]], return_counts=True)
    expect(len(names) > 1, dataset, "images of two classes or more", f"{', '.join(map(str, names)) or 'none'}")
    missing = [part for part in ("test", "val") if not len(in_part[part])]
    fewest = names[of_train.argmin()]
    wanted = f"{1 + len(missing)} images or more of each class, one for each of {', '.join(['train', *missing])}"
    then = "Add some, or leave the class out"
    expect(bool(of_train.min() > len(missing)), dataset, wanted, f"{of_train.min()} of {fewest}", then)
    unknown = np.setdiff1d(found.labels[found.parts != ""], names)
    if len(unknown):
        raise InputError(
            f"{dataset}: expected the classes of the training images, got also {', '.join(map(str, unknown))}"
        )
    labels = np.searchsorted(names, found.labels)  # of what is left out, whatever comes
    random = np.random.RandomState(np.random.SeedSequence(seed).generate_state(4))
    for part in missing:
        rows = in_part["train"]
        for k, count in enumerate(of_train):
            of_class = rows[labels[rows] == k]
            taken = random.permutation(of_class)[: max(1, round(SHARE * count))]
            in_part[part] = np.append(in_part[part], taken)
        in_part["train"] = np.setdiff1d(rows, in_part[part])
    pixels, numbers = found.pixels, torch.from_numpy(labels.astype(np.int64))
    mapped = pixels.numel() > IN_MEMORY
    parts = {}
    for part, rows in in_part.items():
        where = torch.from_numpy(np.sort(rows))
        kept = Images(pixels, numbers[where], rows=where) if mapped else Images(pixels[where], numbers[where])
        parts[part] = kept
    return ImageSplits(short_name(dataset), tuple(map(str, names)), **parts)
