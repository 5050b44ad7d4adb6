"""Read your own image files and fit them to the images on which a network was trained."""

import contextlib
import functools
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import torch
from PIL import Image, ImageOps
from torch import Tensor

from ...errors import expect, reading
from ...files import check_file, replacing
from .drawing import MIN_CONTRAST, Drawing, cut_ink
from .images import to_float

Invert = Literal["auto"] | bool

WHITE_IS_ZERO = 262  # the TIFF tag that is 0 if the number 0 means white
STACKS = ("TIFF", "GIF", "WEBP", "PNG", "AVIF")  # formats with pages or frames; an MPO of a camera contains previews
NOT_DECODED = ("EPS", "WMF", "BUFR", "GRIB", "HDF5", "MPEG")
"""Formats that Pillow can open but doesn't decode itself. An EPS file is a program, which Ghostscript would run."""


class ImageFile(NamedTuple):
    """An image from a file: ``pixels`` float32 (C, H, W) in [0, 1], and whether dark and bright were swapped.

    ``doubt`` is a reason why a drawing may have been read wrongly, or "".
    """

    pixels: Tensor
    inverted: bool
    doubt: str = ""


def read_image(
    path: Path | str, image_shape: tuple[int, int, int], invert: Invert = "auto", ink: float | None = None
) -> ImageFile:
    """Read an image file as grey or RGB, fit it into ``image_shape`` undistorted, and pad it with its border's colour.

    Transparent pixels count as white. If ``ink`` is given, the image is a drawing: its ink becomes 1 on a ground of 0.

    Args:
        path: a file in any format that Pillow reads, with 8 or 16 bits, up to Pillow's limit of 178 million pixels.
        image_shape: (C, H, W), where C is 1 for grey or 3 for RGB.
        invert: whether to swap dark and bright. ``"auto"`` swaps them in grey images with a bright border, because the
            grey data sets are bright on black, while ink on paper is dark on bright.
        ink: for drawings, which must be grey, the share of the frame that the longer side fills: 20 / 28 for MNIST. The
            drawing is centred. But if the file has exactly H x W pixels, the drawing is not moved or resized.

    Raises:
        InputError: the file is missing, not an image, a stack of several, damaged or too large.
    """
    channels, height, width = image_shape
    expect(channels == 1 or (channels == 3 and ink is None), "image_shape", "1 channel, or 3 without ink", channels)
    expect(invert in ("auto", True, False), "invert", '"auto", True or False', repr(invert))
    with _opened(Path(path)) as image:
        frame = ImageOps.exif_transpose(image)
        if image.mode.startswith("I;16") and getattr(image, "tag_v2", {}).get(WHITE_IS_ZERO) == 0:
            frame = Image.fromarray(65535 - np.asarray(frame, np.uint16))  # Pillow does this only for 8 bits
        if ink is not None:
            drawing = _fit_drawing(_grey(frame), height, width, invert, ink)
            pixels = (drawing.ink * 255).round().astype(np.uint8)[..., None]
            inverted, doubt = drawing.dark, drawing.doubt
        else:
            values = _converted(_eight_bits(frame), channels)
            background, doubt = _background(values), ""
            inverted = bool(channels == 1 and background[0] > 127) if invert == "auto" else bool(invert)
            if inverted:
                values, background = 255 - values, 255 - background
            pixels = _pad(_resize(values, height, width), height, width, background)
    return ImageFile(to_float(torch.from_numpy(pixels).permute(2, 0, 1).contiguous()), inverted, doubt)


def fit_pixels(values: np.ndarray, height: int, width: int, channels: int) -> np.ndarray:
    """Fit pixels (h, w, C) into (height, width, channels) undistorted, and pad them with their border's colour."""
    if values.shape[2] != channels:
        values = _converted(_image(values), channels)
    return _pad(_resize(values, height, width), height, width, _background(values))


def common_size(sizes: np.ndarray, size: int | None) -> tuple[int, int]:
    """The common (H, W) of images with ``sizes`` (N, 2): a square if sizes differ, else with the same proportions.

    The longer side is ``size`` pixels; default: the median of the images' longer sides, clipped to 28 to 64.

    >>> common_size(np.array([[480, 640], [480, 640]]), None), common_size(np.array([[20, 40], [50, 30]]), None)
    ((48, 64), (45, 45))
    """
    longer = size or int(np.clip(np.median(sizes.max(axis=1)), 28, 64))
    height, width = sizes[0].tolist() if (sizes == sizes[0]).all() else (1, 1)
    most = max(height, width)
    return max(1, round(height * longer / most)), max(1, round(width * longer / most))


def size_and_colour(path: Path) -> tuple[int, int, bool]:
    """Height and width of an upright image file, and whether it may have colour, without decoding its pixels."""
    with _opened(path) as image:
        width, height = image.size
        if image.getexif().get(0x0112, 1) >= 5:  # the photo is stored on its side
            width, height = height, width
        return height, width, not (image.mode in ("1", "L", "LA", "F") or image.mode.startswith("I"))


@functools.cache
def decodable() -> dict[str, str]:
    """The format of each file name ending, such as .png, that Pillow can decode."""
    extensions = Image.registered_extensions()
    return {end: kind for end, kind in extensions.items() if kind in Image.OPEN and kind not in NOT_DECODED}


