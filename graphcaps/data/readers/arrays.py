"""Images in arrays: files of MNIST's format, NumPy's .npz as Keras and MedMNIST have it, and Kaggle's CSV.

Nothing of a file is run: arrays of Python objects, which are pickles, are refused.
"""

from __future__ import annotations

import logging
import math
import re
import zipfile
import zlib
from pathlib import Path

import numpy as np
import torch

from ...errors import InputError, expect
from ..splits import PART_OF, PARTS, Found
from ..user_images import common_size, framed
from .verify import content

IDX = re.compile(r"(.*?)(train|t10k|test|val)[-_.]images[-_.]idx3[-_.]ubyte(\.gz)?")
PART_KEYS = ("x_{}", "y_{}"), ("{}_images", "{}_labels")
AGAIN = "Fetch it again"

Arrays = dict[str, tuple[np.ndarray, np.ndarray]]  # by part, images and labels as they were found

log = logging.getLogger(__name__)


def read(kind: str, path: Path, size: int | None = None, channels: int | None = None) -> Found:
    """Read ``"idx"``, ``"npz"`` or ``"csv"``; a part alone, whatever it is called, is the training images."""
    found = {"idx": read_idx, "npz": read_npz, "csv": read_csv}[kind](path)
    if len(found) == 1:
        found = {"train": next(iter(found.values()))}
    pixels = {part: as_pixels(images, f"{path}: {part} images") for part, (images, _) in found.items()}
    labels = [as_labels(of, len(pixels[part]), f"{path}: {part} labels") for part, (_, of) in found.items()]
    shapes = {images.shape[1:] for images in pixels.values()}
    expect(len(shapes) == 1, str(path), "images of one shape in all parts", " and ".join(map(str, sorted(shapes))))
    expect(len({of.shape[1:] for of in labels}) == 1, str(path), "labels of one shape in all parts", "several")
    whole, old = np.concatenate(list(pixels.values())), shapes.pop()  # (N, H, W, C)
    new = (*common_size(np.array([old[:2]]), size), channels or old[2])
    if new != old:
        whole = np.stack([framed(image, *new) for image in whole])
    whole = np.ascontiguousarray(whole.transpose(0, 3, 1, 2))
    parts = np.repeat(np.array(list(found), object), [len(of) for of in labels])
    return Found(torch.from_numpy(whole), np.concatenate(labels), parts)


