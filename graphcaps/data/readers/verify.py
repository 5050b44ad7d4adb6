"""Data files, read only after everything about them was checked.

torchvision reads counts that disagree, images of another size and any label without a word, and meets a web page saved
under the file's name, or half a file, with an obscure error.

An IDX file (http://yann.lecun.com/exdb/mnist) is two zero bytes, a type byte (8: uint8), the number of dims, each dim
as a big-endian uint32, then the values.
"""

from __future__ import annotations

import gzip
import hashlib
import math
import zlib
from pathlib import Path

import numpy as np

from ...errors import InputError, expect

AGAIN = "Delete it and run again to download it. graphcaps train --dataset digits needs no download"

PACKED = ("-ubyte", "-dat.mat", "-cat.mat", "-info.mat")
"""How the names of files end whose readers unpack gzip: IDX, and smallNORB's."""


def locate(root: Path, file: str) -> Path | None:
    """The file below ``root``, else the gzip next to its place where its reader unpacks one, else None."""
    names = (file, f"{file}.gz") if file.endswith(PACKED) else (file,)
    return next((root / name for name in names if (root / name).exists()), None)


def read_idx(path: Path, shape: tuple[int, ...], md5: str | None = None) -> np.ndarray:
    """Read the uint8 IDX file ``path``; a name that ends in ``.gz`` is unpacked on the way.

    Args:
        path: the file.
        shape: the dims it must have: (N, H, W) for images, (N,) for labels.
        md5: of the unpacked file; None where it isn't known.

    Returns:
        uint8 array of ``shape``, its own memory.

    Raises:
        InputError: unreadable, a web page, truncated, too long, or of another type, dims or checksum.
    """
    name, start = str(path), 4 + 4 * len(shape)
    size = start + math.prod(shape)
    found = content(path, size + 1)
    expect(found[:2] != b"\x1f\x8b", name, "unpacked IDX data", "gzip data", f"Rename it to {path.name}.gz")
    magic = bytes([0, 0, 8, len(shape)])
    expect(found[:4] == magic, name, f"to start with {_magic(magic)}", _magic(found[:4]), AGAIN)
    if len(found) >= start:
        dims = tuple(int(dim) for dim in np.frombuffer(found[4:start], ">u4"))
        expect(dims == shape, name, _dims(shape), _dims(dims), AGAIN)
    expect(len(found) == size, name, f"{size} bytes", len(found) if len(found) < size else "more", AGAIN)
    if md5 is not None:
        actual = hashlib.md5(found, usedforsecurity=False).hexdigest()
        expect(actual == md5, name, f"md5 {md5}", actual, AGAIN)
    return np.frombuffer(found, np.uint8, offset=start).reshape(shape).copy()


def check_md5(path: Path, md5: str) -> None:
    """Raise ``InputError`` unless ``path`` can be read and has this checksum."""
    digest = hashlib.md5(usedforsecurity=False)
    try:
        with path.open("rb") as file:
            while block := file.read(1 << 20):
                digest.update(block)
    except OSError as error:
        raise _unreadable(path, error) from error
    expect(digest.hexdigest() == md5, str(path), f"md5 {md5}", digest.hexdigest(), AGAIN)


def content(path: Path, most: int, again: str = AGAIN) -> bytes:
    """At most ``most`` bytes of the file, unpacked where its name ends in .gz.

    Raises:
        InputError: unreadable, a web page, or a truncated gzip file; the text ends in ``again``.
    """
    try:
        with path.open("rb") as file:
            start = file.read(15)
            expect(not start.lstrip().startswith(b"<"), str(path), "data", f"a web page, {start!r}...", again)
            file.seek(0)
            if path.suffix != ".gz":
                return file.read(most)
            with gzip.open(file) as unpacked:
                return unpacked.read(most)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise InputError(f"{path}: expected a whole gzip file, got a truncated one ({error}). {again}") from error
    except OSError as error:
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: OSError) -> InputError:
    return InputError(f"{path}: expected a readable file, got: {error.strerror or error}")


def _magic(found: bytes) -> str:
    """What the first four bytes say: ``0x00000803 (images)``."""
    kind = {b"\0\0\x08\x03": " (images)", b"\0\0\x08\x01": " (labels)", b"": " (an empty file)"}.get(found, "")
    return f"0x{found.hex()}{kind}"


def _dims(shape: tuple[int, ...]) -> str:
    """``60000 images of 28 x 28``, or ``60000 labels``."""
    return f"{shape[0]} images of {' x '.join(map(str, shape[1:]))}" if shape[1:] else f"{shape[0]} labels"
