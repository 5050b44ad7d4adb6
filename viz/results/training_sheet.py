"""A sheet to print: training curves and reconstructions."""

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
_LOOKS: dict[str, dict[str, Any]] = {
    "train": {"color": style.MUTED, "ls": "--", "label": "training images"},
    "val": {"color": style.ACCENT, "label": "validation images"},
}


def sheet(trace: RoutingTrace) -> Figure:
    """Draw training curves, and inputs with their reconstructions, where the trace has them.

    Returns:
        A figure without a window, 900 pixels wide at 100 dpi. Its axes have the labels ``loss``, ``accuracy``,
        ``input n`` and ``reconstruction n``, where n is the index of the image.

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
    for n in range(min(trace.num_images, _MAX_IMAGES)):
        left, size = 90 + n * step, step - 6
        middle: dict[str, Any] = {"ha": "center", "va": "center"}
        right = trace.labels is None or longest[n] == trace.labels[n]
        if trace.labels is not None:
            style.write(figure, left + size / 2, top + rows["true"], _name(trace, trace.labels[n]), **middle)
        style.show_image(style.panel(figure, f"input {n}", left, top + 43, size, size), trace.images[n])
        below = style.panel(figure, f"reconstruction {n}", left, top + 123, size, size)
        style.show_image(below, trace.reconstructions[n])
        answer, weight = _name(trace, longest[n]), "normal" if right else "bold"
        answer += "" if right else "\nwrong"
        below_it = {**middle, "va": "top", "linespacing": 1.3}
        style.write(figure, left + size / 2, top + rows["longest"] - 9, answer, weight=weight, **below_it)


def _name(trace: RoutingTrace, label: int) -> str:
    """A class's name in at most ten characters, or its number if it has none."""
    return style.cut(trace.class_names[label], 10) if 0 <= label < len(trace.class_names) else str(label)
