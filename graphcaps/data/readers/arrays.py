"""Images in arrays: files of MNIST's format, NumPy's .npz as Keras and MedMNIST have it, and Kaggle's CSV.

    images, labels of each part --checked, made uint8 and of one size--> ``Found``

Nothing of a file is run: arrays of Python objects, which are pickles, are refused.
"""

from __future__ import annotations

import logging
import math
import re
import zipfile
from pathlib import Path

import numpy as np
import torch

from ...errors import InputError, expect
from ..user_images import framed
from .found import PARTS, Found, common_size
from .verify import content

PART_OF = {"train": "train", "training": "train", "val": "val", "valid": "val", "validation": "val"}
PART_OF |= {"test": "test", "t10k": "test"}
IDX = re.compile(r"(.*?)(train|t10k|test|val)[-_.]images[-_.]idx3[-_.]ubyte(\.gz)?")
KEYS = ("x_{}", "y_{}"), ("{}_images", "{}_labels")
WHOLE = ("images", "labels"), ("x", "y")
AGAIN = "Fetch it again"

Arrays = dict[str, tuple[np.ndarray, np.ndarray]]
"""By part, images and labels as they were found."""

log = logging.getLogger(__name__)


def read(kind: str, path: Path, size: int | None = None) -> Found:
    """Read ``"idx"``, ``"npz"`` or ``"csv"``; a part alone, whatever it is called, is the training images.

    Raises:
        InputError: another format, images or labels that aren't, or no images.
    """
    found = {"idx": read_idx, "npz": read_npz, "csv": read_csv}[kind](path)
    if len(found) == 1:
        found = {"train": next(iter(found.values()))}
    return from_arrays(found, str(path), size)


def from_arrays(arrays: Arrays, name: str, size: int | None = None) -> Found:
    """Check arrays by part, and make their images uint8 and of one size; ``name`` stands in errors."""
    expect("train" in arrays, name, "training images", f"those of {', '.join(arrays) or 'nothing'} alone")
    pixels, labels = {}, {}
    for part in [part for part in PARTS if part in arrays]:
        images, of = arrays[part]
        pixels[part] = as_pixels(images, f"{name}: {part} images")
        labels[part] = as_labels(of, len(images), f"{name}: {part} labels")
    shapes = {images.shape[1:] for images in pixels.values()}
    expect(len(shapes) == 1, name, "images of one shape in all parts", " and ".join(map(str, sorted(shapes))))
    height, width, channels = shapes.pop()
    high, wide = common_size(np.array([[height, width]]), size)
    whole = np.concatenate(list(pixels.values()))  # (N, H, W, C)
    if (high, wide) != (height, width):
        whole = np.stack([framed(image, high, wide) for image in whole])
    parts = np.repeat(list(labels), [len(of) for of in labels.values()])
    of_all = np.concatenate(list(labels.values()))
    return Found(torch.from_numpy(np.ascontiguousarray(whole.transpose(0, 3, 1, 2))), of_all, parts)


