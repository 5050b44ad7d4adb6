"""Downloads through torchvision, which knows the mirrors and the checksums of what they send.

The files are made in a folder of their own, and moved into place when all of them are whole: a download that fails or
is interrupted leaves nothing that the next attempt would take for data, and two processes can download at once.
"""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Iterable, Iterator
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
