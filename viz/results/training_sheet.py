"""A sheet to print: training curves, reconstructions, and the effect of each dimension of a capsule.

The last part is figure 4 of Sabour, Frosst & Hinton 2017.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from graphcaps.errors import expect
from graphcaps.viz import style
from graphcaps.viz.routing.timeline import caption
from graphcaps.viz.routing_trace import RoutingTrace

_WIDTH = 900  # pixels at 100 dpi
_LEFT, _RIGHT = 70, 875
_MAX_IMAGES = 10
_MAX_DIMENSIONS, _MAX_STEPS = 8, 6  # rows and columns of an image's perturbed reconstructions at most
_GAP = 26  # pixels between images, where the next image's row numbers are written
_LOOKS: dict[str, dict[str, Any]] = {
    "train": {"color": style.MUTED, "ls": "--", "label": "training images"},
    "val": {"color": style.ACCENT, "label": "validation images"},
}


def sheet(trace: RoutingTrace) -> Figure:
    """Draw training curves, inputs with reconstructions, and perturbed reconstructions, where the trace has them.

    Returns:
        A figure without a window, 900 pixels wide at 100 dpi. Its axes have the labels ``loss``, ``accuracy``,
        ``input n``, ``reconstruction n`` and ``perturbed n``, where n is the index of the image.

    Raises:
        InputError: the trace has none of these, or doesn't fit together.
    """
    trace.check()
    parts = sections(trace)
    expect(bool(parts), "trace", "training curves or pictures to draw", "none", "Traces of training runs have them")
    with style.applied():
        figure, top = style.blank(_WIDTH, 70 + sum(parts.values())), 70
        source = [word for word in caption(trace, "iterations", 0) if not word.startswith("image")]
        style.Heading(figure).say("What the network learned", ", ".join(source))
        for part, height in parts.items():
            part(figure, top, trace)
            top += height
    return figure


def sections(trace: RoutingTrace) -> dict[Callable[[Figure, int, RoutingTrace], None], int]:
    """The functions that draw the parts of this trace's sheet, from top to bottom, and the height of each in pixels."""
    parts: dict[Callable[[Figure, int, RoutingTrace], None], int] = {}
    trained = trace.epochs[-1] > 0  # before training, a decoder draws noise
    if _curves_of(trace):
        parts[_draw_curves] = 250
    if trained and trace.images is not None and trace.reconstructions is not None:
        parts[_draw_reconstructions] = 240
    if trained and trace.perturbed is not None and trace.steps is not None and trace.perturbed.size > 0:
        parts[_draw_perturbed] = _mosaics(trace)[-1]
    return parts


def _curves_of(trace: RoutingTrace) -> list[str]:
    """The curves (loss, accuracy) for which the trace has training or validation numbers."""
    return [kind for kind in ("loss", "accuracy") if any(trace.history.get(f"{part}_{kind}") for part in _LOOKS)]


def _draw_curves(figure: Figure, top: int, trace: RoutingTrace) -> None:
    """Draw loss and accuracy of training and validation images over epochs."""
    room = (_RIGHT - _LEFT - 70) / 2
    for k, kind in enumerate(_curves_of(trace)):
        axes = style.panel(figure, kind, _LEFT + k * (room + 70), top + 25, room, 160)
        for part, looks in _LOOKS.items():
            values = trace.history.get(f"{part}_{kind}", [])
            epochs = trace.history.get("epoch") or range(1, len(values) + 1)
            points = list(zip(epochs, values, strict=False))
            if points:
                dot: dict[str, Any] = {"marker": "o", "ms": 3.5} if len(points) <= 40 else {}
                axes.plot(*zip(*points, strict=True), lw=1.8, **dot, **looks)
        axes.set_title(kind)
        axes.set_xlabel("epoch")
        drawn = np.concatenate([line.get_xydata() for line in axes.lines])
        axes.set_xlim(drawn[:, 0].min() - 0.3, drawn[:, 0].max() + 0.3)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
        if kind == "accuracy":  # the axis goes from a multiple of 0.1 to 1
            axes.set_ylim(min(0.9, np.floor(10 * drawn[:, 1].min()) / 10), 1.005)
        else:
            axes.set_ylim(0)
        axes.legend(loc="best")


def _draw_reconstructions(figure: Figure, top: int, trace: RoutingTrace) -> None:
    """Draw input images, and below each the decoder's picture of its longest capsule."""
    assert trace.images is not None and trace.reconstructions is not None
    longest = trace.lengths[-1, trace.answer_at].argmax(axis=-1)  # (N,)
    title = "Images, and what the decoder makes of the longest capsule"
    style.write(figure, 25, top, title, size=style.TEXT, weight="bold")
    rows = {"input": 82, "decoded": 162, "longest": 208} | ({"true": 30} if trace.labels is not None else {})
    for name, down in rows.items():
        style.write(figure, 25, top + down, name, color=style.MUTED, va="center")
    step = (_RIGHT - 90) / _MAX_IMAGES
    for k, n in enumerate(_one_per_class(trace)):
        left, size = 90 + k * step, step - 6
        middle: dict[str, Any] = {"ha": "center", "va": "center"}
        right = trace.labels is None or longest[n] == trace.labels[n]
        if trace.labels is not None:
            style.write(figure, left + size / 2, top + rows["true"], _name(trace, trace.labels[n], 10), **middle)
        style.show_image(style.panel(figure, f"input {n}", left, top + 43, size, size), trace.images[n])
        below = style.panel(figure, f"reconstruction {n}", left, top + 123, size, size)
        style.show_image(below, trace.reconstructions[n])
        answer, weight = _name(trace, longest[n], 10), "normal" if right else "bold"
        answer += "" if right else "\nwrong"
        below_it = {**middle, "va": "top", "linespacing": 1.3}
        style.write(figure, left + size / 2, top + rows["longest"] - 9, answer, weight=weight, **below_it)


