"""A sheet to print: training curves, reconstructions, and what each dimension of a capsule means.

The last part is figure 4 of Sabour, Frosst & Hinton 2017.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from graphcaps.errors import expect
from graphcaps.trace import RoutingTrace
from graphcaps.viz import style
from graphcaps.viz.routing.timeline import caption

_WIDTH = 900  # pixels at 100 dpi
_LEFT, _RIGHT = 70, 875
_MOST = 10  # images shown


def sheet(trace: RoutingTrace) -> Figure:
    """Draw what the trace holds of: training curves, inputs with reconstructions, perturbed reconstructions.

    Returns:
        A figure without a window, 900 pixels wide at 100 dpi; its axes have the labels ``loss``, ``accuracy``,
        ``input n``, ``reconstruction n`` and ``perturbed n`` (n: index of the image).

    Raises:
        InputError: the trace holds none of them, or doesn't fit together.
    """
    trace.check()
    parts = _parts(trace)
    expect(bool(parts), "trace", "training curves or pictures to draw", "none", "Traces of training runs hold them")
    height = 70 + sum(part.height for part in parts)
    with style.applied():
        figure = style.blank(_WIDTH, height)
        source = [word for word in caption(trace, "iterations", 0) if not word.startswith("image")]
        style.Heading.on(figure).say("What the network learned", ", ".join(source))
        paper, top = _Paper(figure), 70
        for part in parts:
            part.draw(paper, top)
            top += part.height
    return figure


def is_drawable(trace: RoutingTrace) -> bool:
    """Whether the trace holds anything that the sheet shows."""
    return bool(_parts(trace))


def _parts(trace: RoutingTrace) -> list[_Curves | _Reconstructions | _Perturbed]:
    """The parts the trace has the numbers for."""
    parts: list[_Curves | _Reconstructions | _Perturbed] = []
    if (curves := _Curves(trace)).height:
        parts.append(curves)
    if trace.images is not None and trace.reconstructions is not None:
        parts.append(_Reconstructions(trace, trace.images, trace.reconstructions))
    if trace.perturbed is not None and trace.steps is not None and trace.perturbed.size:
        parts.append(_Perturbed(trace, trace.perturbed, trace.steps))
    return parts


class _Paper:
    """A figure on which places are given in pixels from the top left."""

    def __init__(self, figure: Figure):
        self.figure = figure
        self._width, self._height = figure.get_size_inches() * figure.dpi

    def axes(self, name: str, left: float, top: float, width: float, height: float) -> Axes:
        low = 1 - (top + height) / self._height
        box = (left / self._width, low, width / self._width, height / self._height)
        return self.figure.add_axes(box, label=name)

    def text(self, left: float, top: float, text: str, **looks: Any) -> None:
        looks = {"va": "top", "size": style.TEXT, **looks}
        self.figure.text(left / self._width, 1 - top / self._height, text, **looks)


class _Curves:
    """Loss and accuracy over epochs, of training and validation images."""

    _LOOKS: dict[str, dict[str, Any]] = {"train": {"color": style.MUTED, "ls": "--"}, "val": {"color": style.ACCENT}}
    _CALLED = {"train": "training images", "val": "validation images"}

    def __init__(self, trace: RoutingTrace):
        self._history = trace.history
        kinds = ("loss", "accuracy")
        self._shown = [kind for kind in kinds if any(self._history.get(f"{part}_{kind}") for part in self._LOOKS)]
        self.height = 250 if self._shown else 0

    def draw(self, paper: _Paper, top: float) -> None:
        room = (_RIGHT - _LEFT - 70) / 2
        for k, kind in enumerate(self._shown):
            axes = paper.axes(kind, _LEFT + k * (room + 70), top + 25, room, self.height - 90)
            for part, looks in self._LOOKS.items():
                values = self._history.get(f"{part}_{kind}", [])
                epochs = self._history.get("epoch") or range(1, len(values) + 1)
                points = list(zip(epochs, values, strict=False))
                if points:
                    dot: dict[str, Any] = {"marker": "o", "ms": 3.5} if len(points) <= 40 else {}
                    axes.plot(*zip(*points, strict=True), lw=1.8, label=self._CALLED[part], **dot, **looks)
            axes.set_title(kind)
            axes.set_xlabel("epoch")
            axes.locator_params(axis="x", integer=True)
            axes.legend(loc="best")


class _Reconstructions:
    """Input images, and under each what the decoder makes of its longest capsule."""

    height = 240

    def __init__(self, trace: RoutingTrace, images: np.ndarray, reconstructions: np.ndarray):
        self._trace, self._images, self._reconstructions = trace, images, reconstructions

    def draw(self, paper: _Paper, top: float) -> None:
        trace, chosen = self._trace, _one_per_class(self._trace)
        names = [style.cut(name, 10) for name in trace.class_names or map(str, range(trace.num_parents))]
        longest = trace.lengths[-1, min(trace.trained_iterations, trace.num_iterations) - 1].argmax(axis=-1)  # (N,)
        paper.text(25, top, "Images, and what the decoder makes of the longest capsule", weight="bold")
        rows = {"input": 82, "decoded": 162, "longest": 208} | ({"true": 30} if trace.labels is not None else {})
        for name, down in rows.items():
            paper.text(25, top + down, name, size=style.SMALL, color=style.MUTED, va="center")
        step = (_RIGHT - 90) / _MOST
        for k, n in enumerate(chosen):
            left, size = 90 + k * step, step - 6
            middle: dict[str, Any] = {"ha": "center", "va": "center", "size": style.SMALL}
            right = trace.labels is None or longest[n] == trace.labels[n]
            if trace.labels is not None:
                paper.text(left + size / 2, top + rows["true"], _name(names, trace.labels[n]), **middle)
            style.show_image(paper.axes(f"input {n}", left, top + 43, size, size), self._images[n])
            below = paper.axes(f"reconstruction {n}", left, top + 123, size, size)
            style.show_image(below, self._reconstructions[n])
            said = _name(names, longest[n]) + ("" if right else " (wrong)")
            paper.text(left + size / 2, top + rows["longest"], said, weight="normal" if right else "bold", **middle)


class _Perturbed:
    """For an image of each class: a row per dimension of its longest capsule, a column per amount added to it."""

    def __init__(self, trace: RoutingTrace, perturbed: np.ndarray, steps: np.ndarray):
        self._trace, self._perturbed, self._steps = trace, perturbed, steps
        self._chosen = _one_per_class(trace)
        self._columns = min(5, len(self._chosen))
        _, rows, columns, _, high, wide = perturbed.shape
        self._width = min((_RIGHT - 60) / 5 - 14, 1.6 * columns * wide)
        self._tall = self._width * rows * (high + 1) / (columns * (wide + 1))
        self._each = self._tall + 52
        self.height = round(45 + self._each * -(-len(self._chosen) // self._columns))

    def draw(self, paper: _Paper, top: float) -> None:
        trace = self._trace
        dimensions = self._perturbed.shape[1]
        low, high = (f"{step:+.2f}".replace("-", "−") for step in (self._steps[0], self._steps[-1]))
        said = (
            f"Each of the {dimensions} dimensions of the longest capsule (rows), changed by {low} to {high} (columns)"
        )
        paper.text(25, top, said, weight="bold")
        names = [style.cut(name, 14) for name in trace.class_names or map(str, range(trace.num_parents))]
        for k, n in enumerate(self._chosen):
            row, column = divmod(k, self._columns)
            place = (60 + column * (self._width + 14), top + 45 + row * self._each, self._width, self._tall)
            axes = paper.axes(f"perturbed {n}", *place)
            looks: dict[str, Any] = {
                "cmap": "gray",
                "vmin": 0,
                "vmax": 255,
                "aspect": "auto",
                "interpolation": "hanning",
            }
            axes.imshow(_mosaic(self._perturbed[n]), extent=(0, 1, 1, 0), **looks)
            axes.spines[:].set_visible(False)
            axes.tick_params(length=0)
            title = f"image {n}" if trace.labels is None else _name(names, trace.labels[n])
            axes.set_title(title, size=style.TEXT, loc="center")
            for tick, side in zip(axes.set_xticks([0, 1], [low, high]), ("left", "right"), strict=True):
                tick.label1.set(ha=side)
            marks = np.arange(0, dimensions, -(-dimensions // 16)) if column == 0 else np.arange(0)
            axes.set_yticks((marks + 0.5) / dimensions, [str(mark + 1) for mark in marks])


def _mosaic(pictures: np.ndarray) -> np.ndarray:
    """(D, S, C, H, W) as one image of D x S pictures with a light line between them."""
    channels = 3 if pictures.shape[2] == 3 else 1
    framed = np.pad(pictures[:, :, :channels], ((0, 0),) * 3 + ((0, 1), (0, 1)), constant_values=255)
    rows, columns, _, high, wide = framed.shape
    mosaic = framed.transpose(0, 3, 1, 4, 2).reshape(rows * high, columns * wide, channels)
    return mosaic if channels == 3 else mosaic[..., 0]


def _one_per_class(trace: RoutingTrace) -> list[int]:
    """Up to ten images: the first of each class, then the others in order."""
    if trace.labels is None:
        return list(range(trace.num_images))[:_MOST]
    firsts = [int(n) for n in np.unique(trace.labels, return_index=True)[1]]
    others = [n for n in range(trace.num_images) if n not in firsts]
    return (firsts + others)[:_MOST]


def _name(names: list[str], label: int) -> str:
    return names[label] if 0 <= label < len(names) else str(label)
