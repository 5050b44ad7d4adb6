"""smallNORB: 50 toys of five kinds from 162 viewpoints under 6 lightings, by two cameras (LeCun, Huang & Bottou 2004).

Images are prepared as in Hinton, Sabour & Frosst 2018 (matrix capsules), section 5: they are reduced to 48 x 48;
training uses random windows of 32 x 32 (``--augment shift``), and testing uses the middle window. Differs: brightness
and contrast aren't varied, images aren't scaled to mean 0 and variance 1, and only the left camera's images are used.
"""

from pathlib import Path
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from ..errors import GraphcapsError
from .array_files import read_values
from .images import Images

PAGE = "https://cs.nyu.edu/~ylclab/data/norb-v1.0-small"
NAMES = {
    "train": "smallnorb/smallnorb-5x46789x9x18x6x2x96x96-training",
    "test": "smallnorb/smallnorb-5x01235x9x18x6x2x96x96-testing",
}
SIDE, CROP = 96, 32


def read_smallnorb(root: Path) -> tuple[Images, Images]:
    """Read the training images, sorted by toy so that ``last_toys`` can split them, and the test images."""
    (train, toys), (test, _) = read_part(root, "train"), read_part(root, "test")
    return train.take(toys.argsort(stable=True)), test.cut()


def last_toys(labels: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Hold out the last toys. A random split would put the training toys into validation, only turned by 20 degrees."""
    order = torch.arange(len(labels))
    return order[:-count], order[-count:]


def read_part(root: Path, part: Literal["train", "test"]) -> tuple[Images, Tensor]:
    """Read a part's images (N, 1, 48, 48), with a margin of 8, and each toy's number within its class, (N,) int64."""
    pairs = _read(root, f"{NAMES[part]}-dat.mat", 0x1E3D4C55, "u1", (2, SIDE, SIDE))
    labels = _read(root, f"{NAMES[part]}-cat.mat", 0x1E3D4C54, "<i4", ())
    info = _read(root, f"{NAMES[part]}-info.mat", 0x1E3D4C54, "<i4", (4,))  # toy, elevation, azimuth, lighting
    half, margin = SIDE // 2, (SIDE // 2 - CROP) // 2
    total = pairs[:, 0].reshape(-1, half, 2, half, 2).sum((2, 4), dtype=np.uint16)
    pixels = torch.from_numpy(((total + 2) // 4).astype(np.uint8))[:, None]  # means of 2 x 2, rounded half up
    return Images(pixels, torch.from_numpy(labels.astype(np.int64)), margin), torch.from_numpy(info[:, 0].astype(int))


def _read(root: Path, file: str, magic: int, dtype: str, shape: tuple[int, ...]) -> np.ndarray:
    """Read the values (N, *shape) of a file. They come after ``magic``, the number of dims and the dims."""
    path = next((path for path in (root / file, root / f"{file}.gz") if path.exists()), None)
    if path is None:
        raise GraphcapsError(f"smallnorb: expected {file} in {root.absolute()}, got nothing there. It is at {PAGE}")
    return read_values(path, "<i4", [magic, 1 + len(shape)], (0, *shape), dtype, stored_dims=3)