def _mosaics(trace: RoutingTrace) -> tuple[int, float, float, int]:
    """The number of perturbed images in a row, width and height of each, and height of the whole part, in pixels."""
    assert trace.perturbed is not None
    shown = len(_one_per_class(trace))
    across = min(5, shown)
    dimensions, steps, _, high, wide = _varied(trace.perturbed[0])[1].shape
    width = (_RIGHT - 60 + _GAP) / 5 - _GAP
    tall = width * dimensions * (high + 1) / (steps * (wide + 1))
    return across, width, tall, round(45 + (tall + 52) * -(-shown // across))


def _varied(perturbed: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Up to 8 dimensions of (D, S, C, H, W) that change the picture most, ascending, and up to 6 steps of each."""
    spread = perturbed.std(axis=1).mean(axis=(1, 2, 3))  # (D,)
    dimensions = np.sort(np.argsort(-spread, kind="stable")[:_MAX_DIMENSIONS])
    steps = np.linspace(0, perturbed.shape[1] - 1, min(_MAX_STEPS, perturbed.shape[1])).round().astype(int)
    return dimensions, perturbed[dimensions][:, steps]


def _draw_perturbed(figure: Figure, top: int, trace: RoutingTrace) -> None:
    """Draw one image per class: a row per dimension of its longest capsule, a column per amount added."""
    assert trace.perturbed is not None and trace.steps is not None
    across, width, tall, _ = _mosaics(trace)
    every = trace.perturbed.shape[1]
    low, high = (f"{step:+.2f}".replace("-", "−") for step in (trace.steps[0], trace.steps[-1]))
    shown = f"All {every}" if every <= _MAX_DIMENSIONS else f"The {_MAX_DIMENSIONS} most visible of {every}"
    text = f"{shown} dimensions of the longest capsule (rows), changed by {low} to {high} (columns)"
    style.write(figure, 25, top, text, size=style.TEXT, weight="bold")
    for k, n in enumerate(_one_per_class(trace)):
        row, column = divmod(k, across)
        place = (60 + column * (width + _GAP), top + 45 + row * (tall + 52), width, tall)
        axes = style.panel(figure, f"perturbed {n}", *place)
        gray: dict[str, Any] = {"cmap": "gray", "vmin": 0, "vmax": 255, "interpolation": "hanning"}
        dimensions, pictures = _varied(trace.perturbed[n])
        axes.imshow(_mosaic(pictures), extent=(0, 1, 1, 0), aspect="auto", **gray)
        axes.spines[:].set_visible(False)
        axes.tick_params(length=0)
        title = f"image {n}" if trace.labels is None else _name(trace, trace.labels[n], 14)
        axes.set_title(title, size=style.TEXT, loc="center")
        for tick, side in zip(axes.set_xticks([0, 1], [low, high]), ("left", "right"), strict=True):
            tick.label1.set(ha=side)
        axes.set_yticks((np.arange(len(dimensions)) + 0.5) / len(dimensions), [str(d + 1) for d in dimensions])


def _mosaic(pictures: np.ndarray) -> np.ndarray:
    """(D, S, C, H, W) as one image of D x S pictures with light lines between them."""
    channels = 3 if pictures.shape[2] == 3 else 1
    framed = np.pad(pictures[:, :, :channels], ((0, 0),) * 3 + ((0, 1), (0, 1)), constant_values=255)
    rows, columns, _, high, wide = framed.shape
    mosaic = framed.transpose(0, 3, 1, 4, 2).reshape(rows * high, columns * wide, channels)
    return mosaic if channels == 3 else mosaic[..., 0]


def _one_per_class(trace: RoutingTrace) -> list[int]:
    """Up to ten images: the first of each class, then others in their order."""
    if trace.labels is None:
        return list(range(trace.num_images))[:_MAX_IMAGES]
    firsts = [int(n) for n in np.unique(trace.labels, return_index=True)[1]]
    others = [n for n in range(trace.num_images) if n not in firsts]
    return (firsts + others)[:_MAX_IMAGES]


def _name(trace: RoutingTrace, label: int, most: int) -> str:
    """A class's name in at most ``most`` characters, or its number if it has none."""
    return style.cut(trace.class_names[label], most) if 0 <= label < len(trace.class_names) else str(label)
