"""MNIST, Fashion-MNIST, KMNIST, SVHN and CIFAR-10, which torchvision downloads, checks and decodes."""

from __future__ import annotations

import contextlib
import logging
import socket
from pathlib import Path
from typing import Any

import numpy as np
import torch
from filelock import FileLock

from ..errors import GraphcapsError
from .images import Images

log = logging.getLogger(__name__)


def read_torchvision(name: str, root: Path, download: bool) -> tuple[Images, Images]:
    """Read the training and test images of ``torchvision.datasets.<name>``.

    If they aren't in ``root`` and ``download`` is true, they are downloaded.

    Raises:
        GraphcapsError: files are missing and can't be downloaded, files are damaged, or torchvision can't be imported.
    """
    try:
        from torchvision import datasets
    except Exception as error:  # if built for another torch: ImportError, RuntimeError, AttributeError or OSError
        raise GraphcapsError(
            f"torchvision: expected one that fits torch {torch.__version__}, got {type(error).__name__}: {error}. "
            "Install both together (pip install --upgrade torch torchvision), or use --dataset digits without it"
        ) from error
    # Never read the pickles that old versions of torchvision wrote next to the raw files: a pickle can run code.
    own: dict[str, Any] = {"_check_legacy_exist": lambda self: False}
    # MNIST's four files may also be in the folder itself.
    for folder in (root, root / "raw"):
        if any(folder.glob("train-images-idx3-ubyte*")):
            own["raw_folder"] = str(folder)
    dataset = type(name, (getattr(datasets, name),), own)
    parts: list[dict[str, Any]] = [{"train": True}, {"train": False}]
    if name == "SVHN":
        parts = [{"split": "train"}, {"split": "test"}]
    try:
        try:
            train, test = (_images(dataset(root, **part)) for part in parts)
        except RuntimeError:  # files are missing or damaged
            if not download:
                raise
            log.warning("%s isn't in %s: trying to download it", name, root.absolute())
            root.mkdir(parents=True, exist_ok=True)
            with FileLock(root / ".download.lock"), contextlib.ExitStack() as stack:
                # torchvision sets no timeout, so a firewall that drops packets would block it for minutes.
                stack.callback(socket.setdefaulttimeout, socket.getdefaulttimeout())
                socket.setdefaulttimeout(30)
                train, test = (_images(dataset(root, download=True, **part)) for part in parts)
    except Exception as error:  # torchvision checks little, so damaged files raise exceptions of any type
        reason = " ".join(str(error).split()) or type(error).__name__
        raise GraphcapsError(
            f"{name}: expected its files in {root.absolute()}, got: {reason}. Name the folder that contains them "
            "with --data DIR, or delete damaged ones to download them again. --dataset digits needs no download"
        ) from error
    return train, test


def _images(dataset: Any) -> Images:
    pixels = torch.as_tensor(dataset.data)
    if pixels.dim() == 3:
        pixels = pixels[:, None]
    elif pixels.shape[3] == 3:  # CIFAR-10 has channels last
        pixels = pixels.permute(0, 3, 1, 2)
    labels = dataset.labels if hasattr(dataset, "labels") else dataset.targets
    return Images(pixels.contiguous(), torch.as_tensor(np.asarray(labels, np.int64)))
