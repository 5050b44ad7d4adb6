"""Downloads, whole or not at all: through torchvision, which knows mirrors and checksums, or by URL.

The files are made in a folder of their own, and moved into place when all of them are whole: a download that fails or
is interrupted leaves nothing that the next attempt would take for data, and two processes can download at once.
"""

from __future__ import annotations

import os
import shutil
import socket
import urllib.request
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from http.client import HTTPException
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType

import torch

from ..atomic import made
from ..errors import GraphcapsError

DOWNLOAD_ERRORS = (OSError, RuntimeError, HTTPException)
SECONDS_OF_SILENCE = 30.0

TROUBLE = (*DOWNLOAD_ERRORS, zipfile.BadZipFile, KeyError)  # KeyError: an archive without the member


def download_files(class_name: str, files: Iterable[str], root: Path) -> None:
    """Bring ``files`` (paths below ``root``) with ``torchvision.datasets.<class_name>``; those already there stay.

    Raises:
        DOWNLOAD_ERRORS: no network, a wrong checksum, a full disk, or a folder that can't be written.
        GraphcapsError: torchvision can't be imported.
    """
    dataset = getattr(import_torchvision(), class_name)
    with (
        made(root),
        TemporaryDirectory(prefix=".download-", dir=root) as folder,
        _socket_timeout(SECONDS_OF_SILENCE),
    ):
        staged = Path(folder)
        archive = getattr(dataset, "filename", None)
        if archive and (root / archive).is_file():
            shutil.copyfile(root / archive, staged / archive)
        for part in [{"split": "train"}, {"split": "test"}] if class_name == "SVHN" else [{}]:
            dataset(staged, download=True, **part)
        for file in files:
            if not (root / file).exists():
                (root / file).parent.mkdir(parents=True, exist_ok=True)
                os.replace(staged / file, root / file)


def import_torchvision() -> ModuleType:
    """``torchvision.datasets``; called only where data is downloaded or decoded.

    Raises:
        GraphcapsError: it isn't installed, or was built for another torch.
    """
    try:
        from torchvision import datasets
    except Exception as error:  # a build for another torch: ImportError, RuntimeError, AttributeError or OSError
        raise GraphcapsError(
            f"torchvision: expected one that fits torch {torch.__version__}, got {type(error).__name__}: {error}. "
            "Install both together (pip install --upgrade torch torchvision), or use --dataset digits, which needs none"
        ) from error
    return datasets


@contextmanager
def _socket_timeout(seconds: float) -> Iterator[None]:
    """torchvision sets none: a network that swallows packets would hold the program for minutes."""
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(seconds)
    try:
        yield
    finally:
        socket.setdefaulttimeout(before)


def fetch_members(name: str, url: str, members: Mapping[str, str], root: Path) -> None:
    """Download a zip archive and unpack some of its files.

    Args:
        name: of the data set, for the error.
        url: of the archive.
        members: path below ``root`` -> name in the archive.
        root: made if need be.

    Raises:
        GraphcapsError: no network, a server that refuses, a full disk, or an archive without one of the members;
            nothing was changed.
    """
    with _staging(name, members, root) as staged:
        _download(url, staged / "archive.zip")
        with zipfile.ZipFile(staged / "archive.zip") as archive:
            for file, member in members.items():
                (staged / file).parent.mkdir(parents=True, exist_ok=True)
                with archive.open(member) as source, (staged / file).open("wb") as target:
                    shutil.copyfileobj(source, target)


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
        shutil.copyfileobj(source, target)
        size = source.headers.get("Content-Length")
        if size is not None and int(size) != target.tell():
            raise OSError(f"{url}: {target.tell()} of {size} bytes came")
