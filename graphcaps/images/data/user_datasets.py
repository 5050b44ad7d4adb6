"""Decoding of your own image files, once, into a cache.

The cache is an .npz file with ``pixels`` uint8 (N, C, H, W); ``bad``, why files can't be read; and ``about``, a hash of
the files' names and contents. You can delete it.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import repeat
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ...errors import GraphcapsError, InputError, expect
from ...files import check_file, replacing
from ...names import clean
from ...progress import bar
from .user_images import common_size, read_image, size_and_colour

if TYPE_CHECKING:
    import pandas

MAX_LISTED = 10  # number of bad files that an error message lists
DARK = 32  # images whose lightest pixel is below this are probably in other units

Decoded = tuple[np.ndarray, dict[str, str]]  # pixels (N, C, H, W), black for bad files; row -> why it can't be read

log = logging.getLogger(__name__)


def read_files(
    path: Path,
    listed: pandas.DataFrame,
    cache: Path,
    size: int | None,
    channels: int | None,
    skip_bad: bool,
    group_by: str,
    of_run: pandas.DataFrame | None,
) -> tuple[np.ndarray, np.ndarray, pandas.DataFrame]:
    """Decode the ``listed`` files for ``split``, or only those that have the hashes of a run's images."""
    place, top = path.resolve(), path if path.is_dir() else path.parent
    if place in cache.resolve().parents:  # never write into the folder that is read
        cache = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "graphcaps"
    names = [os.path.relpath(file, top) for file in listed["file"]]
    if group_by and "group" not in listed:
        listed["group"] = _groups(names, group_by)
    with ThreadPoolExecutor() as pool:
        table = listed.assign(name=names, sha256=[*pool.map(_hash, listed["file"])])
    if of_run is not None and (is_of_run := table["sha256"].isin(of_run["sha256"])).any():
        if more := int((~is_of_run).sum()):
            log.info("%s: %d images that the run was not trained or tested with are left out", clean(str(path)), more)
        table = table[is_of_run].reset_index(drop=True)
    place_hash = hashlib.sha256(os.fsencode(place)).hexdigest()[:8]
    stored = cache / f"{place.name[:50]}-{place_hash}-{size or 'auto'}-{channels or 'auto'}.npz"
    about = json.dumps([size, channels, table[["name", "sha256"]].to_numpy().tolist()]).encode()
    pixels, bad = _cached(stored, hashlib.sha256(about).hexdigest(), lambda: _decode([*table["file"]], size, channels))
    if bad:
        listed_reasons = [*map(clean, list(bad.values())[:MAX_LISTED]), *["..."] * (len(bad) > MAX_LISTED)]
        reasons = "\n  ".join(["", *listed_reasons])
        if not skip_bad:
            wanted = f"{len(table)} images that can be read"
            advice = "Repair or remove them, or skip them with --skip-bad"
            raise InputError(f"{path}: expected {wanted}, got {len(bad)} that can't:{reasons}\n{advice}")
        log.warning("left out %d files that can't be read:%s", len(bad), reasons)
        table.loc[[*map(int, bad)], "split"] = ""
    table["file"] = table.pop("name").map(clean)
    return pixels, table["label"].to_numpy(str), table


def _groups(names: list[str], pattern: str) -> list[str]:
    try:
        matches = [re.search(pattern, name) for name in names]
    except re.error as error:
        raise InputError(f"group_by: expected a regular expression, got {pattern!r}: {error}") from None
    if None in matches:
        wanted = f"a part of the name of each file, such as patient[0-9]+, in {names[matches.index(None)]}"
        advice = "For a table, it may also be the name of a column"
        expect(False, "group_by", wanted, f"{pattern!r}, which isn't", advice)
    return [match[0] for match in matches if match]


def _cached(stored: Path, about: str, decode: Callable[[], Decoded]) -> Decoded:
    """The content of a cache ``about`` the same files. Without one that can be read, store and return ``decode()``."""
    with contextlib.suppress(Exception), np.load(check_file(stored)) as arrays:
        if arrays["about"] == about:
            return arrays["pixels"], json.loads(str(arrays["bad"]))
    pixels, bad = decode()
    try:
        with replacing(stored) as temporary:
            np.savez(temporary, pixels=pixels, about=about, bad=json.dumps(bad))
    except GraphcapsError as error:
        log.warning("decoded images are not kept: %s", error)
    return pixels, bad


def _hash(file: Path) -> str:
    """The hash of a file's content, or "" if it can't be read: a link to nothing, a device, or not permitted."""
    try:
        return hashlib.sha256(check_file(file).read_bytes()).hexdigest()[:16]
    except (OSError, ValueError):
        return ""


def _decode(files: list[Path], size: int | None, channels: int | None) -> Decoded:
    """Return the pixels (N, C, H, W) of all files, black for bad files, and why these can't be read.

    Without ``channels``, they are grey if no file has colour.
    """
    with ThreadPoolExecutor() as pool, bar(f"decoding {len(files):,} images") as on_share:
        probed = [*pool.map(lambda file: _value_or_reason(size_and_colour, file), files)]
        bad = {str(k): head for k, head in enumerate(probed) if isinstance(head, str)}
        pixels = np.zeros((0, 0, 0, 0), np.uint8)
        while True:
            heads = [head for k, head in enumerate(probed) if str(k) not in bad]
            expect(len(heads) > 0, str(files[0].parent), "an image that can be read", f"none: {[*bad.values()][:1]}")
            height, width = common_size(np.array([head[:2] for head in heads]), size)
            shape = channels or (3 if any(head[2] for head in heads) else 1), height, width
            if pixels.shape[1:] == shape:
                break
            pixels = np.zeros((len(files), *shape), np.uint8)  # again if files that turned out bad changed the shape
            decoded = pool.map(lambda file, to: _value_or_reason(read_image, file, to, False), files, repeat(shape))
            for k, result in enumerate(decoded):
                on_share((k + 1) / len(files))
                if isinstance(result, str):
                    bad[str(k)] = result
                else:
                    pixels[k] = (result.pixels * 255).round()
    if 0 < pixels.max() < DARK:
        log.warning("nearly black: no pixel is above %d of 255. If they are in other units, rescale them", pixels.max())
    coloured = channels is not None or any((image != image[:1]).any() for image in pixels)
    return pixels if coloured else pixels[:, :1], bad  # files in a colour format may contain only greys


def _value_or_reason(function: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return function(*arguments)
    except GraphcapsError as error:
        return str(error)
