"""From the files of a data set to its training and test images, each file checked before it is decoded.

IDX files are decoded here, from the bytes that were checked. SVHN's and CIFAR-10's are decoded by torchvision once
their checksums are right: CIFAR-10's are pickles, and a pickle runs what its author wrote.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch.nn.functional import interpolate

from ...errors import GraphcapsError, expect
from ..download import import_torchvision
from ..images import Images
from ..spec import DatasetSpec
from ..splits import stratified_split
from .verify import AGAIN, check_md5, locate, read_idx


def read_idx_set(spec: DatasetSpec, root: Path) -> tuple[Images, Images]:
    """MNIST and its kin: four IDX files, in the table's order images, labels, test images, test labels."""
    files = iter(spec.files.items())
    parts = []
    for count in (spec.train, spec.test):
        image_file, image_md5 = next(files)
        label_file, label_md5 = next(files)
        label_path = _located(root, label_file)
        labels = read_idx(label_path, (count,), label_md5)
        classes = len(spec.class_names)
        expect(labels.max() < classes, str(label_path), f"labels 0 to {classes - 1}", labels.max(), AGAIN)
        pixels = read_idx(_located(root, image_file), (count, *spec.image_shape[1:]), image_md5)
        parts.append(_images(pixels[:, None], labels))
    return parts[0], parts[1]


def read_svhn(spec: DatasetSpec, root: Path) -> tuple[Images, Images]:
    """Street View House Numbers, cropped digits: two MATLAB files."""
    _check_files(spec, root)
    parts = [import_torchvision().SVHN(root, split=split) for split in ("train", "test")]
    train, test = (_images(part.data, part.labels) for part in parts)
    return train, test


def read_cifar10(spec: DatasetSpec, root: Path) -> tuple[Images, Images]:
    """CIFAR-10: six batches and their class names, in pickles."""
    _check_files(spec, root)
    parts = [import_torchvision().CIFAR10(root, train=train) for train in (True, False)]
    train, test = (_images(part.data.transpose(0, 3, 1, 2), part.targets) for part in parts)
    return train, test


def read_digits(spec: DatasetSpec, root: Path) -> tuple[Images, Images]:
    """scikit-learn's 1797 handwritten digits, 8 x 8 with values 0 to 16, made 28 x 28; ``root`` isn't read."""
    try:
        from sklearn.datasets import load_digits
    except ImportError as error:
        raise GraphcapsError(f"digits: expected scikit-learn, got: {error}. pip install scikit-learn") from error
    digits = load_digits()
    small = torch.from_numpy(digits.images)[:, None] * (255 / 16)
    pixels = interpolate(small, size=spec.image_shape[1:], mode="bilinear").round().to(torch.uint8)
    labels = torch.from_numpy(digits.target).to(torch.int64)
    kept, taken = stratified_split(labels, spec.test)
    return Images(pixels[kept], labels[kept]), Images(pixels[taken], labels[taken])


def _check_files(spec: DatasetSpec, root: Path) -> None:
    for file, md5 in spec.files.items():
        assert md5 is not None, f"{file} is decoded by torchvision, which must not meet a file that nobody checked"
        check_md5(root / file, md5)


def _located(root: Path, file: str) -> Path:
    path = locate(root, file)
    if path is None:
        raise GraphcapsError(f"{file}: expected it in {root.absolute()}, got nothing there. {AGAIN}")
    return path


def _images(pixels: np.ndarray, labels: np.ndarray | list[int]) -> Images:
    return Images(torch.from_numpy(np.ascontiguousarray(pixels)), torch.as_tensor(np.asarray(labels, np.int64)))
