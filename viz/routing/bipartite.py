"""The bipartite graph as it routes: one line per coupling, beside the image and the lengths of the parents."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, PolyCollection
from matplotlib.colors import to_rgb
from PIL import Image, ImageFilter

from graphcaps.routing_trace import RoutingTrace
from graphcaps.viz import style
from graphcaps.viz.routing.entropy import choice_in_words
from graphcaps.viz.routing.timeline import Timeline, caption, count, true_parent

THIN, THICK = 0.4, 5.0  # points: widths of a coupling of 0 and of the largest of the scale, where there is room
PALE, STRONG = 0.16, 0.95  # their opacities
LEAST = 0.5  # the scale of widths ends here at least

Numbers = TypeVar("Numbers", float, np.ndarray)

_PICTURED = 20  # children shown as small pictures of what they look at
_LEGIBLE = 24  # pixels of a side; smaller ones are dots
_LABELLED = 30  # parents that have room for a name each
_ENDS = [digit * 10.0**power for power in (-4, -3, -2, -1) for digit in (1, 2, 5)] + [1.0]  # of the axis of lengths
_LINES = 320  # drawn of a larger graph, about
_CURVE = np.linspace(0, 1, 18)


@dataclass(frozen=True)
class _Layout:
    """Where things stand, in fractions of the figure; ``letter`` is the width of one, in pixels."""

    height: int
    graph: tuple[float, float]
    """Bottom and height of graph and bars."""
    image: tuple[float, float]
    """Left and width of the image."""
    bars: tuple[float, float]
    """Left of the bars, and the end of their axis over the longest bar."""
    scale: tuple[float, float, float, float]
    shown: float
    """Height of the words under the scale's right end."""
    letter: float
    node: float
    """Factor of the parents' dots."""


_LAYOUTS = {
    style.SCREEN: _Layout(
        620, (0.12, 0.7), (0.03, 0.19), (0.78, 1.3), (0.25, 0.03, 0.42, 0.045), 0.052, 7.5, 1.0
    ),
    style.COLUMN: _Layout(
        270, (0.19, 0.735), (0.02, 0.19), (0.77, 1.55), (0.02, 0.065, 0.7, 0.06), 0.035, 6.0, 0.35
    ),
}  # fmt: skip


