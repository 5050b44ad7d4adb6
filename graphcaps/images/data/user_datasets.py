"""Your own images as a data set: read from image files or arrays, and split by ``splits.split``.

Image files are decoded once, into a cache: an .npz file with ``pixels`` uint8 (N, C, H, W) and ``about``, JSON with the
files' names and hashes. You can delete it.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zipfile import BadZipFile

import numpy as np

from ...atomic import checked, reading, replacing
from ...errors import GraphcapsError, InputError, did_you_mean, expect, required
from ...names import clean, own_images
from ...progress import bar
from .array_files import read_arrays
from .listing import list_csv, list_folder
from .splits import PARTS, ImageSplits, split
from .user_images import common_size, read_pixels, size_and_colour

if TYPE_CHECKING:
    import pandas

MAX_LISTED = 10  # number of bad files that an error message lists
DARK = 32  # images whose lightest pixel is below this are probably in other units
DAMAGED = (OSError, ValueError, KeyError, TypeError, EOFError, BadZipFile)  # errors of reading a damaged cache

log = logging.getLogger(__name__)


def read_user_dataset(
    name: str,
    root: Path,
    size: int | None,
    channels: int | None,
    skip_bad: bool,
    seed: int,
    recorded: Path | None,
    label_column: str,
    group_by: str,
) -> ImageSplits:
    """Read and split ``KIND:PATH``, or take the images in the file ``recorded``, if it exists.

    If PATH has moved, look in ``root``. Files are decoded into ``root/cache``.
    """
    import pandas

    kind, path = required(own_images(name), "dataset", "KIND:PATH", name)
    if not path.exists() and (root / path.name).exists():
        path = root / path.name
    near = did_you_mean(path.name, [neighbour.name for neighbour in path.absolute().parent.glob("*")])
    wanted = f"something at {path.absolute()}"
    expect(path.exists(), name, wanted, "nothing there", f"{near}It may also be in {root}")
    of_run = None
    if recorded is not None and recorded.exists():
        with reading(recorded, "the images of a run in three parts"):
            of_run = pandas.read_csv(checked(recorded), dtype=str, keep_default_na=False)
        fits = {*of_run.get("split", ())} == {*PARTS}
        expect(fits, str(recorded), "the images of a run in three parts", f"{len(of_run)} rows that aren't")
    listed = list_csv(path, label_column, group_by) if kind == "csv" else None
    fits = not label_column or kind == "csv"
    expect(fits, "label_column", f"none for {kind}:PATH", repr(label_column), "It is for tables: csv:PATH")
    if kind == "folder":
        listed = list_folder(path)
    if listed is None:
        expect(not group_by, "group_by", "none for arrays", repr(group_by), "It is for image files")
        images = read_arrays(kind, path, size, channels, label_column)
    else:
        cache = root / "cache"
        if path.resolve() in cache.resolve().parents:  # never write into the folder that is read
            cache = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "graphcaps"
        if group_by and "group" not in listed:
            listed["group"] = _groups(listed["file"], path if path.is_dir() else path.parent, group_by)
        images = _read_files(path, listed, cache, size, channels, skip_bad, of_run)
    return split(*images, f"{kind}:{path}", seed, of_run)


def _groups(files: Iterable[Path], top: Path, pattern: str) -> list[str]:
    """The part of each file's name, with its folders, that matches a regular expression."""
    groups = []
    for file in files:
        name = Path(os.path.relpath(file, top)).as_posix()
        advice = "For a table, it may also be the name of a column"
        try:
            match = re.search(pattern, name)
        except re.error as error:
            raise InputError(f"group_by: expected a regular expression, got {pattern!r}: {error}") from None
        expect(
            match is not None,
            "group_by",
            f"a part of the name of each file, such as patient[0-9]+, in {name}",
            f"{pattern!r}, which isn't",
            advice,
        )
        groups.append(match[0] if match else "")
    return groups