def as_pixels(images: np.ndarray, name: str) -> np.ndarray:
    """Images (N, H, W), (N, H, W, C) or (N, C, H, W), C = 1 or 3, as uint8 (N, H, W, C)."""
    shape = images.shape
    if images.ndim == 4 and shape[3] not in (1, 3) and shape[1] in (1, 3):
        images = images.transpose(0, 2, 3, 1)
    elif images.ndim == 3:
        images = images[..., None]
    wanted = "(N, H, W), (N, H, W, C) or (N, C, H, W), 1 or 3 channels"
    expect(images.ndim == 4 and images.size > 0 and images.shape[3] in (1, 3), name, wanted, shape)
    if images.dtype == np.uint8:
        return images
    numbers, most = images.dtype.kind in "biuf", 1 if images.dtype.kind in "bf" else 255
    low, high = (images.min(), images.max()) if numbers else (0, 0)
    fits = numbers and low >= 0 and high <= most  # False for NaN
    then = "Divide them by the largest that there can be: images / 16" if numbers else ""
    got = f"{images.dtype} from {low:g} to {high:g}" if numbers else str(images.dtype)
    expect(bool(fits), name, "whole numbers from 0 to 255, or fractions from 0 to 1", got, then)
    return np.rint(images * (255 // most)).astype(np.uint8)


def as_labels(labels: np.ndarray, count: int, name: str) -> np.ndarray:
    """Labels (N,) or (N, 1), whole numbers or text, as (N,)."""
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    expect(labels.shape == (count,), name, f"({count},), one per image", labels.shape)
    expect(labels.dtype.kind in "iuU", name, "whole numbers or text", labels.dtype)
    return labels


def read_idx(path: Path) -> Arrays:
    """MNIST's format, plain or gzipped, in any folder below ``path``, under MNIST's names or Kaggle's."""
    expect(path.is_dir(), str(path), "the folder of the files", "a file", f"Try idx:{path.parent}")
    found: dict[str, tuple[str, Path]] = {}
    files = [file for file in path.rglob("*ubyte*") if file.is_file()]
    for file in sorted(files, key=lambda file: (len(file.parts), file)):
        match = IDX.fullmatch(file.name)
        if match is None:
            continue
        prefix, part = match[1], PART_OF[match[2]]
        others = {known for known, _ in found.values()} - {prefix}
        expect(not others, str(path), "images of one set", f"{file.name} and {', '.join(others)}...", "Separate them")
        found.setdefault(part, (prefix, file))
    then = "Is it the folder above? Another format: folder:, npz: or csv:"
    expect(bool(found), str(path), "files such as train-images-idx3-ubyte or its .gz", "none", then)
    arrays = {}
    for part, (_, file) in found.items():
        wanted = file.name.replace("images", "labels").replace("idx3", "idx1").removesuffix(".gz")
        labels = next((each for each in files if each.name.removesuffix(".gz") == wanted), None)
        if labels is None:
            raise InputError(f"{path}: expected {wanted} or its .gz beside {file.name}, got none")
        arrays[part] = _idx(file, 3), _idx(labels, 1)
    return arrays


def _idx(path: Path, dims: int) -> np.ndarray:
    data = content(path, AGAIN)
    head = 4 + 4 * dims
    right = len(data) >= head and data[:4] == bytes([0, 0, 8, dims])
    expect(right, str(path), f"bytes of {dims} dims in MNIST's format", f"{data[:4].hex()}...", AGAIN)
    shape = tuple(map(int, np.frombuffer(data, ">u4", dims, offset=4)))
    size = head + math.prod(shape)
    expect(len(data) == size, str(path), f"{size} bytes for {shape}", len(data), AGAIN)
    return np.frombuffer(data, np.uint8, offset=head).reshape(shape)


def read_npz(path: Path) -> Arrays:
    """x_train, y_train and the like (Keras), train_images, train_labels (MedMNIST), or images and labels."""
    try:
        with np.load(path, allow_pickle=False) as stored:
            expect(isinstance(stored, np.lib.npyio.NpzFile), str(path), "several arrays, .npz", "one array, .npy")
            names = {name.lower(): name for name in stored.files}
            pairs = {part: [(x.format(part), y.format(part)) for x, y in KEYS] for part in PARTS} | {"": list(WHOLE)}
            found = {part: pair for part, of in pairs.items() for pair in of if set(pair) <= names.keys()}
            wanted = "x_train and y_train, train_images and train_labels, or images and labels"
            expect(bool(found), str(path), wanted, ", ".join(stored.files))
            return {part or "train": (stored[names[x]], stored[names[y]]) for part, (x, y) in found.items()}
    except ValueError as error:
        if isinstance(error, InputError):
            raise
        then = "Arrays of objects are pickles, which can run code: save numbers, or text as a NumPy array of it"
        raise InputError(f"{path}: expected arrays of numbers or text, got: {error}. {then}") from error
    except (OSError, EOFError, zipfile.BadZipFile) as error:
        raise InputError(f"{path}: expected a file of numpy.savez, got: {error}. {AGAIN}") from error


def read_csv(path: Path) -> Arrays:
    """A row per image, its label and its pixels; one file, or a folder with train and test in their names.

    A file in a folder that has no labels, as competitions give their test images, is left out.
    """
    if not path.is_dir():
        arrays = _csv(path)
        expect(arrays is not None, str(path), "a column of labels", "pixels alone")
        return {"train": arrays} if arrays else {}
    found: Arrays = {}
    for file in sorted((*path.glob("*.csv"), *path.glob("*.csv.gz"))):
        part = next((PART_OF[word] for word in re.split(r"[^a-z0-9]+", file.name.lower()) if word in PART_OF), None)
        if part is None:
            continue
        expect(part not in found, str(path), f"one file of {part} images", f"also {file.name}", "Name one: csv:FILE")
        arrays = _csv(file)
        if arrays is None:
            log.warning("left out, because it has no labels: %s", file)
        else:
            found[part] = arrays
    expect(bool(found), str(path), "a file named train.csv, or the like, with labels", "none", "Name it: csv:FILE")
    return found


def _csv(path: Path) -> tuple[np.ndarray, np.ndarray] | None:
    """Images and labels of a file, None where it has no labels; the label's column comes first or is called so."""
    import pandas

    try:
        first = pandas.read_csv(path, header=None, nrows=1, dtype=str).iloc[0].fillna("").tolist()
        named = any(re.search("[a-z]", cell, re.IGNORECASE) for cell in first[1:])
        table = pandas.read_csv(path, header=0 if named else None)
    except (OSError, EOFError, ValueError, pandas.errors.ParserError) as error:
        raise InputError(f"{path}: expected rows of a label and pixels, got: {error}") from error
    column = next((k for k, cell in enumerate(first) if named and cell.lower() in ("label", "class", "target")), 0)
    if named and column == 0 and first[0].lower().startswith("pixel"):
        return None
    labels = table.iloc[:, column].to_numpy()
    values = table.drop(columns=table.columns[column]).to_numpy()
    labels = labels if labels.dtype.kind in "iu" else labels.astype(str)
    channels = next(
        (c for c in (1, 3) if values.shape[1] and math.isqrt(values.shape[1] // c) ** 2 * c == values.shape[1]), 0
    )
    wanted = "a label, and pixels of a square grey or RGB image"
    expect(channels > 0, str(path), wanted, f"{values.shape[1]} numbers beside the label in each row")
    side = math.isqrt(values.shape[1] // channels)
    return values.reshape(-1, side, side, channels), labels
