"""smallNORB: 50 toys of five kinds from 162 viewpoints under 6 lightings, by two cameras; the files and the splits.

LeCun, Huang & Bottou 2004; the files' page, which describes the format, is ``PAGE``. The names end in .mat, but they
are no MATLAB files: a magic number (byte or int32), the number of dims, three dims or more, all little-endian int32,
then the values.

Prepared as in Hinton, Sabour & Frosst 2018 (matrix capsules), section 5: 48 x 48, of which training sees random windows
of 32 x 32 (``--augment shift``) and testing the middle one. Differs: no random brightness and contrast, and no scaling
of each image to mean 0 and variance 1: networks here get pixels in [0, 1]. Of the pair the left camera's image is kept,
because what draws and reads pictures here knows grey and RGB; the paper doesn't say.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from ...errors import GraphcapsError, expect
from ..images import Images
from ..spec import DatasetSpec
from .verify import content, locate

PAGE = "https://cs.nyu.edu/~ylclab/data/norb-v1.0-small"
CLASS_NAMES = ("animal", "human", "airplane", "truck", "car")
Part = Literal["train", "test"]
PARTS: dict[Part, str] = {
    "train": "smallnorb-5x46789x9x18x6x2x96x96-training",
    "test": "smallnorb-5x01235x9x18x6x2x96x96-testing",
}
FILES = tuple(f"smallnorb/{part}-{kind}.mat" for part in PARTS.values() for kind in ("dat", "cat", "info"))
MAGIC = {np.dtype("u1"): 0x1E3D4C55, np.dtype("<i4"): 0x1E3D4C54}
SIDE = 96
CROP = 32
HIGHEST = {"instance": 9, "elevation": 8, "azimuth": 34, "lighting": 5}
AGAIN = f"Fetch it again from {PAGE}"


def read_smallnorb(spec: DatasetSpec, root: Path) -> tuple[Images, Images]:
    """The training images toy by toy, so that the last ones are of toys that the others don't show, and the test ones.

    A split by class alone would put the toys of training into validation, turned by 20 degrees.
    """
    (train, toys), (test, _) = (read_part(root, part) for part in PARTS)
    return train.take(toys.argsort(stable=True)), test.cut()


def read_part(root: Path, part: Part) -> tuple[Images, Tensor]:
    """Read one part's three files, each plain or with .gz behind its name.

    Returns:
        images (N, 1, 48, 48), of which a margin of 8; which toy of its class each shows, (N,) int64.

    Raises:
        GraphcapsError: a file is missing.
        InputError: a file that isn't what it should be.
    """
    paths: dict[str, Path] = {}
    for kind in ("dat", "cat", "info"):
        file = f"smallnorb/{PARTS[part]}-{kind}.mat"
        path = locate(root, file)
        if path is None:
            raise GraphcapsError(f"smallnorb: expected {file} in {root.absolute()}, got nothing there. It is at {PAGE}")
        paths[kind] = path
    pairs = read_matrix(paths["dat"], np.dtype("u1"), (2, SIDE, SIDE))
    labels = read_matrix(paths["cat"], np.dtype("<i4"), ())
    info = read_matrix(paths["info"], np.dtype("<i4"), (4,))
    for kind, found in (("cat", labels), ("info", info)):
        expect(len(found) == len(pairs), str(paths[kind]), f"{len(pairs)} rows, one per image", len(found), AGAIN)
    _check_range(f"{paths['cat']}: class", labels, len(CLASS_NAMES) - 1)
    for (name, highest), column in zip(HIGHEST.items(), info.T, strict=True):
        _check_range(f"{paths['info']}: {name}", column, highest)
    pixels = torch.from_numpy(halved(pairs[:, 0]))[:, None]
    margin = (SIDE // 2 - CROP) // 2
    return Images(pixels, torch.from_numpy(labels.astype(np.int64)), margin), torch.from_numpy(info[:, 0].astype(int))


def read_matrix(path: Path, dtype: np.dtype, shape: tuple[int, ...]) -> np.ndarray:
    """Read the values (N, *shape) of a file, N as its header has it; read-only.

    Raises:
        InputError: unreadable, a web page, truncated, too long, or of another type or shape.
    """
    name, found = str(path), content(path, AGAIN)
    # at least three dims are stored, whatever the number of those that count
    dims_end = 8 + 4 * max(3, 1 + len(shape))
    expect(len(found) >= dims_end, name, f"a header of {dims_end} bytes", f"{len(found)} bytes", AGAIN)
    magic, rank, *dims = (int(number) for number in np.frombuffer(found[:dims_end], "<i4"))
    kind = "bytes" if dtype.itemsize == 1 else "int32"
    expect(magic == MAGIC[dtype], name, f"to start with 0x{MAGIC[dtype]:08X} ({kind})", f"0x{magic:08X}", AGAIN)
    fits = rank == 1 + len(shape) and tuple(dims[1:rank]) == shape and dims[0] > 0
    sizes = " x ".join(str(dim) for dim in dims[: max(rank, 0)])
    expect(fits, name, " x ".join(["N", *map(str, shape)]), sizes or f"{rank} dims", AGAIN)
    size = dims_end + dims[0] * int(np.prod(shape)) * dtype.itemsize
    expect(len(found) == size, name, f"{size} bytes", len(found), AGAIN)
    return np.frombuffer(found, dtype, offset=dims_end).reshape(-1, *shape)


def halved(images: np.ndarray) -> np.ndarray:
    """Half the size, each pixel the mean of 2 x 2, rounded half up: uint8 (N, H, W) -> (N, H / 2, W / 2).

    >>> halved(np.array([[[0, 1, 8, 8], [2, 3, 8, 255]]], np.uint8))
    array([[[ 2, 70]]], dtype=uint8)
    """
    total = np.full((len(images), images.shape[1] // 2, images.shape[2] // 2), 2, np.uint16)
    for down in (0, 1):
        for right in (0, 1):
            total += images[:, down::2, right::2]
    return (total // 4).astype(np.uint8)


def _check_range(name: str, values: np.ndarray, highest: int) -> None:
    low, high = values.min(), values.max()
    expect(low >= 0 and high <= highest, name, f"0 to {highest}", f"{low} to {high}", AGAIN)