def _read_files(
    path: Path,
    listed: pandas.DataFrame,
    cache: Path,
    size: int | None,
    channels: int | None,
    skip_bad: bool,
    of_run: pandas.DataFrame | None,
) -> tuple[np.ndarray, np.ndarray, pandas.DataFrame]:
    """Decode the ``listed`` files for ``split``, or only those that have the hashes of a run's images."""
    place, top = path.resolve(), path if path.is_dir() else path.parent
    name = f"{place.name[:50]}-{hashlib.sha256(os.fsencode(place)).hexdigest()[:8]}"
    with ThreadPoolExecutor() as pool:
        table = listed.assign(sha256=[*pool.map(_hash, listed["file"])])
    if of_run is not None and (is_of_run := table["sha256"].isin(of_run["sha256"])).any():
        if more := int((~is_of_run).sum()):
            log.info("%s: %d images that the run was not trained or tested with are left out", clean(str(path)), more)
        table = table[is_of_run].reset_index(drop=True)
    names = [os.path.relpath(file, top) for file in table["file"]]
    about = {"size": size, "channels": channels, "names": names, "sha256": [*table["sha256"]]}
    stored = cache / f"{name}-{size or 'auto'}-{channels or 'auto'}.npz"
    try:
        with np.load(checked(stored)) as arrays:
            of_stored = json.loads(bytes(arrays["about"]))
            pixels, bad = arrays["pixels"], of_stored.pop("bad")
    except DAMAGED:
        of_stored = None
    if of_stored != about:
        pixels, bad = _decode([*table["file"]], size, channels)
        with replacing(stored) as temporary:
            text = json.dumps({**about, "bad": bad})
            np.savez(temporary, pixels=pixels, about=np.frombuffer(text.encode(), np.uint8))
    if bad:
        reasons = clean("\n  ".join(["", *list(bad.values())[:MAX_LISTED], *["..."] * (len(bad) > MAX_LISTED)]))
        if not skip_bad:
            wanted = f"{len(table)} images that can be read"
            advice = "Repair or remove them, or skip them with --skip-bad"
            raise InputError(f"{path}: expected {wanted}, got {len(bad)} that can't:{reasons}\n{advice}")
        log.warning("left out %d files that can't be read:%s", len(bad), reasons)
        table.loc[[*map(int, bad)], "split"] = ""
    table["file"] = [*map(clean, names)]
    return pixels, table["label"].to_numpy(str), table


def _hash(file: Path) -> str:
    """The hash of a file's content, or "" if it can't be read: a link to nothing, a device, or not permitted."""
    try:
        return hashlib.sha256(checked(file).read_bytes()).hexdigest()[:16]
    except (OSError, ValueError):
        return ""


def _decode(files: list[Path], size: int | None, channels: int | None) -> tuple[np.ndarray, dict[str, str]]:
    """Return the pixels (N, C, H, W) of all files, black for bad files, and why these can't be read.

    Without ``channels``, they are grey if no file has colour.
    """
    with ThreadPoolExecutor() as pool, bar(f"decoding {len(files):,} images") as on_share:
        probed = pool.map(lambda file: _value_or_reason(size_and_colour, file), files)
        heads = [head for head in probed if not isinstance(head, str)]
        expect(len(heads) > 0, str(files[0].parent), "an image that can be read", "none")
        height, width = common_size(np.array([head[:2] for head in heads]), size)
        shape = channels or (3 if any(head[2] for head in heads) else 1), height, width
        bad, pixels = {}, np.zeros((len(files), *shape), np.uint8)
        decoded = pool.map(lambda file: _value_or_reason(read_pixels, file, shape, False), files)
        for k, result in enumerate(decoded):
            on_share((k + 1) / len(files))
            if isinstance(result, str):
                bad[str(k)] = result
            else:
                pixels[k] = result[0]
    if 0 < pixels.max() < DARK:
        log.warning("nearly black: no pixel is above %d of 255. If they are in other units, rescale them", pixels.max())
    coloured = channels is not None or any((image != image[:1]).any() for image in pixels)
    return pixels if coloured else pixels[:, :1], bad  # files in a colour format may contain only greys


def _value_or_reason(function: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return function(*arguments)
    except GraphcapsError as error:
        return str(error)
