"""A graph whose nodes choose among classes: each node in the colour of the class that its routing supports.

The colour grows from white where a node's couplings are equal to full where it is the most decided of all iterations; a
key says which couplings these are. They say where a node's vote goes, not what the vote is worth.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.patches import Rectangle
from matplotlib.transforms import Bbox

from graphcaps.errors import expect
from graphcaps.routing_trace import RoutingTrace
from graphcaps.viz import style
from graphcaps.viz.routing.entropy import choice_in_words
from graphcaps.viz.routing.layout import places
from graphcaps.viz.routing.timeline import Timeline, true_parent

Box = tuple[float, float, float, float]

_RADIUS = 0.34  # of a node, in bond lengths
_LARGEST = 54  # pixels of a bond at most
_LEAST = 0.01  # coupling above undecided that full colour stands for at least: less is noise
_ROW = 34  # pixels of a class among the lengths
_STRIP = 13  # and in the key
_LINE = 13  # of the key's title
_TONES = 9  # of the key: a GIF has few colours
_CAPTION = 30  # pixels of the two lines above a graph in a column


def has_bonds(trace: RoutingTrace) -> bool:
    """Whether the children are the nodes of a graph, each with an edge to every parent."""
    order = np.sort(trace.src.astype(np.int64) * trace.num_parents + trace.dst)
    return trace.bonds is not None and np.array_equal(order, np.arange(trace.num_children * trace.num_parents))


class MoleculePicture:
    """A graph with bonds in grey, nodes in the colours of their classes, and the lengths of the class capsules.

    Args:
        trace: what routing did, with bonds.
        over: iterations (of the last epoch) or epochs (each after the trained iterations).
        image: which item of the trace.
        medium: what it is made for.

    Attributes:
        figure: the matplotlib figure.
        timeline: the steps it moves through.
        nodes: PathCollection, one circle for each node.
        letters: the nodes' names, as texts; none where the trace has none, or where they would be too small.
        bars: Rectangles as long as the class capsules.
        full: the coupling that full colour stands for.
        caption: two lines that name the graph in a paper's column; without words on a screen, whose heading names it.
        moving: the artists that ``show`` changes.

    Raises:
        InputError: the trace doesn't fit together, has no bonds, or doesn't hold this item.
    """

    def __init__(
        self, trace: RoutingTrace, over: str = "iterations", image: int = 0, *, medium: style.Medium = style.SCREEN
    ):
        self._trace, self.timeline = trace, Timeline.of(trace, over, image)
        wanted = "bonds among children that have an edge to each parent"
        expect(has_bonds(trace), "trace", wanted, "none", "trace.with_bonds(bonds) adds them")
        bonds = trace.bonds
        assert bonds is not None
        self._classes = trace.num_parents
        self._in_edge_order = np.lexsort((trace.dst, trace.src))
        self.full = max(float(self.timeline.c.max()), 1 / self._classes + _LEAST)
        self._names = style.short(trace.parent_names)
        self._colors = np.array([style.color(k) for k in range(self._classes)])
        self._graph, self._truth = f"graph {trace.about.get('graph', image)}", ""
        if (label := true_parent(trace, image)) is not None:
            right = trace.answer(image) == label
            self._truth = f"true class: {self._names[label]}, answered {'right' if right else 'wrong'}"
        source = [str(trace.about[name]) for name in ("dataset", "model") if name in trace.about]
        self._line = ", ".join(part for part in (*source, self._graph, self._truth) if part)
        height, box, classes, key = _places_in(medium, self._classes)
        with style.applied(medium):
            self.figure = style.blank(medium.width, height)
            self._heading = style.Heading.on(self.figure, medium)
            place: dict[str, Any] = {"va": "top", "size": medium.small, "visible": not medium.heading}
            self.caption = self.figure.text(14 / medium.width, 1 - 6 / height, "", **place)
            left, low, wide, tall = box
            axes = style.panel(self.figure, "graph", left, height - low - tall, wide, tall)
            self._draw_graph(axes, box, bonds, places(trace.num_children, bonds))
            self._write_letters(trace.tag_names, trace.node_tags)
            self._draw_classes(self._panel("length of the class capsule", *classes, medium), medium)
            title = "coupling of a node's vote\nto a class, not importance"
            self._draw_key(self._panel(title, *key, medium), medium)
        words = [*self._values, *self._heading.artists, self.caption]
        self.moving = [self.nodes, *self.letters, *self.bars, *words]
        self.show(self.timeline.end)

    def _panel(self, title: str, left: float, top: float, wide: float, tall: float, medium: style.Medium) -> Axes:
        """Axes under a title, with their left and the title's top in pixels."""
        style.write(self.figure, left, top, title, size=medium.small, color=style.MUTED)
        words = 22 + _LINE * title.count("\n")
        return style.panel(self.figure, title, left, top + words, wide, tall - words)

    def _draw_graph(self, axes: Axes, box: Box, bonds: np.ndarray, at: np.ndarray) -> None:
        extent = at.max(axis=0) - at.min(axis=0) + 2 * _RADIUS + 0.1
        self._bond = min(_LARGEST, box[2] / extent[0], box[3] / extent[1])  # pixels
        middle = (at.max(axis=0) + at.min(axis=0)) / 2
        half = np.array(box[2:]) / self._bond / 2
        axes.set_xlim(middle[0] - half[0], middle[0] + half[0])
        axes.set_ylim(middle[1] - half[1], middle[1] + half[1])
        style.bare(axes)
        axes.patch.set_visible(False)
        width = 0.06 * self._bond
        axes.add_collection(LineCollection(at[bonds], colors=style.MUTED, linewidths=width, zorder=1), autolim=False)
        size = (2 * _RADIUS * self._bond * 0.72) ** 2  # points squared
        looks: dict[str, Any] = {"edgecolors": style.MUTED, "linewidths": 0.5 * width, "zorder": 2}
        self.nodes = axes.scatter(at[:, 0], at[:, 1], s=size, facecolors="white", **looks)
        self._at, self._graph_axes = at, axes

    def _write_letters(self, names: tuple[str, ...], tags: np.ndarray | None) -> None:
        size = 0.42 * self._bond * 0.72
        self.letters = []
        if names and tags is not None and size >= 4:
            place: dict[str, Any] = {"ha": "center", "va": "center_baseline", "size": size, "zorder": 3}
            axes = self._graph_axes
            self.letters = [axes.text(x, y, names[tag], **place) for (x, y), tag in zip(self._at, tags, strict=True)]

    def _draw_classes(self, axes: Axes, medium: style.Medium) -> None:
        """A row for each class: its name, and under it its length."""
        most = max(1.0, float(self.timeline.lengths.max()))
        axes.set(xlim=(0, 1.25 * most), ylim=(self._classes, 0))
        style.bare(axes)
        self.bars, self._values = [], []
        for k, name in enumerate(self._names):
            axes.text(0, k + 0.26, name, va="center", size=medium.small)
            bar = Rectangle((0, k + 0.5), 0.2, 0.32, color=self._colors[k], lw=0)
            axes.add_patch(Rectangle((0, k + 0.5), most, 0.32, color=style.SHADE, lw=0))
            axes.add_patch(bar)
            self.bars.append(bar)
            self._values.append(axes.text(1.03 * most, k + 0.66, "", va="center_baseline", size=medium.small))

    def _draw_key(self, axes: Axes, medium: style.Medium) -> None:
        """A strip for each class, from undecided to the most decided."""
        low, high = 1 / self._classes, self.full
        strength = np.linspace(0, 1, _TONES)[None, :, None]
        strips = 1 - strength * (1 - self._colors[:, None])  # (C, tones, 3)
        axes.imshow(strips, extent=(low, high, self._classes, 0), aspect="auto")
        for k in range(1, self._classes):
            axes.axhline(k, color="white", lw=1.5)
        digits = max(2, math.ceil(-math.log10(high - low)) + 1)
        axes.set_xticks([low, high], [f"{low:.{digits}f}\nundecided", f"{high:.{digits}f}\nmost decided"])
        for text, side in zip(axes.get_xticklabels(), ("left", "right"), strict=True):
            text.set(ha=side, size=medium.small)
        axes.tick_params(length=0)
        axes.set_yticks([])
        axes.spines[:].set(visible=True, color=style.FAINT)
        axes.set_position(self._above(axes.get_position(), 26))

    def _above(self, box: Bbox, pixels: float) -> Box:
        """The box without its lowest pixels."""
        part = pixels / (self.figure.get_figheight() * 100)
        return box.x0, box.y0 + part, box.width, box.height - part

    def show(self, position: float) -> None:
        """Draw the couplings and lengths at ``position``, in steps from 0, linear between iterations."""
        c, lengths = self.timeline.at(position)
        self._heading.say(choice_in_words(self._trace, c), self._line, self.timeline.title(position))
        c = c[self._in_edge_order].reshape(-1, self._classes)  # (I, J)
        chosen = c.argmax(axis=1)
        undecided = 1 / self._classes
        strength = np.clip((c.max(axis=1) - undecided) / (self.full - undecided), 0, 1)
        colors = 1 - strength[:, None] * (1 - self._colors[chosen])  # (N, 3)
        self.nodes.set_facecolor(colors)
        for text, color in zip(self.letters, colors, strict=False):  # there may be no letters
            text.set_color("white" if color @ (0.299, 0.587, 0.114) < 0.45 else style.INK)
        for k, (bar, value) in enumerate(zip(self.bars, self._values, strict=True)):
            bar.set_width(lengths[k])
            value.set(text=f"{lengths[k]:.2f}", fontweight="bold" if k == lengths.argmax() else "normal")
        self.caption.set_text(f"{self._graph}, after {self.timeline.progress_text(position)}\n{self._truth}")


def _places_in(medium: style.Medium, classes: int) -> tuple[int, Box, Box, Box]:
    """The figure's height, and where the graph, the classes and the key are, in pixels.

    The graph's place is its left, bottom, width and height; the others' are their left, top, width and height. They
    stand beside the graph on a screen and under it in a column.
    """
    rows, key = _ROW * classes + 22, _STRIP * classes + 48 + _LINE
    if medium is style.SCREEN:
        top, left, width = 76, 520, 165
        height = max(400, top + rows + key + 56)
        return height, (20, 20, 480, height - top - 24), (left, top, width, rows), (left, top + rows + 34, width, key)
    top, tall = 206, max(rows, key) + 14
    graph = (4, tall + 4, medium.width - 8, top - 10)
    top += _CAPTION
    return top + tall, graph, (14, top + 4, 140, rows), (190, top + 4, 130, key)
