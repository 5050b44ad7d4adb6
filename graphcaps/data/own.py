"""Images of a person's own: read by ``readers.folder`` and ``readers.arrays``, split where no split is given."""

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
from .splits import PARTS, Found, ImageSplits

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

SHARE = 0.15
"""Of each class's images, that are held out for each part that isn't given: one at least."""
IN_MEMORY = 2**31
"""Bytes of pixels, more than which stay in the cache's file."""


def load_own(kind: str, path: Path, root: Path, size: int | None, skip_bad: bool, seed: int) -> ImageSplits:
    """As ``load_images`` does ``KIND:PATH``; ``root`` also holds the cache of decoded files.

    Where PATH isn't there, its last part is looked for in ``root``.
    """
    dataset = f"{kind}:{path}"
    if not path.exists() and (root / path.name).exists():
        path = root / path.name
    expect(path.exists(), dataset, f"something at {path.absolute()}", "nothing there", f"It may also be in {root}")
    files = kind == "folder"
    found = folder.read(path, root / "cache", size, skip_bad) if files else arrays.read(kind, path, size)
    return split(found, dataset, seed)


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


def split(found: Found, dataset: str, seed: int) -> ImageSplits:
    """The three parts; those that weren't found are held out of the training images, of each class its share."""
    in_part = {part: np.flatnonzero(found.parts == part) for part in PARTS}
    names, counts = np.unique(found.labels[in_part["train"]], return_counts=True)
    expect(len(names) > 1, dataset, "training images of two classes or more", ", ".join(map(str, names)) or "none")
    missing = [part for part in ("test", "val") if not len(in_part[part])]
    wanted = f"{1 + len(missing)} images or more of each class, one for each of {', '.join(['train', *missing])}"
    few, fewest = int(counts.min()), names[counts.argmin()]
    expect(few > len(missing), dataset, wanted, f"{few} of {fewest}", "Add some, or leave the class out")
    unknown = ", ".join(map(str, np.setdiff1d(found.labels[found.parts != ""], names)))
    expect(not unknown, dataset, "the classes of the training images", f"also {unknown}")
    labels = np.searchsorted(names, found.labels)  # of what is left out, whatever comes
    random = np.random.RandomState(np.random.SeedSequence(seed).generate_state(4))
    for part in missing:
        rows = in_part["train"]
        for k, count in enumerate(counts):
            drawn = random.permutation(rows[labels[rows] == k])[: max(1, round(SHARE * count))]
            in_part[part] = np.append(in_part[part], drawn)
        in_part["train"] = np.setdiff1d(rows, in_part[part])
    whole, of = found.pixels, torch.from_numpy(labels.astype(np.int64))
    parts = {part: torch.from_numpy(np.sort(rows)) for part, rows in in_part.items()}
    if whole.numel() > IN_MEMORY:
        images = {part: Images(whole, of[rows], rows=rows) for part, rows in parts.items()}
    else:
        images = {part: Images(whole[rows], of[rows]) for part, rows in parts.items()}
    return ImageSplits(short_name(dataset), tuple(map(str, names)), **images)
