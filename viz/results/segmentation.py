"""Two overlapping objects taken apart: their reconstructions in two colours over the image.

This is figure 5 of Sabour, Frosst & Hinton 2017. Below each image, two rows are added: which object each pixel belongs
to by the couplings, and the ink that no capsule explains.
"""

from functools import partial

import numpy as np
from matplotlib.figure import Figure

from graphcaps.viz import style

COLORS = np.array([[1.0, 0.55, 0.0], [0.1, 0.55, 1.0]])
"""RGB of the lower and the higher class. Colour-blind readers can tell them apart; their sum is nearly white."""

_SIDE, _STEP = 84, 90  # pixels at 100 dpi
_LEFT, _BETWEEN, _TOP, _RIGHT = 120, 26, 150, 20
_ROWS = ("image", "couplings", "capsules", "left over")
_DIM = 0.3  # brightness of the image under the reconstructions


def segmentation(
    images: np.ndarray,
    reconstructions: np.ndarray,
    labels: np.ndarray,
    predicted: np.ndarray,
    class_names: tuple[str, ...] = (),
    owners: np.ndarray | None = None,
) -> Figure:
    """Draw images of two objects. Below each are owners by the couplings, reconstructions, and the ink left over.

    Right answers are at the left, wrong ones next to them.

    Args:
        images: (N, C, H, W) uint8, N >= 1.
        reconstructions: (N, 2, C, H, W) uint8, each from one capsule alone.
        labels: (N, 2) true classes, ascending.
        predicted: (N, 2) classes of the capsules, ascending, in the order of the reconstructions.
        class_names: J names, or none for numbers.
        owners: (N, 2, H, W) uint8, 255 times the share of each class of the answer in a pixel, by the couplings of the
            children there. None if children see no parts; the row of owners is then left out.

    Returns:
        A figure without a window; its axes have the labels ``image n``, ``couplings n``, ``capsules n`` and
        ``left over n``.
    """
    number = len(images)
    names = [name for name in _ROWS if name != "couplings" or owners is not None]
    hit = (labels == predicted).all(axis=1)
    order = np.argsort(~hit, kind="stable")
    split = _BETWEEN if 0 < hit.sum() < number else 0
    width, height = max(_LEFT + number * _STEP + split + _RIGHT, 640), _TOP + len(names) * _STEP + 8
    with style.applied():
        figure = style.blank(width, height)
        line = "the capsule of the lower class in orange, of the higher in blue"
        style.Heading(figure).say("Which pixels belong to which", line)
        write = partial(style.write, figure, va="center")
        tops = {name: _TOP + row * _STEP for row, name in enumerate(names)}
        sides = {"shown": 105, "answer": 127, **{name: top + _SIDE / 2 for name, top in tops.items()}}
        for name, top in sides.items():
            write(0.03 * width, top, name, color=style.MUTED)
        for place, n in enumerate(order):
            left = _LEFT + place * _STEP + (0 if hit[n] else split)
            if place == 0 or (place == hit.sum() and split):
                write(left, 82, "right" if hit[n] else "wrong", weight="bold")
            for side, classes in (("shown", labels[n]), ("answer", predicted[n])):
                weight = "normal" if hit[n] or side == "shown" else "bold"
                write(left + _SIDE / 2, sides[side], _class_names(classes, class_names), ha="center", weight=weight)
            pictures = _pictures(images[n], reconstructions[n], None if owners is None else owners[n])
            for name, top in tops.items():
                axes = style.panel(figure, f"{name} {n}", left, top, _SIDE, _SIDE)
                axes.imshow(pictures[name], vmin=0, vmax=1, cmap="gray")
                style.bare(axes)
    return figure


def _class_names(classes: np.ndarray, class_names: tuple[str, ...]) -> str:
    return " + ".join(style.cut(class_names[k], 5) if class_names else str(k) for k in classes)


def _pictures(image: np.ndarray, reconstructions: np.ndarray, owners: np.ndarray | None) -> dict[str, np.ndarray]:
    """Each row's picture, (H, W) or (H, W, 3) in [0, 1]. Left over is |image - overlay of reconstructions|."""
    gray = (image / 255).mean(axis=0)
    layers = (reconstructions / 255).mean(axis=1)  # (2, H, W)
    tinted = np.tensordot(layers, COLORS, axes=(0, 0))  # (H, W, 3)
    pictures = {
        "image": style.displayed(image) / 255,
        "capsules": np.clip(np.maximum(tinted, _DIM * gray[..., None]), 0, 1),
        "left over": abs(gray - np.minimum(layers.sum(axis=0), 1)),
    }
    if owners is not None:
        pictures["couplings"] = np.clip(gray[..., None] * np.tensordot(owners / 255, COLORS, axes=(0, 0)), 0, 1)
    return pictures