def as_pixels(images: np.ndarray, name: str) -> np.ndarray:
    """Images (N, H, W), (N, H, W, C) or (N, C, H, W), C = 1 or 3, as uint8 (N, H, W, C)."""
    shape = images.shape
    if images.ndim == 4 and shape[3] not in (1, 3):
        images = images.transpose(0, 2, 3, 1)
    elif images.ndim == 3:
        images = images[..., None]
    wanted = "(N, H, W), (N, H, W, C) or (N, C, H, W), 1 or 3 channels"
    expect(images.ndim == 4 and images.size > 0 and images.shape[3] in (1, 3), name, wanted, shape)
    expect(images.dtype.kind in "biuf", name, "numbers", images.dtype)
    most, low, high = 1 if images.dtype.kind in "bf" else 255, images.min(), images.max()
    then = "Divide them by the largest that there can be: images / 16"
    wanted, got = "whole numbers from 0 to 255, or fractions from 0 to 1", f"{images.dtype} from {low:g} to {high:g}"
    expect(bool(low >= 0 and high <= most), name, wanted, got, then)  # NaN isn't
    return images if images.dtype == np.uint8 else np.rint(images * (255 // most)).astype(np.uint8)


def as_labels(labels: np.ndarray, count: int, name: str) -> np.ndarray:
    """Labels (N,) or (N, 1), whole numbers or text, as (N,); (N, J) of 0 and 1 as bool."""
    if labels.ndim == 2 and labels.shape[1] > 1 and len(labels) == count and np.isin(labels, (0, 1)).all():
        return labels.astype(bool)
    wanted = f"({count},), one per image, or ({count}, J) of 0 and 1"
    expect(labels.shape in ((count,), (count, 1)), name, wanted, labels.shape)
    expect(labels.dtype.kind in "iuU", name, "whole numbers or text", labels.dtype)
    return labels.reshape(-1)


def read_idx(path: Path) -> Arrays:
    """MNIST's format, plain or gzipped, in any folder below ``path``, under MNIST's names or Kaggle's."""
    expect(path.is_dir(), str(path), "the folder of the files", "a file", f"Try idx:{path.parent}")
    arrays: Arrays = {}
    files = sorted((file for file in path.rglob("*ubyte*") if file.is_file()), key=lambda file: (len(file.parts), file))
    images = [(match, file) for file in files if (match := IDX.fullmatch(file.name))]
    sets = sorted({match[1] for match, _ in images})
    expect(len(sets) > 0, str(path), "files such as train-images-idx3-ubyte or its .gz", "none")
    expect(len(sets) == 1, str(path), "images of one set", f"those of {', '.join(sets)}", "Separate them")
    for match, file in images:
        part = PART_OF.get(match[2], "test")
        wanted = file.name.replace("images", "labels").replace("idx3", "idx1").removesuffix(".gz")
        labels = next((each for each in files if each.name.removesuffix(".gz") == wanted), None)
        if labels is None:
            raise InputError(f"{path}: expected {wanted} or its .gz beside {file.name}, got none")
        if part not in arrays:
            arrays[part] = _idx(file, 3), _idx(labels, 1)
    return arrays


def _idx(path: Path, dims: int) -> np.ndarray:
    data, head = content(path, AGAIN), 4 + 4 * dims
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
            arrays = {name.lower(): stored[name] for name in stored.files}
    except (OSError, EOFError, ValueError, TypeError, zipfile.BadZipFile, zlib.error) as error:
        then = "Arrays of objects are pickles, which can run code: save numbers, or text as an array of it"
        raise InputError(f"{path}: expected numbers or text by numpy.savez, got: {error}. {then}") from error
    pairs = [("train", "images", "labels"), ("train", "x", "y")]
    pairs += [(part, x.format(part), y.format(part)) for part in PARTS for x, y in PART_KEYS]
    found = {part: (arrays[x], arrays[y]) for part, x, y in pairs if {x, y} <= arrays.keys()}
    wanted = "x_train and y_train, train_images and train_labels, or images and labels"
    expect(bool(found), str(path), wanted, ", ".join(arrays))
    return found


def read_csv(path: Path) -> Arrays:
    """A row per image, its label and its pixels; one file, or a folder with train and test in their names.

    A file in a folder that has no labels, as competitions give their test images, is left out.
    """
    found: Arrays = {}
    for file in sorted((*path.glob("*.csv"), *path.glob("*.csv.gz"))) if path.is_dir() else [path]:
        words = ["train"] if file == path else re.split(r"[^a-z0-9]+", file.name.lower())
        part = next((PART_OF[word] for word in words if word in PART_OF), None)
        if part and (arrays := _csv(file)):
            expect(
                part not in found, str(path), f"one file of {part} images", f"also {file.name}", "Name one: csv:FILE"
            )
            found[part] = arrays
        else:
            log.warning("left out, because it has no labels or another name than train, val or test: %s", file)
    expect(bool(found), str(path), "labels, and in a folder a file named train.csv or the like", "none")
    return found


def _csv(path: Path) -> tuple[np.ndarray, np.ndarray] | None:
    """Images and labels of a file, None where it has no labels; the label's column comes first or is called so."""
    import pandas

    try:
        first = pandas.read_csv(path, header=None, nrows=1, dtype=str).iloc[0].fillna("").str.lower().tolist()
        named = any(re.search("[a-z]", cell) for cell in first[1:])
        table = pandas.read_csv(path, header=0 if named else None)
    except (OSError, EOFError, ValueError, zlib.error) as error:
        raise InputError(f"{path}: expected rows of a label and pixels, got: {error}") from error
    column = next((k for k, cell in enumerate(first) if cell in ("label", "class", "target")), 0)
    if column == 0 and first[0].startswith("pixel"):
        return None
    labels, values = table.iloc[:, column].to_numpy(), table.drop(columns=table.columns[column]).to_numpy()
    count = values.shape[1]
    channels = next((c for c in (1, 3) if count and math.isqrt(count // c) ** 2 * c == count), 0)
    wanted, got = "a label, and pixels of a square grey or RGB image", f"{count} numbers beside the label in each row"
    expect(channels > 0, str(path), wanted, got, "A CSV of files has the columns file,classes")
    side = math.isqrt(count // channels)
    return values.reshape(-1, side, side, channels), labels if labels.dtype.kind in "iu" else labels.astype(str)
