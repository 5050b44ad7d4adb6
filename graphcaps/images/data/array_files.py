"""Reading of images in arrays: MNIST's format, NumPy's .npz as used by Keras and MedMNIST, and CSV as used by Kaggle.

Reading a file never runs code: arrays of Python objects, which are pickles, are refused.
"""

from __future__ import annotations

import hashlib
import logging
import math
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ...errors import ROUNDING, expect, reading
from ...files import check_file, contents, replacing
from ...graph.labels import is_unknown
from .listing import PART_OF
from .tables import NUMBERS_OF_IMAGES, Table, label_of_pixels
from .user_images import common_size, fit_pixels

# The name of a file with images consists of an optional prefix, the part (such as "train"), and the format's ending.
PART_NAMES = PART_OF | {"t10k": "test"}
FILE_NAME = rf"((?:.*?[-_.])?)({'|'.join(PART_NAMES)})[-_.](?:.*[-_.])?"
ENDINGS = {"idx": r"images[-_.]idx3[-_.]ubyte(\.gz)?", "csv": r"csv(\.gz)?"}
WHOLE = re.compile(r"-?(0|[1-9]\d{0,17})")
UNITS = (1, 15, 16, 31, 63, 100, 127, 255, 1023, 4095, 65535)  # usual numbers of white
ALIKE = 0.9  # rows of pixels are alike if their difference is below this share of another's
LONG = 4  # longest proportion of an image

if TYPE_CHECKING:
    import pandas
    from numpy.typing import ArrayLike

Arrays = dict[str, tuple[np.ndarray, np.ndarray]]  # part -> images, labels

log = logging.getLogger(__name__)


def read_arrays(
    kind: str, path: Path, size: int | None, channels: int | None, label_column: str
) -> tuple[np.ndarray, np.ndarray, pandas.DataFrame]:
    """Read images of the kind ``"idx"``, ``"npz"`` or ``"csv"``, for ``split``. A single part is for training."""
    import pandas

    arrays = _read_npz(path) if kind == "npz" else _read_files(kind, path, label_column)
    if len(arrays) == 1:
        arrays = {"train": next(iter(arrays.values()))}
    pixels = {part: as_pixels(images, f"{path}: {part} images") for part, (images, _) in arrays.items()}
    labels = [as_labels(raw, len(pixels[part]), f"{path}: {part} labels") for part, (_, raw) in arrays.items()]
    for kind, shapes in (("images", {a.shape[1:] for a in pixels.values()}), ("labels", {a.shape[1:] for a in labels})):
        expect(len(shapes) == 1, str(path), f"{kind} of one shape in all parts", " and ".join(map(str, sorted(shapes))))
    whole = np.concatenate(list(pixels.values()))  # (N, H, W, C)
    hashes = [hashlib.sha256(image.tobytes()).hexdigest()[:16] for image in whole]
    shape = (*common_size(np.array([whole.shape[1:3]]), size), channels or whole.shape[3])
    if shape != whole.shape[1:]:
        whole = np.stack([fit_pixels(image, *shape) for image in whole])
    classes, parts = np.concatenate(labels), np.repeat(list(arrays), [*map(len, labels)])
    named = ["".join(map(str, row)) for row in classes.astype(int)] if classes.ndim == 2 else [*map(str, classes)]
    files = [*map(str, range(len(named)))]
    table = pandas.DataFrame({"file": files, "label": named, "split": parts, "sha256": hashes})
    return np.ascontiguousarray(whole.transpose(0, 3, 1, 2)), classes, table