def write_image(path: Path | str, pixels: Tensor) -> None:
    """Write an image (C, H, W) in [0, 1], C = 1 or 3, as an 8-bit PNG. Values are rounded to multiples of 1 / 255.

    Raises:
        GraphcapsError: the file can't be written.
    """
    values = (pixels.clamp(0, 1) * 255).round().to(torch.uint8).permute(1, 2, 0).numpy()  # (H, W, C)
    with replacing(path) as temporary:
        _image(values).save(temporary, format="PNG")


def _fit_drawing(levels: np.ndarray, height: int, width: int, invert: Invert, share: float) -> Drawing:
    """Fit the ink of a frame (h, w) into (height, width)."""
    if levels.shape == (height, width):
        ground = float(_background(levels[..., None])[0])
        inverted = ground > 0.5 if invert == "auto" else invert
        ink, ground = (1 - levels, 1 - ground) if inverted else (levels, ground)
        as_in_data_sets = ground <= 0.02 and ink.max() >= 0.5
        return Drawing(ink if as_in_data_sets else _stretch(np.maximum(ink - ground, 0)), inverted)
    drawing = cut_ink(levels, invert)
    ink = _stretch(_resize(drawing.ink[..., None], round(height * share), round(width * share)))
    return drawing._replace(ink=_pad(ink, height, width, np.zeros(1, np.float32))[..., 0])


def _stretch(ink: np.ndarray) -> np.ndarray:
    """Scale ink so that thin strokes also reach 1. Blank images stay blank."""
    most = ink.max()
    return np.minimum(ink / np.quantile(ink[ink > most / 4], 0.9), 1) if most >= MIN_CONTRAST else ink


def _resize(values: np.ndarray, height: int, width: int) -> np.ndarray:
    """Resize (h, w, C) to the largest size within (height, width) that keeps its proportions."""
    scale = min(height / values.shape[0], width / values.shape[1])
    size = max(1, round(values.shape[1] * scale)), max(1, round(values.shape[0] * scale))
    return np.atleast_3d(np.asarray(_image(values).resize(size, Image.Resampling.BILINEAR)))


def _pad(values: np.ndarray, height: int, width: int, background: np.ndarray) -> np.ndarray:
    canvas = np.tile(background, (height, width, 1))
    top, left = (height - values.shape[0]) // 2, (width - values.shape[1]) // 2
    canvas[top : top + values.shape[0], left : left + values.shape[1]] = values
    return canvas


def _background(values: np.ndarray) -> np.ndarray:
    """The colour (C,) of the border of pixels (h, w, C)."""
    border = np.concatenate([values[0], values[-1], values[:, 0], values[:, -1]])
    return np.median(border, axis=0).astype(values.dtype)


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[Image.Image]:
    """Open an image file; turn Pillow's errors, here or in the ``with`` block, into an ``InputError``."""
    got = "a folder" if os.path.isdir(path) else "a pipe or a device" if os.path.exists(path) else "nothing there"
    expect(os.path.isfile(path), str(path), "an image file", got)  # false for a name that is too long, too
    formats = sorted(set(decodable().values()))
    with reading(path, "an image file that Pillow reads"), Image.open(check_file(path), formats=formats) as image:
        if image.format in STACKS and (count := getattr(image, "n_frames", 1)) > 1:
            raise ValueError(f"a stack of {count} images. Save those that you mean as files of their own")
        yield image


def _grey(image: Image.Image) -> np.ndarray:
    """The image as float32 (h, w) in [0, 1]."""
    if not image.has_transparency_data:
        return np.asarray(_eight_bits(image).convert("L")).astype(np.float32) / 255
    # Lay it on its median grey; if it has only one grey, on black if that is light, else on white.
    levels = np.asarray(image.convert("RGB").convert("L")).astype(np.float32) / 255
    share = np.asarray(image.convert("RGBA"))[..., 3].astype(np.float32) / 255
    solid = levels[share > 0.5] if (share > 0.5).any() else np.ones(1, np.float32)
    low, ground, high = np.quantile(solid, (0.01, 0.5, 0.99))
    if high - low < 0.25:
        ground = float(ground < 0.5)
    return (share * levels + (1 - share) * ground).astype(np.float32)


def _eight_bits(image: Image.Image) -> Image.Image:
    """Scale 16-bit greys to 8 bits, and lay transparent images on white."""
    if image.mode.startswith(("I", "F")):
        pixels = np.asarray(image)
        if image.mode == "F" or pixels.min() < 0 or pixels.max() > 65535:
            raise ValueError("fractions, or numbers outside 0 to 65,535. Save it with 8 or 16 bits")
        return Image.fromarray((pixels / 257).round().astype(np.uint8))
    if image.has_transparency_data:
        return Image.alpha_composite(Image.new("RGBA", image.size, "white"), image.convert("RGBA"))
    return image


def _converted(image: Image.Image, channels: int) -> np.ndarray:
    """The pixels (h, w, C) of a Pillow image as grey or RGB."""
    return np.atleast_3d(np.asarray(image.convert("L" if channels == 1 else "RGB")))


def _image(values: np.ndarray) -> Image.Image:
    """Convert pixels (h, w, C) to a Pillow image."""
    return Image.fromarray(values.squeeze(-1) if values.shape[-1] == 1 else values)
