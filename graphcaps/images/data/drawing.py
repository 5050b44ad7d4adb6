"""Find the ink of a drawing: ink on paper or chalk on a board, under any light, with or without a frame and dust.

First, the sheet is found: on a table, or as the content of a window with a title bar. It is a flat area with four
corners that doesn't touch all sides of the image. Without one, the whole image is the sheet.

The ground, which is the sheet without the ink, is its grey closing (for dark ink) or opening (for light ink) with a
window of a third of its size. This removes strokes, which are narrower, and keeps shadows, which are wider. Ink is what
differs from the ground.
"""

from collections.abc import Iterator
from typing import Literal, NamedTuple

import numpy as np
from PIL import Image
from scipy import ndimage

MAX_SIDE = 512  # larger images are reduced to this many pixels on the longer side
MIN_CONTRAST = 0.1  # smallest difference of ink from the ground, in [0, 1]; the grain of paper differs less
DARKEST = 0.2  # added to levels before a division, so that noise in black areas stays small
MIN_PART = 0.025  # parts shorter than this share of the image, or 4 times this share of the longest part, are dust
FRAME_LINES = 0.06  # largest distance of a frame's lines from the sides of its box, as a share of the box's size
NEIGHBOURS = np.ones((3, 3), bool)
MIN_SHEET = 0.04  # smallest sheet, as a share of the image's area
MIN_STEP = 0.012  # smallest step of levels at a sheet's edge; a soft shadow rises more slowly
FOUR_CORNERS = 0.85  # a sheet's least share of its hull, and of the largest quadrilateral in the hull; an ellipse: 0.64
SOLID, BROAD = 0.62, 0.45  # a digit that covers more of its box than the first is narrower than the second


class Drawing(NamedTuple):
    """The ink of a drawing, (h', w') in [0, 1], whether it was dark, and why it may be something else, or ""."""

    ink: np.ndarray
    dark: bool
    doubt: str = ""


def cut_ink(levels: np.ndarray, invert: Literal["auto"] | bool = "auto") -> Drawing:
    """Cut the ink out of an image, float32 (h, w) in [0, 1]. ``"auto"`` assumes that ink covers less area than ground.

    The ink has at most ``MAX_SIDE`` pixels per side. If there is no ink, it is the difference from the ground, below
    ``MIN_CONTRAST`` everywhere.
    """
    levels = _reduced(levels)
    sheets = []
    for sheet in _sheets(levels):
        box = ndimage.find_objects(sheet.astype(np.int8))[0]
        alone = np.where(sheet[box], levels[box], np.median(levels[sheet]))  # outside, the levels are the ground's
        drawing = _cut(alone, sheet[box], invert)
        if drawing.ink.max() >= MIN_CONTRAST:
            sheets.append((sheet, drawing))
    inner = [pair for pair in sheets if not any(_is_within(other, pair[0]) for other, _ in sheets)]
    everywhere = np.ones(levels.shape, bool)
    found = inner or [(everywhere, _cut(levels, everywhere, invert))]
    (sheet, drawing), *others = sorted(found, key=lambda pair: -pair[1].ink.size)
    height, width = drawing.ink.shape
    if any(other.sum() > sheet.sum() / 4 and max(more.ink.shape) > max(height, width) / 3 for other, more in others):
        return drawing._replace(doubt="there are several sheets with drawings, and only one was read")
    is_broad = min(height, width) > BROAD * max(height, width) and drawing.ink.max() > 0.5
    if is_broad and (drawing.ink > 0.5).mean() > SOLID:
        return drawing._replace(doubt="the ink is an area and not strokes: it may be a sheet or a shadow")
    return drawing