def write_arrays(images: ArrayLike, labels: Any, root: Path) -> str:
    """Check images and labels, save them in ``root`` if they aren't there yet, and return the data set's name."""
    if hasattr(labels, "iloc"):  # a Series of pandas
        index = labels.index.tolist()
        certain = index == [*range(len(index))] or {*index} != {*range(len(index))}
        advice = "Pass labels.sort_index() if the index numbers images, or labels.to_numpy() if row k is of image k"
        expect(certain, "labels", "rows in an order that is certain", f"the index {index[:3]}", advice)
    with reading("images", "arrays of one shape"):
        arrays = np.asarray(images)
    pixels = as_pixels(arrays, "images")
    classes = as_labels(np.asarray(labels), len(pixels), "labels")
    digest = hashlib.sha256(f"{pixels.shape} {classes.tolist()}".encode() + pixels.tobytes()).hexdigest()[:8]
    path = root / f"arrays-{digest}.npz"
    if not path.exists():
        with replacing(path) as temporary:
            np.savez(temporary, images=pixels, labels=classes)
    return f"npz:{path}"


def as_pixels(images: np.ndarray, name: str) -> np.ndarray:
    """Convert images (N, H, W), (N, H, W, C) or (N, C, H, W), with C = 1 or 3, to uint8 (N, H, W, C)."""
    shape = images.shape
    if images.ndim == 4 and shape[3] not in (1, 3):
        images = images.transpose(0, 2, 3, 1)
    elif images.ndim == 3:
        images = images[..., None]
    fits = images.ndim == 4 and images.size > 0 and images.shape[3] in (1, 3)
    expect(fits, name, "(N, H, W), (N, H, W, C) or (N, C, H, W), 1 or 3 channels", shape)
    expect(images.dtype.kind in "biuf", name, "numbers", images.dtype)
    white, low, high = 1 if images.dtype.kind in "bf" else 255, float(images.min()), float(images.max())
    unit = next((n for n in UNITS if max(high, -low) <= n), 65535)
    spare = ROUNDING if images.dtype.kind == "f" else 0
    fits = bool(low >= -spare and white / 2 < high <= white + spare) or low == high == 0
    wanted, got = "integers from 0 to 255, or fractions from 0 to 1", f"{images.dtype} from {low:g} to {high:g}"
    expect(math.isfinite(low) and math.isfinite(high), name, wanted, got)
    advice = f"Divide them by the largest possible value: images / {unit}" if unit > 1 else "Use images.astype(float)"
    if low < 0:
        advice = f"If {-unit} is black: (images + {unit}) / {2 * unit}. If 0 is black: abs(images) / {unit}"
    elif 0 < high <= white / 2:
        got += ", which would be nearly black"
        advice += ", or by 255 if they are so dark" * (white == 255)
    expect(fits, name, wanted, got, advice)
    return images if images.dtype == np.uint8 else np.rint(np.clip(images, 0, white) * (255 // white)).astype(np.uint8)


def as_labels(labels: np.ndarray, count: int, name: str) -> np.ndarray:
    """Convert labels (N,) or (N, 1), integers or text, to (N,). Convert labels (N, J) of 0 and 1 to bool (N, J)."""
    if labels.ndim == 2 and labels.shape[1] > 1 and len(labels) == count and np.isin(labels, (0, 1)).all():
        return labels.astype(bool)
    wanted = f"({count},), one per image, or ({count}, J) of 0 and 1"
    got = f"{labels.shape}"
    if labels.ndim == 2 and labels.size and labels.dtype.kind in "iuf":
        got += f" from {labels.min()} to {labels.max()}"
    expect(labels.shape in ((count,), (count, 1)), name, wanted, got)
    if labels.dtype.kind == "O" and all(isinstance(label, str) for label in labels.flat):
        labels = labels.astype(str)
    if labels.dtype.kind == "f" and (labels == np.rint(labels)).all():
        labels = labels.astype(np.int64)
    unknown = sum(map(is_unknown, labels.flat)) if labels.dtype.kind in "Of" else 0
    expect(not unknown, name, "a label for each image", f"{unknown} of {count} without", "Leave out these images")
    advice = "Convert them: numpy.asarray(labels).astype(str)"
    expect(labels.dtype.kind in "iuU", name, "whole numbers or text", labels.dtype, advice)
    if labels.dtype.kind in "iu":
        # -1 marks images without a label; as uint8, it is 255.
        numbers = np.unique(labels)
        unknown = numbers[0] if numbers[0] < 0 else numbers[-1]
        hidden = bool(labels.dtype == np.uint8 and unknown == 255 and len(numbers) < 200)
        got = f"{int((labels == unknown).sum())} of {unknown}" + ", which is -1 as uint8" * hidden
        advice = f"Leave out the images without a label: labels != {unknown}. If it is a class, write labels as text"
        expect(bool(unknown >= 0) and not hidden, name, "numbers of classes", got, advice)
    return labels.reshape(-1)


def shape_of_rows(rows: np.ndarray, name: str) -> np.ndarray:
    """Turn rows (N, K) into images (N, side, side, 1 or 3): the shape in which rows of pixels are most alike."""
    count = rows.shape[1]
    channels = 1 if math.isqrt(count) ** 2 == count else 3
    side = math.isqrt(count // channels)
    wanted, got = "a label, and pixels of a square grey or RGB image", f"{count} numbers beside the label in each row"
    expect(0 < side**2 * channels == count, name, wanted, got, "A table of files has the columns file,label")
    some = rows[:: max(1, len(rows) // 500)].astype(np.float32)

    def unlike(width: int) -> float:
        return float(np.abs(some[:, width:] - some[:, :-width]).mean()) if width < count else math.inf

    fix = "Save them as arrays with their shape: npz:PATH, images (N, H, W, C)"
    if channels == 1:
        widths = [n for n in range(1, count + 1) if count % n == 0 and count / LONG <= n * n <= count * LONG]
        better = min(widths, key=unlike)
        got = f"rows of {better} numbers that fit better: {count // better} x {better} grey"
        got += f", or {side // 2} x {side // 2} with 4 channels" * (side % 2 == 0 and better in (2 * side, side // 2))
        fits = side < 8 or unlike(better) >= ALIKE * unlike(side)
        expect(fits, name, f"{side} x {side} grey pixels", got, fix)
        return rows.reshape(-1, side, side, 1)
    mixed, planar = unlike(3 * side), unlike(side)
    got = "numbers that may also be 3 planes of colour"
    clear = mixed == planar == 0 or min(mixed, planar) < ALIKE * max(mixed, planar)
    expect(clear, name, f"{side} x {side} pixels of 3 numbers", got, fix)
    if mixed <= planar:
        return rows.reshape(-1, side, side, 3)
    return rows.reshape(-1, 3, side, side).transpose(0, 2, 3, 1)


def _read_files(kind: str, path: Path, label_column: str) -> Arrays:
    """Read a file; or, in a folder, all files whose names contain a part. Files without labels are left out."""
    pattern, files = re.compile(FILE_NAME + ENDINGS[kind], re.IGNORECASE), {"train": {"": path}}
    if path.is_dir():
        files = {}
        # Of several copies, read the one nearest the top of the folder, and a plain file rather than its .gz.
        for file in sorted(path.rglob("*"), key=lambda file: (len(file.parts), file)):
            if (match := pattern.fullmatch(file.name)) and file.is_file():
                files.setdefault(PART_NAMES[match[2].lower()], {}).setdefault(match[1], file)
    arrays: Arrays = {}
    for part, (first, *others) in ((part, copies.values()) for part, copies in files.items()):
        several = f"also {', '.join(other.name for other in others)}"
        expect(not others, f"{first}", f"no other file of {part} images", several, "Use a folder for each data set")
        pair = _read_idx(first, path) if kind == "idx" else _read_csv(first, label_column)
        if pair is None:
            log.warning("left out, because it has no labels: %s", first)
            continue
        images, labels = pair
        if "emnist" in first.name.lower() and images.shape[1] == images.shape[2]:
            log.warning("read as EMNIST, whose images lie on their side, and turned upright: %s", first)
            images = images.swapaxes(1, 2)
        arrays[part] = images, labels
    wanted = "train-images-idx3-ubyte or its .gz" if kind == "idx" else "train.csv, with labels"
    expect(len(arrays) > 0, str(path), f"a file such as {wanted}", "none")
    return arrays


def _read_idx(path: Path, folder: Path) -> tuple[np.ndarray, np.ndarray]:
    """Read images and labels in MNIST's format. The file with the labels may be anywhere in the folder."""
    wanted = path.name.removesuffix(".gz").replace("images", "labels").replace("idx3", "idx1")
    inside = sorted((folder if folder.is_dir() else path.parent).rglob(f"{wanted}*"))
    labels = [file for file in inside if file.name.removesuffix(".gz") == wanted and file.is_file()]
    expect(len(labels) > 0, str(path), f"{wanted} or its .gz beside it", "none")
    return _read_bytes(path, 3), _read_bytes(labels[0], 1)


def _read_bytes(path: Path, dims: int) -> np.ndarray:
    """Read a file in MNIST's format: two zero bytes, a type (8: uint8), the number of dims, big-endian sizes, bytes."""
    with reading(path, "a whole file in MNIST's format", "Fetch it again"):
        data = contents(path)
        if data[:4] != bytes([0, 0, 8, dims]):
            raise ValueError(f"{data[:15]!r}...")
        return np.frombuffer(data, np.uint8, offset=4 + 4 * dims).reshape(np.frombuffer(data, ">u4", dims, 4))


def _read_csv(path: Path, label_column: str) -> tuple[np.ndarray, np.ndarray] | None:
    """Read a table whose rows have a label and pixels. Return None if there are no labels."""
    table = Table.open(path)
    column = label_of_pixels(table, label_column)
    if column is None:
        return None
    ids = [k for k, name in enumerate(table.names) if k != column and name in NUMBERS_OF_IMAGES]
    values = table.values([column, *ids])
    table.check(values[column] != "", column, "a label for each image")
    table.warn_of_unknown(values[column])
    labels = values[column].to_numpy(str)
    if all(WHOLE.fullmatch(label) for label in labels):
        labels = labels.astype(np.int64)
    return shape_of_rows(values.drop(columns=[column, *ids]).to_numpy(), str(path)), labels


def _read_npz(path: Path) -> Arrays:
    """Read arrays named x_train, y_train etc. (Keras) or train_images, train_labels etc. (MedMNIST).

    Arrays named images and labels, or x and y, are training images and their labels.
    """
    advice = "Save both in one file: numpy.savez(FILE, images=..., labels=...). "
    advice += "Arrays of objects are pickles, which can run code: save numbers, or text as an array of strings"
    with reading(path, "arrays by numpy.savez", advice):
        stored = np.load(check_file(path), allow_pickle=False)
        if isinstance(stored, np.ndarray):
            raise ValueError("a single array")
        with stored:
            arrays = {name.lower(): stored[name] for name in stored.files}
    keys = [("train", "images", "labels"), ("train", "x", "y")]
    for name, part in PART_OF.items():
        keys += [(part, f"x_{name}", f"y_{name}"), (part, f"{name}_images", f"{name}_labels")]
    found = [key for key in keys if {*key[1:]} <= arrays.keys()]
    pairs = {part: (arrays[x], arrays[y]) for part, x, y in found}
    wanted = "x_train and y_train, train_images and train_labels, or images and labels"
    expect(len(found) > 0, str(path), wanted, ", ".join(arrays))
    expect(len(pairs) == len(found), str(path), "one array of images for each part", ", ".join(x for _, x, _ in found))
    if unused := arrays.keys() - {name for key in found for name in key}:
        log.warning("%s: left out arrays without images or labels: %s", path, ", ".join(sorted(unused)))
    return pairs
