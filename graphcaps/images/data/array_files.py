"""Reading of images in arrays: MNIST's format, NumPy's .npz as used by Keras and MedMNIST, and CSV as used by Kaggle.

Reading a file never runs code: arrays of Python objects, which are pickles, are refused.
"""

from __future__ import annotations

import hashlib
import logging
import math
import re
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ...atomic import checked, contents, reading, replacing
from ...errors import expect
from .listing import HEADERS, PART_OF, read_csv
from .splits import PARTS
from .user_images import common_size, fit_pixels

# The name of a file with images consists of an optional prefix, the part (such as "train"), and the format's ending.
PART_NAMES = PART_OF | {"t10k": "test"}
FILE_NAME = rf"((?:.*?[-_.])?)({'|'.join(PART_NAMES)})[-_.](?:.*[-_.])?"
ENDINGS = {"idx": r"images[-_.]idx3[-_.]ubyte(\.gz)?", "csv": r"csv(\.gz)?"}
NUMBER, WHOLE = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?"), re.compile(r"-?(0|[1-9]\d{0,17})")
NPZ_KEYS = ("x_{}", "y_{}"), ("{}_images", "{}_labels")

if TYPE_CHECKING:
    import pandas
    from numpy.typing import ArrayLike

Arrays = dict[str, tuple[np.ndarray, np.ndarray]]  # part -> images, labels

log = logging.getLogger(__name__)


def read_arrays(
    kind: str, path: Path, size: int | None, channels: int | None
) -> tuple[np.ndarray, np.ndarray, pandas.DataFrame]:
    """Read images of the kind ``"idx"``, ``"npz"`` or ``"csv"``, for ``split``. A single part is for training."""
    import pandas

    arrays = _read_npz(path) if kind == "npz" else _read_files(kind, path)
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


