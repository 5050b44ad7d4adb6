"""A folder per class, as torchvision's ImageFolder has it, decoded once into a file that is mapped into memory.

The cache is ``NAME.npy`` with the pixels, uint8 (N, C, H, W), and ``NAME.json`` with the fingerprint of the files that
it was made of: their names, sizes and times. It may be deleted.
"""

from __future__ import annotations

import glob
import hashlib
import json
import logging
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from ...atomic import replacing, write_text
from ...errors import GraphcapsError, InputError, expect
from ...progress import bar
from ..user_images import decodable, fitted, size_and_colour
from .found import Found, common_size

FOLDERS = {"train": "train", "val": "val", "valid": "val", "validation": "val", "test": "test"}
SHOWN = 10  # bad files in an error
VERSION = 1  # of the cache

log = logging.getLogger(__name__)


class _File(NamedTuple):
    path: Path
    label: str
    part: str


def read(path: Path, cache: Path, size: int | None, skip_bad: bool) -> Found:
    """Read a folder per class in ``path``, or in its folders train, val and test.

    Args:
        path: the folder.
        cache: folder for the decoded pixels.
        size: pixels of the longer side, None: by ``common_size``.
        skip_bad: leave out files that can't be decoded.

    Raises:
        InputError: no folder, a class without an image, or a bad file.
    """
    files = _list(path)
    pixels, bad = _decoded(path, files, cache, size)
    if bad:
        lines = [f"\n  {reason}" for reason in list(bad.values())[:SHOWN]]
        text = "".join(lines) + f"\n  and {len(bad) - SHOWN} more" * (len(bad) > SHOWN)
        if not skip_bad:
            raise InputError(
                f"{path}: expected {len(files)} images that can be read, got {len(bad)} that can't:{text}\n"
                "Mend or remove them, or leave them out with --skip-bad"
            )
        log.warning("left out %d files that can't be read:%s", len(bad), text)
    labels, parts = (np.array([getattr(file, key) for file in files]) for key in ("label", "part"))
    parts[[int(k) for k in bad]] = ""
    return Found(pixels, labels, parts)


def _list(path: Path) -> list[_File]:
    """All image files below the class folders, sorted; names that begin with a dot are left out."""
    expect(path.is_dir(), str(path), "a folder", "a file")
    folders = _folders(path)
    parts = {folder.name: FOLDERS.get(folder.name) for folder in folders}
    given = "train" in parts and all(parts.values())
    files = []
    for top, part in [(folder, parts[folder.name]) for folder in folders] if given else [(path, "train")]:
        classes = _folders(top)
        expect(len(classes) > 0, str(top), "a folder per class, with its images", "no folder in it")
        for each in classes:
            images = [file for file in sorted(each.rglob("*")) if _is_image(file, each)]
            then = "Remove it, or put images there (.png, .jpg, or another ending that Pillow knows)"
            expect(len(images) > 0, str(each), "an image or more in the folder of a class", "none", then)
            files += [_File(image, each.name, part or "train") for image in images]
    return files


def _folders(path: Path) -> list[Path]:
    return sorted(each for each in path.iterdir() if each.is_dir() and not each.name.startswith("."))


def _is_image(file: Path, below: Path) -> bool:
    hidden = any(part.startswith(".") for part in file.relative_to(below).parts)
    return file.suffix.lower() in decodable() and not hidden and file.is_file()


def _decoded(path: Path, files: list[_File], cache: Path, size: int | None) -> tuple[torch.Tensor, dict[str, str]]:
    """Pixels (N, C, H, W) of all files, mapped, and why one is bad, by its number; from a cache that is of them."""
    stats = [file.path.stat() for file in files]
    names = [str(file.path.relative_to(path)) for file in files]
    listing = [(name, stat.st_size, stat.st_mtime_ns) for name, stat in zip(names, stats, strict=True)]
    fingerprint = hashlib.sha256(json.dumps([VERSION, listing]).encode()).hexdigest()
    place = path.resolve()
    name = f"{place.name}-{hashlib.sha256(str(place).encode()).hexdigest()[:8]}"
    for about in sorted(cache.glob(f"{glob.escape(name)}-*.json")):
        try:
            known = json.loads(about.read_text(encoding="utf-8"))
            if known["fingerprint"] == fingerprint and size in (known["size"], max(known["shape"][2:])):
                return _mapped(about.with_suffix(".npy"), tuple(known["shape"])), known["bad"]
        except (OSError, ValueError, KeyError, TypeError, EOFError):
            continue  # damaged, or half of it was deleted
    about = cache / f"{name}-{size or 'auto'}.json"
    shape, bad = _decode([file.path for file in files], about.with_suffix(".npy"), size)
    write_text(about, json.dumps({"fingerprint": fingerprint, "size": size, "shape": shape, "bad": bad}))
    return _mapped(about.with_suffix(".npy"), shape), bad


def _mapped(stored: Path, shape: tuple[int, ...]) -> torch.Tensor:
    # copy-on-write, because torch warns of memory that can't be written
    pixels = np.lib.format.open_memmap(stored, mode="c")
    expect(pixels.shape == shape and pixels.dtype == np.uint8, str(stored), f"uint8 {shape}", f"{pixels.shape}")
    return torch.from_numpy(pixels)


def _decode(paths: list[Path], stored: Path, size: int | None) -> tuple[tuple[int, ...], dict[str, str]]:
    """Write the pixels of all files, a bad one black; grey where no file has colour."""
    bad: dict[str, str] = {}
    with ThreadPoolExecutor() as pool, bar(f"decoding {len(paths):,} images") as on_share:
        heads = []
        for k, head in enumerate(pool.map(_or_reason(size_and_colour), paths)):
            if isinstance(head, str):
                bad[str(k)] = head
            else:
                heads.append(head)
        expect(len(heads) > 0, str(paths[0].parent), "an image that can be read", "none")
        height, width = common_size(np.array([head[:2] for head in heads]), size)
        channels = 3 if any(head[2] for head in heads) else 1
        shape, coloured = (len(paths), channels, height, width), False
        with replacing(stored) as temporary:
            pixels = np.lib.format.open_memmap(temporary, mode="w+", dtype=np.uint8, shape=shape)
            decode = _or_reason(lambda path: fitted(path, (channels, height, width), invert=False)[0])
            for k, values in enumerate(pool.map(decode, paths)):
                on_share((k + 1) / len(paths))
                if isinstance(values, str):
                    bad[str(k)] = values
                    continue
                pixels[k] = values
                coloured = coloured or bool((values != values[:1]).any())
            pixels.flush()
        if channels == 3 and not coloured:
            shape = (len(paths), 1, height, width)
            with replacing(stored) as temporary:
                np.save(temporary, pixels[:, :1])
    return shape, bad


def _or_reason(function):
    """The function of a path, that gives the text of its ``GraphcapsError`` instead of raising it."""

    def tried(path: Path):
        try:
            return function(path)
        except GraphcapsError as error:
            return str(error)

    return tried
