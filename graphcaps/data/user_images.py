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
from .drawing import FAINT, drawing
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

    With ``ink`` the image is a drawing: its ink is found as ``drawing`` says and becomes 1 on 0, whatever the light.
    Of several frames the one with the most ink counts.

    Args:
        path: any format Pillow reads, 8 or 16 bits, up to Pillow's limit of 89 million pixels.
        image_shape: (C, H, W), C = 1 for grey or 3 for RGB.
        invert: ``"auto"``, or whether to invert.
        ink: of grey images, the share of the frame that the drawing's longer side fills, centred: 20 / 28 for MNIST.
            Files of just H x W pixels stay where they are. Default: the first frame, as it is.

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
    if ink is not None:
        expect(channels == 1, "ink", "one channel", channels)
        with _reading(path) as image:
            found = [_drawn(levels, height, width, invert, ink) for levels in _levels(image)]
        seen, inverted = max(found, key=lambda each: (each[0].max() >= FAINT, each[0].sum()))
        return (seen * 255).round().astype(np.uint8)[None], inverted
    values = _open(path, "L" if channels == 1 else "RGB")  # (height, width, C)
    background = _background(values)  # (C,)
    inverted = bool(channels == 1 and background[0] > 127) if invert == "auto" else bool(invert)
    if inverted:
        values, background = 255 - values, 255 - background
    fit = _padded(_fit(values, height, width), height, width, background)
    return np.ascontiguousarray(fit.transpose(2, 0, 1)), inverted


def _drawn(
    levels: np.ndarray, height: int, width: int, invert: Literal["auto"] | bool, share: float
) -> tuple[np.ndarray, bool]:
    """Ink (height, width) in [0, 1] of a frame's levels (h, w), and whether it was dark."""
    if levels.shape == (height, width):
        ground = float(_background(levels[..., None])[0])
        inverted = ground > 0.5 if invert == "auto" else invert
        ink = 1 - levels if inverted else levels
        ground = 1 - ground if inverted else ground
        if ground > 0.02 or ink.max() < 0.5:  # not in the form of the data sets
            ink = _stretched(np.maximum(ink - ground, 0))
        return ink, inverted
    ink, inverted = drawing(levels, invert)
    ink = _stretched(_fit(ink[..., None], round(height * share), round(width * share))[..., 0])
    return _padded(ink[..., None], height, width, np.zeros(1, np.float32))[..., 0], inverted


def _stretched(ink: np.ndarray) -> np.ndarray:
    """Ink (h, w) whose strokes are full, also where they are thin; what is blank stays so."""
    most = ink.max()
    return np.minimum(ink / np.quantile(ink[ink > most / 4], 0.9), 1) if most >= FAINT else ink


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


def framed(values: np.ndarray, height: int, width: int, channels: int) -> np.ndarray:
    """Pixels (h, w, C) as large as they fit into (height, width, channels), padded with the colour of their border."""
    if values.shape[2] != channels:
        converted = np.asarray(_image(values).convert("L" if channels == 1 else "RGB"))
        values = converted.reshape(*values.shape[:2], channels)
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


def image_files(path: Path) -> list[Path]:
    """The images in a folder, within its folders too, by the endings of their names; of what is no folder, itself.

    Raises:
        InputError: a folder without images.
    """
    if not path.is_dir():
        return [path]
    found = sorted(file for file in path.rglob("*") if file.suffix.lower() in decodable() and file.is_file())
    expect(len(found) > 0, str(path), "a folder with images", "none, by the endings of their names")
    return found


def write_image(path: Path | str, pixels: Tensor) -> None:
    """Write an image (C, H, W) in [0, 1], C = 1 or 3, as PNG; ``read_image`` gives them back, to 1 / 255.

    Raises:
        GraphcapsError: it can't be written.
    """
    values = (pixels.clamp(0, 1) * 255).round().to(torch.uint8).permute(1, 2, 0).numpy()  # (H, W, C)
    with replacing(path) as temporary:
        _image(values).save(temporary, format="PNG")


def _background(values: np.ndarray) -> np.ndarray:
    """The colour (C,) of the border of pixels (h, w, C)."""
    border = np.concatenate([values[0], values[-1], values[:, 0], values[:, -1]])
    return np.median(border, axis=0).astype(values.dtype)


def _open(path: Path, mode: str) -> np.ndarray:
    """The file's pixels: uint8 (height, width, C)."""
    from PIL import ImageOps

    with _reading(path) as image:
        values = np.asarray(_eight_bits(ImageOps.exif_transpose(image)).convert(mode))
    return values.reshape(*values.shape[:2], -1)


def _levels(image: Image) -> Iterator[np.ndarray]:
    """Each frame of an opened file, upright, as float32 (h, w) in [0, 1]."""
    from PIL import ImageOps, ImageSequence

    for frame in ImageSequence.Iterator(image):
        upright = ImageOps.exif_transpose(frame)
        if upright.mode.startswith("I"):
            levels = np.asarray(upright).clip(0, 65535).astype(np.float32)
            bits = max(8, int(levels.max()).bit_length())
            yield levels / (2 ** (bits + bits % 2) - 1)
        elif _transparent(upright):
            yield _on_a_ground(np.asarray(upright.convert("RGBA")), np.asarray(upright.convert("RGB").convert("L")))
        else:
            yield np.asarray(_eight_bits(upright).convert("L")).astype(np.float32) / 255


def _on_a_ground(colour: np.ndarray, grey: np.ndarray) -> np.ndarray:
    """Laid on the grey that there is most of; where all has one grey, on black or white, whichever differs more."""
    share, levels = (values.astype(np.float32) / 255 for values in (colour[..., 3], grey))
    solid = levels[share > 0.5] if (share > 0.5).any() else np.ones(1, np.float32)
    low, ground, high = np.quantile(solid, (0.01, 0.5, 0.99))
    if high - low < 0.25:
        ground = float(ground < 0.5)
    return (share * levels + (1 - share) * ground).astype(np.float32)


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
    if _transparent(image):
        return Image.alpha_composite(Image.new("RGBA", image.size, "white"), image.convert("RGBA"))
    return image


def _transparent(image: Image) -> bool:
    return image.mode in ("LA", "PA", "RGBA") or "transparency" in image.info


def _image(values: np.ndarray) -> Image:
    """Pixels (h, w, C) as Pillow has them."""
    from PIL import Image

    return Image.fromarray(values.squeeze(-1) if values.shape[-1] == 1 else values)


def _fit(values: np.ndarray, height: int, width: int) -> np.ndarray:
    """Resize (h, w, C) to the largest size within (height, width) that keeps its proportions."""
    from PIL import Image

    scale = min(height / values.shape[0], width / values.shape[1])
    size = (max(1, round(values.shape[1] * scale)), max(1, round(values.shape[0] * scale)))
    resized = np.asarray(_image(values).resize(size, Image.Resampling.BILINEAR))
    return resized.reshape(*resized.shape[:2], -1)
