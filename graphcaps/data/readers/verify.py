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
    name, found = str(path), content(path)
    head = bytes([0, 0, 8, len(shape)]) + np.array(shape, ">u4").tobytes()
    size = len(head) + math.prod(shape)
    expect(found.startswith(head), name, f"IDX data of {shape}", f"other data, {found[: len(head)].hex()}...", AGAIN)
    expect(len(found) == size, name, f"{size} bytes", len(found), AGAIN)
    if md5 is not None:
        check_md5(path, md5, found)
    return np.frombuffer(found, np.uint8, offset=len(head)).reshape(shape).copy()


def check_md5(path: Path, md5: str, found: bytes | None = None) -> None:
    """Raise ``InputError`` unless what was ``found`` in ``path``, by default all of it, has this checksum."""
    actual = hashlib.md5(content(path) if found is None else found, usedforsecurity=False).hexdigest()
    expect(actual == md5, str(path), f"md5 {md5}", actual, AGAIN)


def content(path: Path, again: str = AGAIN) -> bytes:
    """The bytes of the file, unpacked where its name ends in .gz.

    Raises:
        InputError: unreadable, a web page, or a truncated gzip file; the text ends in ``again``.
    """
    try:
        with path.open("rb") as file:
            start = file.read(15)
            expect(not start.lstrip().startswith(b"<"), str(path), "data", f"a web page, {start!r}...", again)
            file.seek(0)
            return gzip.decompress(file.read()) if path.suffix == ".gz" else file.read()
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise InputError(f"{path}: expected a whole gzip file, got a truncated one ({error}). {again}") from error
    except OSError as error:
        raise InputError(f"{path}: expected a readable file, got: {error.strerror or error}") from error
