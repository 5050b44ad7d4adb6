"""Your own images as a data set: read from image files or arrays, and split by ``splits.split``.

Image files are decoded once, into a cache: ``NAME.npy`` holds the pixels, uint8 (N, C, H, W), and is mapped into
memory. ``NAME.json`` holds the files' names and hashes. You can delete the cache.
"""

from __future__ import annotations

import contextlib
import glob
import hashlib
import json
import logging
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..atomic import replacing, write_text
from ..errors import GraphcapsError, InputError, did_you_mean, expect, read_json, required
from ..names import clean, own_images
from ..progress import bar
from .array_files import read_arrays
from .listing import list_csv, list_folder, read_csv
from .splits import PARTS, ImageSplits, split
from .user_images import common_size, read_pixels, size_and_colour

if TYPE_CHECKING:
    import pandas

MAX_LISTED = 10  # number of bad files that an error message lists
CACHE_VERSION = 2

log = logging.getLogger(__name__)


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
    wanted, then = f"something at {path.absolute()}", f"{near}It may also be in {root}"
    expect(path.exists(), name, wanted, "nothing there", then)
    known = None
    if recorded is not None and recorded.exists():
        known = read_csv(recorded, names=["file", "label", "split", "sha256"])[1:]
        fits = {*known["split"]} == {*PARTS}
        expect(fits, str(recorded), "the images of a run in three parts", f"{len(known)} rows that aren't")
    listed = list_csv(path) if kind == "csv" else None
    if kind == "folder":
        listed, told = list_folder(path)
        log.info("%s", clean(told))
    if listed is None:
        images = read_arrays(kind, path, size, channels)
    else:
        cache = root / "cache"
        if path.resolve() in cache.resolve().parents:  # never write into the folder that is read
            cache = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "graphcaps"
        images = _read_files(path, listed, cache, size, channels, skip_bad, known)
    return split(*images, f"{kind}:{path}", seed, separator, known)


def _read_files(
    path: Path,
    listed: pandas.DataFrame,
    cache: Path,
    size: int | None,
    channels: int | None,
    skip_bad: bool,
    recorded: pandas.DataFrame | None,
) -> tuple[np.ndarray, np.ndarray, pandas.DataFrame]:
    """Decode the ``listed`` files for ``split``; if a run's images are ``recorded``, only those with their hashes."""
    place, top = path.resolve(), path if path.is_dir() else path.parent
    name = f"{place.name}-{hashlib.sha256(os.fsencode(place)).hexdigest()[:8]}"
    caches = [*_caches(cache, name)]
    known = {each[:-1]: each[-1] for _, about in caches for each in about["files"]}
    table = listed.assign(about=[_identity(top, file, known) for file in listed["file"]])
    table["sha256"] = table["about"].str[-1]
    if recorded is not None and (kept := table["sha256"].isin(recorded["sha256"])).any():
        if more := int((~kept).sum()):
            log.info("%s: %d images that the run was not trained or tested with are left out", clean(str(path)), more)
        table = table[kept].reset_index(drop=True)
    named = [(each[0], each[-1]) for each in table["about"]]
    for pixels, about in caches:
        # A cache that was made with defaults also fits if its actual size and channels are asked for.
        fits = size in (about["size"], max(pixels.shape[2:])) and channels in (about["channels"], pixels.shape[1])
        if fits and [(each[0], each[-1]) for each in about["files"]] == named:
            bad = about["bad"]
            break
    else:
        stored = cache / f"{name}-{size or 'auto'}{f'-{channels}' * bool(channels)}.json"
        stored.unlink(missing_ok=True)  # it would describe the wrong pixels after a crash
        bad = _decode([*table["file"]], stored.with_suffix(".npy"), size, channels)
        settings = {"version": CACHE_VERSION, "size": size, "channels": channels}
        write_text(stored, json.dumps({**settings, "bad": bad, "files": [*table["about"]]}))
        pixels = np.load(stored.with_suffix(".npy"), mmap_mode="c")
    if bad:
        text = clean("\n  ".join(["", *list(bad.values())[:MAX_LISTED], *["..."] * (len(bad) > MAX_LISTED)]))
        wanted, then = f"{len(table)} images that can be read", "Repair or remove them, or skip them with --skip-bad"
        if not skip_bad:
            raise InputError(f"{path}: expected {wanted}, got {len(bad)} that can't:{text}\n{then}")
        log.warning("left out %d files that can't be read:%s", len(bad), text)
        table.loc[[*map(int, bad)], "split"] = ""
    table["file"] = table["about"].str[0].map(clean)
    return pixels, table["label"].to_numpy(str), table.drop(columns="about")


def _caches(folder: Path, name: str) -> Iterator[tuple[np.ndarray, dict]]:
    """The mapped pixels (N, C, H, W) and the description of each cache with this name that isn't damaged."""
    for path in sorted(folder.glob(f"{glob.escape(name)}-*.json")):
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError, EOFError):
            about = read_json(path.read_text(encoding="utf-8"), bad=dict, version=(CACHE_VERSION, CACHE_VERSION))
            about["files"] = [tuple(each) for each in about["files"]]
            # Mode c is copy-on-write, because torch warns about read-only memory.
            yield np.load(path.with_suffix(".npy"), mmap_mode="c"), about


def _identity(top: Path, file: Path, known: dict[tuple, str]) -> tuple:
    """A file's name, size, times, inode and hash. The hash is computed only if all others aren't ``known`` together."""
    name = os.path.relpath(file, top)
    with contextlib.suppress(OSError):  # a link to nothing, or a file that may not be read
        stat = file.stat()
        # A program can set back the time of the last change of the content, but not that of the inode.
        about = (name, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino)
        return *about, known.get(about) or hashlib.sha256(file.read_bytes()).hexdigest()[:16]
    return name, ""


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
