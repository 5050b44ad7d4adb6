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
from ..errors import expect, required
from ..names import own_images
from .array_files import as_labels, as_pixels, read_arrays
from .image_folder import read_files
from .listing import list_csv, list_folder
from .splits import ImageSplits, split

log = logging.getLogger(__name__)
if TYPE_CHECKING:
    from numpy.typing import ArrayLike


def read_user_dataset(
    name: str, root: Path, size: int | None, channels: int | None, skip_bad: bool, seed: int, separator: str | None
) -> ImageSplits:
    """Read and split ``KIND:PATH``. If PATH has moved, look in ``root``. Files are decoded into ``root/cache``."""
    kind, path = required(own_images(name), "dataset", "KIND:PATH", name)
    if not path.exists() and (root / path.name).exists():
        path = root / path.name
    expect(path.exists(), name, f"something at {path.absolute()}", "nothing there", f"It may also be in {root}")
    files = list_csv(path) if kind == "csv" else None
    if kind == "folder":
        files, told = list_folder(path)
        log.info("%s", told)
    if files is not None:
        cache = root / "cache"
        if path.resolve() in cache.resolve().parents:  # never write into the folder that is read
            cache = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "graphcaps"
        images = read_files(path, files, cache, size, channels, skip_bad)
    else:
        images = read_arrays(kind, path, size, channels)
    return split(images, f"{kind}:{path}", seed, separator)


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
