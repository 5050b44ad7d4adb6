"""A user's own image file, made to look like the images a network was trained on."""

from __future__ import annotations

import contextlib
import functools
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..atomic import replacing
from ..errors import InputError, expect
from .images import to_float

if TYPE_CHECKING:
    from PIL.Image import Image

NOT_DECODED = ("EPS", "WMF", "BUFR", "GRIB", "HDF5", "MPEG")
"""Formats that Pillow opens and doesn't decode itself: for EPS it runs Ghostscript, on what is a program."""

_OPENING = threading.Lock()  # what is done with warnings holds for all threads


class ImageFile(NamedTuple):
    """``pixels`` float32 (C, H, W) in [0, 1]; ``inverted``: whether dark and bright were swapped."""

    pixels: Tensor
    inverted: bool


def read_image(
    path: Path | str,
    image_shape: tuple[int, int, int],
    invert: Literal["auto"] | bool = "auto",
    ink: float | None = None,
) -> ImageFile:
    """Read an image file as grey or RGB, fit it into ``image_shape`` undistorted, and pad it with its border's colour.

    The grey data sets are bright on black, ink on paper is the other way round: ``"auto"`` inverts a grey image whose
    border is bright. What is transparent counts as white; a photo is turned upright as its camera recorded it.

    Args:
        path: any format Pillow reads, 8 or 16 bits, up to Pillow's limit of 89 million pixels; of several frames, the
            first.
        image_shape: (C, H, W), C = 1 for grey or 3 for RGB.
        invert: ``"auto"``, or whether to invert.
        ink: share of the frame that the drawing's longer side fills, centred: 20 / 28 for MNIST. Default, and
            for files of just H x W pixels: as it is.

    Raises:
        InputError: missing, not an image, damaged or too large.
    """
    values, inverted = fitted(Path(path), image_shape, invert, ink)
    return ImageFile(to_float(torch.from_numpy(values)), inverted)


def fitted(
    path: Path, image_shape: tuple[int, int, int], invert: Literal["auto"] | bool, ink: float | None = None
) -> tuple[np.ndarray, bool]:
    """As ``read_image``, with pixels uint8 (C, H, W)."""
    channels, height, width = image_shape
    expect(channels in (1, 3), "image_shape", "1 or 3 channels", channels)
    expect(invert in ("auto", True, False), "invert", '"auto", True or False', repr(invert))
    values = _open(path, "L" if channels == 1 else "RGB")  # (height, width, C)
    background = _background(values)  # (C,)
    inverted = bool(channels == 1 and background[0] > 127) if invert == "auto" else bool(invert)
    if inverted:
        values, background = 255 - values, 255 - background
    if ink is not None and values.shape[:2] != (height, width):
        values = _fit(_drawing(values, background), round(height * ink), round(width * ink))
    else:
        values = _fit(values, height, width)
    return np.ascontiguousarray(_padded(values, height, width, background).transpose(2, 0, 1)), inverted


def common_size(sizes: np.ndarray, size: int | None) -> tuple[int, int]:
    """(H, W) for images of ``sizes`` (N, 2): their own proportions where they share one size, else a square.

    The longer side gets ``size`` pixels, by default the median of theirs, but 28 to 64.

    >>> common_size(np.array([[480, 640], [480, 640]]), None), common_size(np.array([[20, 40], [50, 30]]), None)
    ((48, 64), (45, 45))
    """
    longer = size or int(np.clip(np.median(sizes.max(axis=1)), 28, 64))
    height, width = sizes[0].tolist() if (sizes == sizes[0]).all() else (1, 1)
    most = max(height, width)
    return max(1, round(height * longer / most)), max(1, round(width * longer / most))


def framed(values: np.ndarray, height: int, width: int) -> np.ndarray:
    """Pixels (h, w, C) as large as they fit into (height, width, C), padded with the colour of their border."""
    return _padded(_fit(values, height, width), height, width, _background(values))


def _padded(values: np.ndarray, height: int, width: int, background: np.ndarray) -> np.ndarray:
    canvas = np.tile(background, (height, width, 1))
    top, left = (height - values.shape[0]) // 2, (width - values.shape[1]) // 2
    canvas[top : top + values.shape[0], left : left + values.shape[1]] = values
    return canvas


