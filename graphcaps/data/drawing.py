"""A drawing, found on its ground: ink on a sheet or chalk on a board, under any light, in a frame or among dust.

The ground is what is left of an image when all that is narrower than a third of it is taken away: a grey closing takes
away what is dark, an opening what is light. It follows shadows, which are wider. Ink is what differs from its ground.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from scipy import ndimage

LONGEST = 512  # pixels of the longer side that a drawing is looked for in
FAINT = 0.1  # of the range [0, 1]: what differs less from its ground is the grain of paper
DARKEST = 0.2  # added to levels before they are divided, so that the noise of what is black stays small
DUST = 0.025  # of the image's longer side, and four times as much of the longest part's: smaller parts are dust
LINES = 0.06  # of the side of a frame that a drawing stands in, which its lines are within
EIGHT = np.ones((3, 3), bool)  # neighbours, at corners too


def drawing(levels: np.ndarray, invert: Literal["auto"] | bool = "auto") -> tuple[np.ndarray, bool]:
    """Cut the ink out of an image.

    Args:
        levels: float32 (h, w) in [0, 1].
        invert: whether ink is darker than its ground. ``"auto"``: what there is more of is the ground.

    Returns:
        (h', w') in [0, 1], ink alone, at most ``LONGEST`` pixels a side; and whether it was dark. Where there is
        no ink, what differs from the ground, less than ``FAINT`` everywhere.
    """
    levels = _reduced(levels)
    window = max(3, round(max(levels.shape) / 3))
    light, dark = (f(levels, size=window, mode="nearest") for f in (ndimage.grey_closing, ndimage.grey_opening))
    dark_ink = _ground_is_light(levels, window, light, dark) if invert == "auto" else invert
    ground = light if dark_ink else dark
    contrast = np.abs(levels - ground)
    # Light multiplies: ink in the shadow differs less from its ground, and is the same share of it.
    ink = contrast / np.maximum(ground, 1 / 255) if dark_ink else contrast / (ground + DARKEST)
    parts = _parts(ink, contrast) if contrast.max() >= FAINT else None
    if parts is None:
        return np.minimum(contrast, FAINT * 0.99), dark_ink
    full = float(np.quantile(ink[parts], 0.6))
    edges = ndimage.binary_dilation(parts, EIGHT, iterations=2) & (ink > full / 5)
    rows, columns = (np.flatnonzero(edges.any(axis=axis)) for axis in (1, 0))
    cut = np.where(edges, np.minimum(ink / full, 1), np.float32(0))
    return cut[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1], dark_ink


def _ground_is_light(levels: np.ndarray, window: int, light: np.ndarray, dark: np.ndarray) -> bool:
    """Whether ink is darker than its ground, by the mean of three shares.

    Of the pixels around which the lightest and the darkest differ, those that are nearer to the lightest; the same of
    those near the border, since a drawing that is cut tightly may be mostly ink, but not on it, where a frame may be;
    and of all that is narrower than the window, what is dark.

    Args:
        levels: (h, w).
        window: of its closing ``light`` and its opening ``dark``, (h, w) each.
    """
    dark_parts, light_parts = float((light - levels).sum()), float((levels - dark).sum())
    logs = np.log(levels + DARKEST)  # a shadow is as deep on dark as on light
    most, least = (f(logs, size=window, mode="nearest") for f in (ndimage.maximum_filter, ndimage.minimum_filter))
    differ, near = most - least > (most - least).max() / 2, logs > (most + least) / 2
    if not differ.any():
        return bool(np.median(levels) > 0.5)
    y, x = (np.minimum(np.arange(side), np.arange(side)[::-1]) / side for side in levels.shape)
    depth = np.minimum(y[:, None], x)
    rim = differ & (depth >= 0.03) & (depth < 0.1)
    shares = [
        near[differ].mean(),
        near[rim if rim.any() else differ].mean(),
        dark_parts / max(dark_parts + light_parts, 1e-9),
    ]
    return bool(np.mean(shares) > 0.5)


def _reduced(levels: np.ndarray) -> np.ndarray:
    """Smaller where it is large, and its grain smoothed."""
    from PIL import Image

    scale = LONGEST / max(levels.shape)
    if scale < 1:
        size = [max(1, round(side * scale)) for side in levels.shape[::-1]]
        levels = np.asarray(Image.fromarray(levels).resize(size, Image.Resampling.BOX))
    return ndimage.gaussian_filter(levels, min(1, 1 / scale))


def _parts(ink: np.ndarray, contrast: np.ndarray) -> np.ndarray | None:
    """The pixels (h, w) bool of a drawing's parts, without frames, dust and what comes in from outside.

    Ink is of one part where it is connected, but for small gaps as a pencil leaves.
    """
    mask = ink > _threshold(ink[contrast >= FAINT])
    labels, _ = ndimage.label(ndimage.binary_dilation(mask, EIGHT, iterations=1 + max(ink.shape) // 128), EIGHT)
    labels[~mask] = 0
    labels[ndimage.maximum(contrast, labels, np.arange(labels.max() + 1))[labels] < FAINT] = 0
    boxes = {n: box for n, box in enumerate(ndimage.find_objects(labels), start=1) if box}
    sides = {n: max(along.stop - along.start for along in box) for n, box in boxes.items()}
    least = DUST * max(ink.shape)
    found = {n for n, side in sides.items() if side >= least}
    found -= {n for n in found if any(_frames(labels, n, boxes[n], boxes[m]) for m in found if sides[m] > sides[n] / 8)}
    inside = {n for n in found if not _touches(boxes[n], ink.shape)}
    if any(sides[n] > max(ink.shape) / 5 for n in inside):
        found = inside
    longest = max((sides[n] for n in found), default=0)
    found = {n for n in found if sides[n] >= 4 * DUST * longest}
    return np.array([n in found for n in range(labels.max() + 1)])[labels] if found else None


def _threshold(values: np.ndarray) -> float:
    """Half of the mean of the upper of two classes that differ most (Otsu 1979)."""
    values = np.sort(values)
    below, total = np.arange(1, len(values)), np.cumsum(values, dtype=np.float64)
    lower, upper = total[:-1] / below, (total[-1] - total[:-1]) / (len(values) - below)
    between = below * (len(values) - below) * (upper - lower) ** 2
    return float(upper[between.argmax()] if len(values) > 1 else values[0]) / 2


def _frames(labels: np.ndarray, n: int, box: tuple[slice, ...], other: tuple[slice, ...]) -> bool:
    """Whether the part n has lines along the sides of its box alone, and another part within it."""
    around = all(a.start < b.start and b.stop < a.stop for a, b in zip(box, other, strict=True))
    part = labels[box] == n
    y, x = (max(1, round(LINES * side)) for side in part.shape)
    return around and not part[y:-y, x:-x].any()


def _touches(box: tuple[slice, ...], shape: tuple[int, ...]) -> bool:
    return any(along.start == 0 or along.stop == side for along, side in zip(box, shape, strict=True))