def _cut(levels: np.ndarray, sheet: np.ndarray, invert: Literal["auto"] | bool) -> Drawing:
    """Cut the ink out of a sheet, the bool mask of a part of the image, whose other levels are those of the ground."""
    window = max(3, round(max(levels.shape) / 3))
    light, dark = (f(levels, size=window, mode="nearest") for f in (ndimage.grey_closing, ndimage.grey_opening))
    dark_ink = _ground_is_light(levels, window, light, dark) if invert == "auto" else invert
    ground = light if dark_ink else dark
    contrast = np.abs(levels - ground)
    # Divide by the ground: in a shadow, the difference between ink and ground is smaller, but their ratio is the same.
    ink = contrast / np.maximum(ground, 1 / 255) if dark_ink else contrast / (ground + DARKEST)
    parts = _parts(ink, contrast, sheet) if contrast.max() >= MIN_CONTRAST else None
    if parts is None:
        return Drawing(np.minimum(contrast, MIN_CONTRAST * 0.99), dark_ink)
    full = float(np.quantile(ink[parts], 0.6))
    edges = ndimage.binary_dilation(parts, NEIGHBOURS, iterations=2) & (ink > full / 5)
    rows, columns = (np.flatnonzero(edges.any(axis=axis)) for axis in (1, 0))
    cut = np.where(edges, np.minimum(ink / full, 1), np.float32(0))
    return Drawing(cut[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1], dark_ink)