def size_and_colour(path: Path) -> tuple[int, int, bool]:
    """Height and width of an image file as it stands upright, and whether it may have colour; pixels aren't decoded."""
    with _reading(path) as image:
        width, height = image.size
        if image.getexif().get(0x0112, 1) >= 5:  # lies on its side
            width, height = height, width
        return height, width, not (image.mode in ("1", "L", "LA", "F") or image.mode.startswith("I"))


@functools.cache
def decodable() -> dict[str, str]:
    """Endings of names, such as .png, and the format that Pillow decodes of each."""
    from PIL import Image

    extensions = Image.registered_extensions()
    return {end: kind for end, kind in extensions.items() if kind in Image.OPEN and kind not in NOT_DECODED}


def write_image(path: Path | str, pixels: Tensor) -> None:
    """Write an image (C, H, W) in [0, 1], C = 1 or 3, as PNG; ``read_image`` gives them back, to 1 / 255.

    Raises:
        GraphcapsError: it can't be written.
    """
    from PIL import Image

    values = (pixels.clamp(0, 1) * 255).round().to(torch.uint8).permute(1, 2, 0).numpy()  # (H, W, C)
    with replacing(path) as temporary:
        Image.fromarray(values.squeeze(-1) if values.shape[-1] == 1 else values).save(temporary, format="PNG")


def _drawing(values: np.ndarray, background: np.ndarray) -> np.ndarray:
    """Cut (h, w, C) to the smallest box with all that differs clearly from the background; whole if nothing does."""
    differs = np.abs(values.astype(int) - background).max(axis=2)  # (h, w)
    rows, columns = (np.flatnonzero((differs > differs.max() / 4).any(axis=axis)) for axis in (1, 0))
    if not len(rows):
        return values
    return values[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]


def _background(values: np.ndarray) -> np.ndarray:
    """The colour (C,) of the border of pixels (h, w, C)."""
    border = np.concatenate([values[0], values[-1], values[:, 0], values[:, -1]])
    return np.median(border, axis=0).astype(np.uint8)


def _open(path: Path, mode: str) -> np.ndarray:
    """The file's pixels: uint8 (height, width, C)."""
    from PIL import ImageOps

    with _reading(path) as image:
        values = np.asarray(_eight_bits(ImageOps.exif_transpose(image)).convert(mode))
    return values.reshape(*values.shape[:2], -1)


@contextlib.contextmanager
def _reading(path: Path) -> Iterator[Image]:
    """The opened file; whatever is wrong with it, there or in the block, is an ``InputError``."""
    from PIL import Image

    expect(path.is_file(), str(path), "an image file", "a folder" if path.is_dir() else "nothing there")
    try:
        with _OPENING, warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            opened = Image.open(path, formats=sorted(set(decodable().values())))
        with opened:
            yield opened
    except (Image.DecompressionBombWarning, Image.DecompressionBombError) as error:
        limit = f"at most {Image.MAX_IMAGE_PIXELS} pixels"
        raise InputError(f"{path}: expected {limit}, got: {error} Make it smaller first") from error
    except (OSError, SyntaxError, ValueError, RuntimeError) as error:
        raise InputError(f"{path}: expected an image file that Pillow reads, got: {error}") from error


def _eight_bits(image: Image) -> Image:
    """16-bit greys scaled to 8, and what is transparent laid on white."""
    from PIL import Image

    if image.mode == "F":
        raise ValueError("numbers with fractions, whose white isn't known. Save it with 8 or 16 bits")
    if image.mode.startswith("I"):
        return Image.fromarray((np.asarray(image).clip(0, 65535) / 257).round().astype(np.uint8))
    if image.mode in ("LA", "PA", "RGBA") or "transparency" in image.info:
        return Image.alpha_composite(Image.new("RGBA", image.size, "white"), image.convert("RGBA"))
    return image


def _fit(values: np.ndarray, height: int, width: int) -> np.ndarray:
    """Resize (h, w, C) to the largest size within (height, width) that keeps its proportions."""
    from PIL import Image

    scale = min(height / values.shape[0], width / values.shape[1])
    size = (max(1, round(values.shape[1] * scale)), max(1, round(values.shape[0] * scale)))
    image = Image.fromarray(values.squeeze(-1) if values.shape[-1] == 1 else values)
    resized = np.asarray(image.resize(size, Image.Resampling.BILINEAR))
    return resized.reshape(*resized.shape[:2], -1)