class GraphPicture:
    """Children at the left, parents at the right; width and strength of a line are its coupling.

    Both grow linearly from 0 to the largest coupling shown at any step, or to 0.5 where all are smaller: nearly uniform
    couplings have thin lines. A scale is drawn below. Children are ordered by the mean place of the parents that they
    go to in the network's answer, so that few lines cross. Of a graph with more than 320 edges a random sample of
    children is drawn, each with all its edges: about 320 lines, the same in every frame.

    Args:
        trace, over, image: as in ``Timeline.of``.
        medium: what it is made for.

    Attributes:
        figure: the matplotlib figure.
        timeline: the steps it moves through.
        edges: (K,) the edge each line stands for, weakest in the answer first.
        lines: LineCollection of K lines in that order.
        bars: PolyCollection of J rectangles, the lengths of the parents.
        nodes: PathCollection of the J parents.
        moving: the artists that ``show`` changes.
    """

    def __init__(
        self,
        trace: RoutingTrace,
        over: str = "iterations",
        image: int = 0,
        *,
        medium: style.Medium = style.SCREEN,
    ):
        self.timeline = Timeline.of(trace, over, image)
        self._trace = trace
        self._image = image
        self._medium, self._layout = medium, _LAYOUTS[medium]
        self._answer = self.timeline.c[-1]  # (E,)
        self._children = sample_of(trace)
        order = np.argsort(self._answer, kind="stable")
        self.edges = order[np.isin(trace.src[order], self._children)]
        self._most = max(LEAST, float(self.timeline.c[:, self.edges].max()))
        self._names = style.short(trace.parent_names)
        self._colors = np.array([style.color(j) for j in range(trace.num_parents)])
        self._y = 1 - (np.arange(trace.num_parents) + 0.5) / trace.num_parents
        layout = self._layout
        with style.applied(medium):
            self.figure = style.blank(medium.width, layout.height)
            self._heading = style.Heading.on(self.figure, medium)
            left = 0.04 if trace.images is None else sum(layout.image) + 0.03
            low, height = layout.graph
            bars, _ = layout.bars
            right = bars - (24 + layout.letter * max(map(len, self._names))) / medium.width
            self._true = true_parent(trace, image)
            self._verdict = self.figure.text(0, 0, "")
            if trace.images is not None:
                self._draw_image(trace.images[image], caption(trace, over, image))
            self._draw_graph(self.figure.add_axes((left, low, right - left, height)))
            scale_left, scale_low, wide, tall = layout.scale
            self._draw_scale(self.figure.add_axes((min(left, scale_left), scale_low, wide, tall)))
            self._draw_bars(self.figure.add_axes((bars, low, 0.975 - bars, height)))
        words = [*self._values, self._verdict, *self._heading.artists]
        self.moving = [self.lines, *self._dots, self.nodes, self.bars, *words]
        self.show(self.timeline.end)

    def _draw_image(self, image: np.ndarray, source: list[str]) -> None:
        medium, (left, width), top = self._medium, self._layout.image, sum(self._layout.graph)
        height = min(0.3, width * medium.width / self._layout.height * image.shape[1] / image.shape[2])
        axes = self.figure.add_axes((left, top - height, width, height), anchor="NW")
        style.show_image(axes, image)
        axes.set_title("input image", size=medium.text)
        below: dict[str, Any] = {"size": medium.text, "va": "top", "linespacing": 1.4}
        self._verdict = self.figure.text(left, top - 0.02 - height, "", **below)
        if medium.heading:
            looks: dict[str, Any] = {"size": medium.small, "color": style.MUTED, "va": "bottom", "linespacing": 1.4}
            self.figure.text(left, self._layout.graph[0], "\n".join(source), **looks)

    def _draw_graph(self, axes: Axes) -> None:
        trace = self._trace
        order = self._children_in_order()
        room = 0.8 * 72 / 100 * axes.bbox.height / len(order)  # points, between children
        self._thick = float(np.clip(room, 3 * THIN, THICK * self._medium.line))
        self._child_y = np.full(trace.num_children, np.nan)
        self._child_y[order] = 1 - (np.arange(len(order)) + 0.5) / len(order)
        start, end = self._child_y[trace.src[self.edges]], self._y[trace.dst[self.edges]]
        y = start[:, None] + (end - start)[:, None] * _CURVE * _CURVE * (3 - 2 * _CURVE)  # (K, points)
        curves = np.stack((np.broadcast_to(_CURVE, y.shape), y), axis=-1)  # (K, points, 2)
        self.lines = LineCollection(list(curves), capstyle="butt")
        axes.add_collection(self.lines, autolim=False)
        self._dots = self._draw_children(axes)
        self.nodes = axes.scatter(np.ones_like(self._y), self._y, color=self._colors, zorder=3, clip_on=False)
        axes.set(xlim=(-0.12, 1.03), ylim=(0, 1))
        style.bare(axes)
        children, whole = count(trace.num_children, "child", "children"), len(order) == trace.num_children
        if not whole:
            children = f"{len(order)} of {children}" + ", all their edges" * self._medium.heading
        if not self._dots and self._medium.heading:
            children = f"what {children} look at"
        above: dict[str, Any] = {"va": "bottom", "size": self._medium.text}
        axes.text(-0.12, 1.025, children, ha="left", **above)
        if whole and self._medium.heading:  # a sample's words need the room
            axes.text(1.03, 1.025, count(trace.num_parents, "parent"), ha="right", **above)

    def _children_in_order(self) -> np.ndarray:
        """Children that are drawn, from top to bottom."""
        order = children_in_order(self._trace, self._answer)
        return order[np.isin(order, self._children)]

    def _draw_children(self, axes: Axes) -> list[Artist]:
        """A dot per child, or the image with what the child looks at lit up; the dots are returned."""
        trace, image = self._trace, self._image
        side = 0.94 * axes.bbox.height / trace.num_children
        few = trace.num_children <= _PICTURED and side >= _LEGIBLE
        if trace.images is None or trace.saliency is None or not few:
            size = self._layout.node * np.clip(600 / trace.num_children, 2, 30)
            drawn = self._child_y[np.isfinite(self._child_y)]
            return [axes.scatter(np.zeros_like(drawn), drawn, s=size, color=style.INK, zorder=3, lw=0)]
        seen = 0.45 * style.rgb(trace.images[image])
        height = 0.94 / trace.num_children
        width = height * axes.bbox.height / axes.bbox.width * 1.15
        for y, saliency in zip(self._child_y, trace.saliency[image], strict=True):
            looked = smooth(saliency)[..., None]
            lit = seen * (1 - looked) + looked * np.array(to_rgb(style.GLOW))
            axes.imshow(
                lit,
                extent=(-width, 0, y - height / 2, y + height / 2),
                aspect="auto",
                zorder=3,
                interpolation="bilinear",
            )
        return []

    def _draw_scale(self, axes: Axes) -> None:
        """Three lines of known coupling; in a paper, the range of c."""
        if not self._medium.heading:
            degrees = np.unique(np.bincount(self._trace.src))
            even = f"undecided {1 / degrees[-1]:.3f}, " if len(degrees[degrees > 0]) == 1 else ""
            values = f"{even}strongest {self._answer[self.edges].max():.3f}"
            values += ", all edges of these children" * (len(self._children) < self._trace.num_children)
            self.figure.text(0.02, self._layout.shown, values, size=self._medium.small, va="center")
        axes.set(xlim=(0, 1), ylim=(0, 1))
        style.bare(axes)
        axes.text(0, 0.5, "coupling c", size=self._medium.small, va="center")
        for x, c in zip((0.23, 0.47, 0.71), (0.0, self._most / 2, self._most), strict=True):
            gray = (*to_rgb(style.INK), self.alpha(c))
            axes.add_collection(LineCollection([((x, 0.5), (x + 0.09, 0.5))], colors=[gray], linewidths=self.width(c)))
            axes.text(x + 0.105, 0.5, f"{c:.2f}", size=self._medium.small, va="center")

    def _draw_bars(self, axes: Axes) -> None:
        self.bars = PolyCollection([], facecolors=self._colors, edgecolors=style.INK)
        axes.add_collection(self.bars, autolim=False)
        self._half = min(0.31 / len(self._y), 0.06)
        longest = self.timeline.lengths.max()
        end = min((end for end in _ENDS if end > longest), default=1.0)
        self._digits = max(2, 1 - math.floor(math.log10(end)))
        axes.set_xlim(0, end * self._layout.bars[1])
        axes.set_xticks([0, end / 2, end], ["0", f"{end / 2:g}", f"{end:g}"])
        axes.set(ylim=(0, 1), yticks=[])
        axes.spines.left.set_visible(False)
        named = "length of the parent" if self._medium.heading else "length"
        axes.text(0, 1.025, named, transform=axes.transAxes, va="bottom", size=self._medium.text)
        every = -(-len(self._y) // _LABELLED)
        middle: dict[str, Any] = {"size": self._medium.small, "va": "center_baseline"}
        for y, name in zip(self._y[::every], self._names[::every], strict=True):
            axes.text(-0.05 * end, y, name, ha="right", **middle)
        self._values = [axes.text(0, y, "", **middle) for y in self._y] if every == 1 else []
        self._nudge = 0.03 * end

    def width(self, c: Numbers) -> Numbers:
        """Width of a line in points, linear in its coupling."""
        return THIN + (self._thick - THIN) * self._share(c)

    def alpha(self, c: Numbers) -> Numbers:
        """Opacity of a line in [0, 1], linear in its coupling."""
        return PALE + (STRONG - PALE) * self._share(c)

    def _share(self, c: Numbers) -> Numbers:
        return c / self._most

    def show(self, position: float) -> None:
        """Set every line and bar to the couplings and lengths at ``position``, in steps from 0."""
        couplings, lengths = self.timeline.at(position)
        c = couplings[self.edges]
        colors = np.column_stack((self._colors[self._trace.dst[self.edges]], self.alpha(c)))  # (K, 4)
        self.lines.set(linewidth=self.width(c), color=colors)
        longest = int(lengths.argmax())
        winner = None if self.timeline.untrained(position) else longest
        rings = np.where(np.arange(len(lengths)) == winner, 2.0 * self._medium.line, 0.0)
        sizes = self._layout.node * np.where(rings > 0, 130, 55)
        self.nodes.set(sizes=sizes, linewidths=rings, edgecolors=style.INK)
        zero, low, high = np.zeros_like(lengths), self._y - self._half, self._y + self._half
        corners = np.array([(zero, low), (lengths, low), (lengths, high), (zero, high)])  # (4, 2, J)
        self.bars.set(verts=corners.transpose(2, 0, 1), linewidths=0.8 * rings)
        for j, value in enumerate(self._values):
            weight = "bold" if j == winner else "normal"
            value.set(text=f"{lengths[j]:.{self._digits}f}", x=lengths[j] + self._nudge, fontweight=weight)
        self._show_verdict(winner)
        two = self._trace.images is not None and self._trace.labels is None  # as where images show two digits
        named = np.argsort(-lengths, kind="stable")[: 1 + two]
        answer = "longest parent: " + ", then ".join(f"{self._names[j]} ({lengths[j]:.{self._digits}f})" for j in named)
        line = f"{self.timeline.title(position)}, {'untrained' if winner is None else answer}"
        self._heading.say(choice_in_words(self._trace, couplings), line)

    def _show_verdict(self, winner: int | None) -> None:
        """Write the true label below the image, and the longest parent where it is another."""
        if self._true is None or self._trace.images is None:
            return
        between = " " if self._medium.heading else "\n"
        text, weight = f"true label:{between}{self._names[self._true]}", "normal"
        if winner is not None and winner != self._true:
            text, weight = f"{text}\nlongest:{between}{self._names[winner]}\nwrong", "bold"
        self._verdict.set(text=text, fontweight=weight)


def sample_of(trace: RoutingTrace) -> np.ndarray:
    """The children that are drawn, ascending: all, or a random sample with about 320 edges, the same each time."""
    if trace.num_edges <= _LINES:
        return np.arange(trace.num_children)
    linked = np.unique(trace.src)
    shown = max(1, _LINES * len(linked) // trace.num_edges)
    return np.sort(np.random.default_rng(0).choice(linked, shown, replace=False))


def children_in_order(trace: RoutingTrace, c: np.ndarray) -> np.ndarray:
    """(I,) children by the mean place of the parents they go to, weighted by their couplings ``c`` (E,)."""
    weight = np.bincount(trace.src, c, trace.num_children)
    place = np.bincount(trace.src, c * trace.dst, trace.num_children)
    mean = np.divide(place, weight, out=np.full_like(place, np.inf), where=weight > 0)
    return np.argsort(mean, kind="stable")


def smooth(saliency: np.ndarray) -> np.ndarray:
    """Noisy gradients (H, W) blurred to a spot that can be seen on a small picture; the maximum is 1."""
    speckles = Image.fromarray((255 * saliency.astype(np.float64)).round().astype(np.uint8))
    spot = np.asarray(speckles.filter(ImageFilter.GaussianBlur(1.5)), np.float64)
    return spot / max(spot.max(), 1.0)