def _sheets(levels: np.ndarray) -> Iterator[np.ndarray]:
    """Masks (h, w) of the flat areas with four corners, without their ink, that don't touch all sides of the image."""
    window = max(3, max(levels.shape) // 64)
    smooth = ndimage.grey_opening(ndimage.grey_closing(levels, size=window), size=window)  # without the lines of paper
    steps = ndimage.maximum_filter(smooth, 3) - ndimage.minimum_filter(smooth, 3)
    labels, _ = ndimage.label(steps < max(MIN_STEP, 4 * float(np.median(steps))))
    for number, box in enumerate(ndimage.find_objects(labels), start=1):
        sides = [along.stop - along.start for along in box]
        if np.prod(sides) < MIN_SHEET * levels.size or sides == [*levels.shape]:
            continue
        sheet = np.zeros(levels.shape, bool)
        sheet[box] = ndimage.binary_fill_holes(labels[box] == number)
        is_solid = (labels == number).sum() > sheet.sum() / 2  # unlike a drawn box
        if is_solid and sheet.sum() >= MIN_SHEET * levels.size and _has_four_corners(sheet):
            yield sheet


def _is_within(sheet: np.ndarray, other: np.ndarray) -> bool:
    """Whether a sheet is smaller than another, and lies in it."""
    return bool(sheet.sum() < other.sum() and (sheet & other).sum() > 0.9 * sheet.sum())


def _has_four_corners(area: np.ndarray) -> bool:
    """Whether an area fills its convex hull, and four corners span the hull."""
    edge = np.argwhere(area & ~ndimage.binary_erosion(area))
    angles = np.linspace(0, 2 * np.pi, 90, endpoint=False)
    hull = edge[(edge @ np.stack([np.cos(angles), np.sin(angles)])).argmax(axis=0)].astype(float)  # (90, 2)
    (y, x), (below, right) = hull.T, np.roll(hull, -1, axis=0).T
    size = abs(float((y * right - x * below).sum())) / 2
    gaps = np.linalg.norm(hull[:, None] - hull, axis=2)
    one, other = hull[np.array(np.unravel_index(gaps.argmax(), gaps.shape))]  # the ends of the longest diagonal
    along = (other - one) / max(gaps.max(), 1)
    across = (hull - one) @ np.array([-along[1], along[0]])
    quadrilateral = gaps.max() * (across.max() - across.min()) / 2
    return bool(min(area.sum(), quadrilateral) >= FOUR_CORNERS * size)


def _ground_is_light(levels: np.ndarray, window: int, light: np.ndarray, dark: np.ndarray) -> bool:
    """Whether ink is darker than its ground: true if the mean of three shares is above one half.

    The first is the share of light pixels in areas where light and dark meet. The second is the same share near the
    border but not on it, because a tightly cut drawing may be mostly ink. The third is the share of dark structures
    among all structures that the closing ``light`` and the opening ``dark`` remove.
    """
    dark_parts, light_parts = float((light - levels).sum()), float((levels - dark).sum())
    logs = np.log(levels + DARKEST)  # a shadow changes the logarithms of dark and light levels by the same amount
    most, least = (f(logs, size=window, mode="nearest") for f in (ndimage.maximum_filter, ndimage.minimum_filter))
    differ, near = most - least > (most - least).max() / 2, logs > (most + least) / 2
    if not differ.any():
        return bool(np.median(levels) > 0.5)
    y, x = (np.minimum(np.arange(side), np.arange(side)[::-1]) / side for side in levels.shape)
    depth = np.minimum(y[:, None], x)
    rim = differ & (depth >= 0.03) & (depth < 0.1)
    inner, outer = near[differ].mean(), near[rim if rim.any() else differ].mean()
    return bool(np.mean([inner, outer, dark_parts / max(dark_parts + light_parts, 1e-9)]) > 0.5)


def _reduced(levels: np.ndarray) -> np.ndarray:
    """Reduce the image to at most ``MAX_SIDE`` pixels per side, and smooth its grain."""
    scale = MAX_SIDE / max(levels.shape)
    if scale < 1:
        size = [max(1, round(side * scale)) for side in levels.shape[::-1]]
        levels = np.asarray(Image.fromarray(levels).resize(size, Image.Resampling.BOX))
    return ndimage.gaussian_filter(levels, min(1, 1 / scale))


def _parts(ink: np.ndarray, contrast: np.ndarray, sheet: np.ndarray) -> np.ndarray | None:
    """The pixels (h, w) bool of a drawing's parts, without frames and dust; None if there are no parts.

    A part is a connected area of ink; small gaps don't separate parts. If a part that doesn't touch the sheet's border
    is large, or the sheet is only a part of the image, parts that touch the border are left out. A part of the image
    into which a long part leads is no sheet.
    """
    mask = ink > _threshold(ink[contrast >= MIN_CONTRAST])
    bridged = ndimage.binary_dilation(mask, NEIGHBOURS, iterations=1 + max(ink.shape) // 128)
    labels, _ = ndimage.label(bridged, NEIGHBOURS)
    labels[~mask] = 0
    labels[ndimage.maximum(contrast, labels, np.arange(labels.max() + 1))[labels] < MIN_CONTRAST] = 0
    boxes = {n: box for n, box in enumerate(ndimage.find_objects(labels), start=1) if box}
    sides = {n: max(along.stop - along.start for along in box) for n, box in boxes.items()}
    parts = {n for n, side in sides.items() if side >= MIN_PART * max(ink.shape)}
    parts -= {n for n in parts if any(_frames(labels, n, boxes[n], boxes[m]) for m in parts if sides[m] > sides[n] / 8)}
    border = ~ndimage.binary_erosion(sheet)
    inside = parts - {*labels[border].tolist()}
    longest = max((sides[n] for n in inside), default=0)
    if not sheet.all() and any(sides[n] > longest / 4 for n in parts - inside):
        return None  # the edge of a shadow runs through the drawing
    if not sheet.all() or longest > max(ink.shape) / 5:
        parts = inside
    longest = max((sides[n] for n in parts), default=0)
    parts = {n for n in parts if sides[n] >= 4 * MIN_PART * longest}
    return np.isin(labels, list(parts)) if parts else None


def _threshold(values: np.ndarray) -> float:
    """Split the values into two classes by Otsu's method (1979), and return half of the mean of the upper class."""
    values = np.sort(values)
    below, total = np.arange(1, len(values)), np.cumsum(values, dtype=np.float64)
    lower, upper = total[:-1] / below, (total[-1] - total[:-1]) / (len(values) - below)
    between = below * (len(values) - below) * (upper - lower) ** 2
    return float(upper[between.argmax()] if len(values) > 1 else values[0]) / 2


def _frames(labels: np.ndarray, n: int, box: tuple[slice, ...], other: tuple[slice, ...]) -> bool:
    """Whether part n is a frame: its ink lies only along the sides of its box, and the box contains another part."""
    part = labels[box] == n
    y, x = (max(1, round(FRAME_LINES * side)) for side in part.shape)
    is_around = all(a.start < b.start and b.stop < a.stop for a, b in zip(box, other, strict=True))
    return is_around and not part[y:-y, x:-x].any()
