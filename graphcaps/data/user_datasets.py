"""Your own images as a data set. They are read here, from image files or arrays, and split by ``splits.split``.

Each image shows one class; or, in a multi-label data set, any number of classes, given as text such as "cat+dog", if a
separator is asked for, or as 0 and 1 for each class.
"""

from __future__ import annotations

import hashlib
import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ..atomic import replacing
from ..errors import did_you_mean, expect, required
from ..names import own_images
from .array_files import as_labels, as_pixels, read_arrays
from .image_folder import read_files
from .listing import list_csv, list_folder, read_csv
from .splits import PARTS, ImageSplits, Recorded, split

log = logging.getLogger(__name__)
if TYPE_CHECKING:
    from numpy.typing import ArrayLike


def read_user_dataset(
    name: str,
    root: Path,
    size: int | None,
    channels: int | None,
    skip_bad: bool,
    seed: int,
    separator: str | None,
    recorded: Path | None,
) -> ImageSplits:
    """Read and split ``KIND:PATH``, or take the images in the file ``recorded``, if it exists.

    If PATH has moved, look in ``root``. Files are decoded into ``root/cache``.
    """
    kind, path = required(own_images(name), "dataset", "KIND:PATH", name)
    if not path.exists() and (root / path.name).exists():
        path = root / path.name
    near = did_you_mean(path.name, [each.name for each in path.absolute().parent.glob("*")])
    then = f"{near}It may also be in {root}"
    expect(path.exists(), name, f"something at {path.absolute()}", "nothing there", then)
    known = None
    if recorded is not None and recorded.exists():
        known = [Recorded(*row) for row in read_csv(recorded, names=Recorded._fields).to_numpy().tolist()][1:]
        fits = {each.split for each in known} == {*PARTS}
        expect(fits, str(recorded), "the images of a run in three parts", f"{len(known)} rows that aren't")
    files = list_csv(path) if kind == "csv" else None
    if kind == "folder":
        files, told = list_folder(path)
        log.info("%s", told)
    if files is not None:
        cache = root / "cache"
        if path.resolve() in cache.resolve().parents:  # never write into the folder that is read
            cache = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "graphcaps"
        only = None if known is None else {each.sha256 for each in known}
        images = read_files(path, files, cache, size, channels, skip_bad, only)
    else:
        images = read_arrays(kind, path, size, channels)
    return split(images, f"{kind}:{path}", seed, separator, known)


def write_arrays(images: ArrayLike, labels: ArrayLike, root: Path) -> str:
    """Check images and labels, save them in ``root`` if they aren't there yet, and return the data set's name."""
    pixels = as_pixels(np.asarray(images), "images")
    classes = as_labels(np.asarray(labels), len(pixels), "labels")
    digest = hashlib.sha256(f"{pixels.shape} {classes.tolist()}".encode() + pixels.tobytes()).hexdigest()[:8]
    path = root / f"arrays-{digest}.npz"
    if not path.exists():
        with replacing(path) as temporary:
            np.savez(temporary, images=pixels, labels=classes)
    return f"npz:{path}"
