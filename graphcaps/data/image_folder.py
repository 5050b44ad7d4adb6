"""Reading of image files: a folder per class, as for torchvision's ImageFolder, or a CSV of files and their classes.

The images are decoded once, into a cache: ``NAME.npy`` holds the pixels, uint8 (N, C, H, W), and is mapped into memory.
``NAME.json`` holds the files' names and hashes. You can delete the cache.
"""

from __future__ import annotations

import contextlib
import glob
import hashlib
import json
import logging
import os
from collections.abc import Callable, Container
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ..atomic import replacing, write_text
from ..errors import GraphcapsError, InputError, expect, read_json
from ..names import clean
from ..progress import bar
from .listing import Listed
from .splits import UnsplitImages
from .user_images import common_size, read_pixels, size_and_colour

MAX_LISTED = 10  # number of bad files that an error message lists
CACHE_VERSION = 2

log = logging.getLogger(__name__)


def read_files(
    path: Path,
    listed: list[Listed],
    cache: Path,
    size: int | None,
    channels: int | None,
    skip_bad: bool,
    only: Container[str] | None,
) -> UnsplitImages:
    """Decode the files that ``list_folder`` or ``list_csv`` returned; if ``only`` is given, those with these hashes."""
    place, top = path.resolve(), path if path.is_dir() else path.parent
    name = f"{place.name}-{hashlib.sha256(os.fsencode(place)).hexdigest()[:8]}"
    stored, known = dict[Path, dict](), dict[tuple, str]()
    for about in sorted(cache.glob(f"{glob.escape(name)}-*.json")):
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):  # the cache may be damaged
            stored[about] = read_json(about.read_text(encoding="utf-8"), bad=dict)
            known |= {tuple(each[:-1]): each[-1] for each in stored[about]["files"]}
    about_files = [_identity(top, each.path, known) for each in listed]
    if only is not None and (kept := [k for k, each in enumerate(about_files) if each[-1] in only]):
        if more := len(listed) - len(kept):
            log.info("%s: %d images that the run was not trained or tested with are left out", path, more)
        listed, about_files = [listed[k] for k in kept], [about_files[k] for k in kept]
    about = cache / f"{name}-{size or 'auto'}{f'-{channels}' * bool(channels)}.json"
    found = _stored_pixels(stored, about_files, size, channels)
    if found is None:
        about.unlink(missing_ok=True)  # it would describe the wrong pixels after a crash
        bad = _decode([each.path for each in listed], about.with_suffix(".npy"), size, channels)
        settings = {"version": CACHE_VERSION, "size": size, "channels": channels}
        write_text(about, json.dumps({**settings, "bad": bad, "files": about_files}))
        found = np.load(about.with_suffix(".npy"), mmap_mode="c"), bad
    pixels, bad = found
    if bad:
        text = "\n  ".join(["", *list(bad.values())[:MAX_LISTED], *["..."] * (len(bad) > MAX_LISTED)])
        wanted, then = f"{len(listed)} images that can be read", "Repair or remove them, or skip them with --skip-bad"
        if not skip_bad:
            raise InputError(f"{path}: expected {wanted}, got {len(bad)} that can't:{text}\n{then}")
        log.warning("left out %d files that can't be read:%s", len(bad), text)
    parts = np.array([each.part for each in listed], object)
    parts[[int(k) for k in bad]] = ""
    labels, names = np.array([each.label for each in listed]), [clean(each[0]) for each in about_files]
    return UnsplitImages(torch.from_numpy(pixels), labels, parts, names, [each[-1] for each in about_files])


def _identity(top: Path, file: Path, known: dict[tuple, str]) -> tuple:
    """A file's name, size, times, inode and hash. The hash is computed only if all others aren't ``known`` together."""
    name = os.path.relpath(file, top)
    try:
        stat = file.stat()
        # A program can set back the time of the last change of the content, but not that of the inode.
        about = (name, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino)
        return *about, known.get(about) or hashlib.sha256(file.read_bytes()).hexdigest()[:16]
    except OSError:  # a link to nothing, or a file that may not be read
        return name, ""


def _stored_pixels(
    stored: dict[Path, dict], files: list[tuple], size: int | None, channels: int | None
) -> tuple[np.ndarray, dict[str, str]] | None:
    """The mapped pixels (N, C, H, W) of a cache with these files, and for each bad file its number and the error."""
    for about, found in stored.items():
        with contextlib.suppress(OSError, ValueError, KeyError, EOFError):
            # Mode c is copy-on-write, because torch warns about read-only memory.
            pixels = np.load(about.with_suffix(".npy"), mmap_mode="c")
            # A cache that was made with defaults also fits if its actual size and channels are asked for.
            fits = size in (found["size"], max(pixels.shape[2:])) and channels in (found["channels"], pixels.shape[1])
            same = [(each[0], each[-1]) for each in found["files"]] == [(each[0], each[-1]) for each in files]
            if fits and same and found["version"] == CACHE_VERSION:
                return pixels, found["bad"]
    return None


def _decode(files: list[Path], stored: Path, size: int | None, channels: int | None) -> dict[str, str]:
    """Write the pixels of all files; bad files are black. Without ``channels``, they are grey if no file has colour."""
    with ThreadPoolExecutor() as pool, bar(f"decoding {len(files):,} images") as on_share:
        probed = pool.map(lambda file: _value_or_reason(size_and_colour, file), files)
        heads = [head for head in probed if not isinstance(head, str)]
        expect(len(heads) > 0, str(files[0].parent), "an image that can be read", "none")
        height, width = common_size(np.array([head[:2] for head in heads]), size)
        shape = channels or (3 if any(head[2] for head in heads) else 1), height, width
        bad, coloured = {}, channels is not None
        decoded = pool.map(lambda file: _value_or_reason(read_pixels, file, shape, False), files)
        with replacing(stored) as temporary:
            pixels = np.lib.format.open_memmap(temporary, "w+", np.uint8, (len(files), *shape))
            for k, result in enumerate(decoded):
                on_share((k + 1) / len(files))
                if isinstance(result, str):
                    bad[str(k)] = result
                else:
                    pixels[k] = result[0]
                    coloured = coloured or bool((pixels[k] != pixels[k, :1]).any())
            pixels.flush()
    if shape[0] == 3 and not coloured:  # the files are in a colour format, but contain only greys
        with replacing(stored) as temporary:
            np.save(temporary, pixels[:, :1])
    return bad


def _value_or_reason(function: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return function(*arguments)
    except GraphcapsError as error:
        return str(error)
