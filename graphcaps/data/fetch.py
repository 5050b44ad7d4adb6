"""Files by URL, whole or not at all: staged in a folder of their own, and moved into place when all are there."""

from __future__ import annotations

import os
import shutil
import urllib.request
import zipfile
from collections.abc import Iterable, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from ..atomic import made
from ..errors import GraphcapsError
from .download import DOWNLOAD_ERRORS, SECONDS_OF_SILENCE

MOST_BYTES = 1 << 30
"""No file here is near as large; a server that sends more sends something else."""

TROUBLE = (*DOWNLOAD_ERRORS, zipfile.BadZipFile, KeyError)  # KeyError: an archive without the member


def fetch(name: str, urls: Mapping[str, str], root: Path) -> None:
    """Download each URL to its path below ``root``.

    Args:
        name: of the data set, for the error.
        urls: path below ``root`` -> URL.
        root: made if need be.

    Raises:
        GraphcapsError: no network, a server that refuses, a full disk; nothing was changed.
    """
    with _staging(name, urls, root) as staged:
        for file, url in urls.items():
            _download(url, staged / file)


def fetch_members(name: str, url: str, members: Mapping[str, str], root: Path) -> None:
    """Download a zip archive and unpack some of its files.

    Args:
        name: of the data set, for the error.
        url: of the archive.
        members: path below ``root`` -> name in the archive.
        root: made if need be.

    Raises:
        GraphcapsError: as ``fetch``, or an archive without one of the members.
    """
    with _staging(name, members, root) as staged:
        _download(url, staged / "archive.zip")
        with zipfile.ZipFile(staged / "archive.zip") as archive:
            for file, member in members.items():
                (staged / file).parent.mkdir(parents=True, exist_ok=True)
                with archive.open(member) as source, (staged / file).open("wb") as target:
                    _copy(source, target, member)


@contextmanager
def _staging(name: str, files: Iterable[str], root: Path):
    """A folder to make ``files`` in; after the block those that ``root`` doesn't have move there."""
    files = list(files)
    try:
        with made(root), TemporaryDirectory(prefix=".download-", dir=root) as folder:
            yield Path(folder)
            for file in files:
                if not (root / file).exists():
                    (root / file).parent.mkdir(parents=True, exist_ok=True)
                    os.replace(Path(folder) / file, root / file)
    except TROUBLE as error:
        raise GraphcapsError(
            f"{name}: expected {', '.join(files[:2])}{', ...' * (len(files) > 2)} in {root.absolute()}, got nothing "
            f"there, and the download failed ({' '.join(str(error).split())}). Put them there, or name another data "
            "folder with --data DIR"
        ) from error


def _download(url: str, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with urllib.request.urlopen(url, timeout=SECONDS_OF_SILENCE) as source, path.open("wb") as target:
        _copy(source, target, url)
        size = source.headers.get("Content-Length")
        if size is not None and int(size) != target.tell():
            raise OSError(f"{url}: {target.tell()} of {size} bytes came")


def _copy(source, target, said: str) -> None:
    shutil.copyfileobj(_Limited(source, said), target, 1 << 20)


class _Limited:
    """A stream that ends in an error after ``MOST_BYTES``."""

    def __init__(self, source, said: str):
        self.source, self.said, self.left = source, said, MOST_BYTES

    def read(self, size: int) -> bytes:
        block = self.source.read(size)
        self.left -= len(block)
        if self.left < 0:
            raise OSError(f"{self.said}: more than {MOST_BYTES} bytes")
        return block