def write_arrays(images: ArrayLike, labels: ArrayLike, root: Path) -> str:
    """Check images and labels, save them in ``root`` if they aren't there yet, and return the data set's name."""
    pixels = as_pixels(np.asarray(images), "images")
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
    white, low, high = 1 if images.dtype.kind in "bf" else 255, images.min(), images.max()
    advice = f"Divide them by the largest possible value: images / {255 if high > 16 else 16}"
    wanted, got = "integers from 0 to 255, or fractions from 0 to 1", f"{images.dtype} from {low:g} to {high:g}"
    expect(bool(low >= 0 and high <= white), name, wanted, got, advice)  # also false for NaN
    return images if images.dtype == np.uint8 else np.rint(images * (255 // white)).astype(np.uint8)


def as_labels(labels: np.ndarray, count: int, name: str) -> np.ndarray:
    """Convert labels (N,) or (N, 1), integers or text, to (N,). Convert labels (N, J) of 0 and 1 to bool (N, J)."""
    if labels.ndim == 2 and labels.shape[1] > 1 and len(labels) == count and np.isin(labels, (0, 1)).all():
        return labels.astype(bool)
    wanted = f"({count},), one per image, or ({count}, J) of 0 and 1"
    expect(labels.shape in ((count,), (count, 1)), name, wanted, labels.shape)
    expect(labels.dtype.kind in "iuU", name, "whole numbers or text", labels.dtype)
    return labels.reshape(-1)


def read_bytes(path: Path, magic: int, dims: int) -> np.ndarray:
    """Read an array of bytes from a file in MNIST's format, or its .gz: ``magic``, as many sizes as dims, values."""
    with reading(path, "a whole file in MNIST's format", "Fetch it again"):
        data = contents(path)
        start, *shape = np.frombuffer(data, ">u4", 1 + dims).tolist()
        if start != magic:
            raise ValueError(f"{data[:15]!r}...")
        return np.frombuffer(data, np.uint8, offset=4 * (1 + dims)).reshape(shape)


def _read_files(kind: str, path: Path) -> Arrays:
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
        if (pair := _read_idx(first, path) if kind == "idx" else _read_csv(first)) is not None:
            arrays[part] = pair
        else:
            log.warning("left out, because it has no labels: %s", first)
    wanted = "train-images-idx3-ubyte or its .gz" if kind == "idx" else "train.csv, with labels"
    expect(len(arrays) > 0, str(path), f"a file such as {wanted}", "none")
    return arrays


def _read_idx(path: Path, folder: Path) -> tuple[np.ndarray, np.ndarray]:
    """Read images and labels in MNIST's format. The file with the labels may be anywhere in the folder."""
    wanted = path.name.removesuffix(".gz").replace("images", "labels").replace("idx3", "idx1")
    inside = sorted((folder if folder.is_dir() else path.parent).rglob(f"{wanted}*"))
    labels = [file for file in inside if file.name.removesuffix(".gz") == wanted and file.is_file()]
    expect(len(labels) > 0, str(path), f"{wanted} or its .gz beside it", "none")
    # MNIST's files start with two zero bytes, a type (8: uint8) and the number of dims. Integers are big-endian.
    return read_bytes(path, 0x803, 3), read_bytes(labels[0], 0x801, 1)


def _read_csv(path: Path) -> tuple[np.ndarray, np.ndarray] | None:
    """Read a CSV whose rows have a label and pixels. Return None if there are no labels.

    The labels are in the column called as in ``HEADERS``, else in the first column. The first row is a header if it has
    no number beside the label, or the numbers of the columns.
    """
    first = [cell.strip().lower() for cell in read_csv(path, nrows=1).iloc[0]]
    named = next((k for k, cell in enumerate(first) if cell in HEADERS["label"]), None)
    column = named or 0
    others = [cell for k, cell in enumerate(first) if k != column]
    numbered = named is not None and others in ([str(k + start) for k in range(len(others))] for start in (0, 1))
    has_header = numbered or not any(NUMBER.fullmatch(cell) for cell in others)
    if has_header and named is None and (first[0].startswith("pixel") or first[0] in ("", "id", "index")):
        return None
    table = read_csv(path, skiprows=int(has_header), dtype={column: str})
    labels, values = table[column].str.strip().to_numpy(str), table.drop(columns=column).to_numpy()
    if all(WHOLE.fullmatch(label) for label in labels):
        labels = labels.astype(np.int64)
    count = values.shape[1]
    channels = 1 if math.isqrt(count) ** 2 == count else 3
    side = math.isqrt(count // channels)
    wanted, got = "a label, and pixels of a square grey or RGB image", f"{count} numbers beside the label in each row"
    expect(0 < side**2 * channels == count, str(path), wanted, got, "A CSV of files has the columns file,label")
    return values.reshape(-1, side, side, channels), labels


def _read_npz(path: Path) -> Arrays:
    """Read arrays named x_train, y_train etc. (Keras) or train_images, train_labels etc. (MedMNIST).

    Arrays named images and labels, x and y, or data and target (scikit-learn) are training images and their labels. All
    may also be .npy files in the folder ``path``, or beside the .npy file ``path``.
    """
    advice = "Arrays of objects are pickles, which can run code: save numbers, or text as an array of strings"
    folder = path.parent if path.suffix == ".npy" else path
    with reading(path, "arrays by numpy.savez", advice):
        if folder.is_dir():
            arrays = {
                file.stem.lower(): np.load(checked(file), allow_pickle=False) for file in sorted(folder.glob("*.npy"))
            }
        else:
            with np.load(checked(path), allow_pickle=False) as stored:
                arrays = {name.lower(): stored[name] for name in stored.files}
    keys = [("train", "images", "labels"), ("train", "x", "y"), ("train", "data", "target")]
    keys += [(part, x.format(part), y.format(part)) for part in PARTS for x, y in NPZ_KEYS]
    pairs = {part: (arrays[x], arrays[y]) for part, x, y in keys if {x, y} <= arrays.keys()}
    wanted = "x_train and y_train, train_images and train_labels, or images and labels"
    expect(bool(pairs), str(path), wanted, ", ".join(arrays))
    return pairs
