"""The bipartite graph during routing: one line per coupling, next to the image and the lengths of the parents."""

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

from graphcaps.viz import style
from graphcaps.viz.routing.entropy import choice_in_words
from graphcaps.viz.routing.picture import Picture
from graphcaps.viz.routing.timeline import caption, count
from graphcaps.viz.routing_trace import RoutingTrace

Numbers = TypeVar("Numbers", float, np.ndarray)

_THIN, _THICK = 0.4, 5.0  # points: line widths at coupling 0 and, if there is room, at the scale's end
_PALE, _STRONG = 0.16, 0.95  # opacities of the same two couplings
_MIN_SCALE = 0.5  # the scale ends at this coupling or a larger one
_MAX_PICTURED = 20  # up to this many children are drawn as small pictures of what they look at
_MIN_SIDE = 24  # pixels of such a picture at least; below that it would be a dot
_MAX_NAMED = 30  # up to this many parents have room for a name each
# The axis of lengths ends at one of these
_AXIS_ENDS = [*(digit * 10.0**power for power in (-4, -3, -2, -1) for digit in (1, 2, 5)), 1.0]
_MAX_LINES = 320  # a larger graph is drawn with about this many lines
_CURVE = np.linspace(0, 1, 18)


@dataclass(frozen=True)
class _Layout:
    """Positions of the parts as fractions of the figure; ``letter`` is the width of a letter in pixels."""

    height: int
    graph: tuple[float, float]
    """Bottom and height of the graph and the bars."""
    image: tuple[float, float]
    """Left and width of the image."""
    bars: tuple[float, float]
    """Left edge of the bars, and the end of their axis divided by the longest bar."""
    scale: tuple[float, float, float, float]
    values: float
    """Height of the text under the scale in a paper."""
    letter: float
    node: float
    """Size factor of the parents' dots."""


_LAYOUTS = {
    style.SCREEN: _Layout(
        620, (0.12, 0.7), (0.03, 0.19), (0.78, 1.3), (0.25, 0.03, 0.42, 0.045), 0.052, 7.5, 1.0
    ),
    style.COLUMN: _Layout(
        270, (0.19, 0.735), (0.02, 0.19), (0.77, 1.55), (0.02, 0.065, 0.7, 0.06), 0.035, 6.0, 0.35
    ),
}  # fmt: skip


class GraphPicture(Picture):
    """Children at the left, parents at the right; width and opacity of a line show its coupling.

    Both grow linearly from 0 to the largest coupling of all steps, or to 0.5 if that is larger: nearly uniform
    couplings have thin lines. A scale below shows the widths. Children are sorted by the mean place of the parents that
    they go to in the network's answer, so that few lines cross. Of a graph with more than 320 edges, a random sample of
    children is drawn, each with all its edges. The sample has about 320 lines and is the same in every frame.

    Attributes:
        edges: (K,) the edge of each line. The weakest coupling in the answer comes first.
        lines: LineCollection of K lines in that order.
        bars: PolyCollection of J rectangles that show the lengths of the parents.
        nodes: PathCollection of the J parents.
    """

    def draw(self) -> None:
        trace, medium = self.trace, self.medium
        self._layout = layout = _LAYOUTS[medium]
        self._answer = self.timeline.c[-1]  # (E,)
        self._children = sample_of(trace)
        order = np.argsort(self._answer, kind="stable")
        self.edges = order[np.isin(trace.src[order], self._children)]
        self._scale_end = max(_MIN_SCALE, float(self.timeline.c[:, self.edges].max()))
        self._colors = np.array([style.color(j) for j in range(trace.num_parents)])
        self._y = 1 - (np.arange(trace.num_parents) + 0.5) / trace.num_parents
        self.figure = style.blank(medium.width, layout.height)
        self._heading = style.Heading.on(self.figure, medium)
        left = 0.04 if trace.images is None else sum(layout.image) + 0.03
        low, height = layout.graph
        bars, _ = layout.bars
        right = bars - (24 + layout.letter * max(map(len, self.names))) / medium.width
        self._verdict = self.figure.text(0, 0, "")
        if trace.images is not None:
            self._draw_image(trace.images[self.image])
        self._draw_graph(self.figure.add_axes((left, low, right - left, height)))
        scale_left, scale_low, wide, tall = layout.scale
        self._draw_scale(self.figure.add_axes((min(left, scale_left), scale_low, wide, tall)))
        self._draw_bars(self.figure.add_axes((bars, low, 0.975 - bars, height)))

    def _draw_image(self, image: np.ndarray) -> None:
        medium, (left, width), top = self.medium, self._layout.image, sum(self._layout.graph)
        height = min(0.3, width * medium.width / self._layout.height * image.shape[1] / image.shape[2])
        axes = self.figure.add_axes((left, top - height, width, height), anchor="NW")
        style.show_image(axes, image)
        axes.set_title("input image", size=medium.text)
        below: dict[str, Any] = {"size": medium.text, "va": "top", "linespacing": 1.4}
        self._verdict = self.figure.text(left, top - 0.02 - height, "", **below)
        if medium.heading:
            source = "\n".join(caption(self.trace, self.timeline.over, self.image))
            looks: dict[str, Any] = {"size": medium.small, "color": style.MUTED, "va": "bottom", "linespacing": 1.4}
            self.figure.text(left, self._layout.graph[0], source, **looks)

    def _draw_graph(self, axes: Axes) -> None:
        trace = self.trace
        order = children_in_order(trace, self._answer)
        order = order[np.isin(order, self._children)]  # from top to bottom
        room = 0.8 * 72 / 100 * axes.bbox.height / len(order)  # points between children
        self._thick = float(np.clip(room, 3 * _THIN, _THICK * self.medium.line))
        self._child_y = np.full(trace.num_children, np.nan)
        self._child_y[order] = 1 - (np.arange(len(order)) + 0.5) / len(order)
        start, end = self._child_y[trace.src[self.edges]], self._y[trace.dst[self.edges]]
        y = start[:, None] + (end - start)[:, None] * _CURVE * _CURVE * (3 - 2 * _CURVE)  # (K, points)
        curves = np.stack((np.broadcast_to(_CURVE, y.shape), y), axis=-1)  # (K, points, 2)
        self.lines = LineCollection(list(curves), capstyle="butt")
        axes.add_collection(self.lines, autolim=False)
        dots = self._draw_children(axes)
        self.nodes = axes.scatter(np.ones_like(self._y), self._y, color=self._colors, zorder=3, clip_on=False)
        axes.set(xlim=(-0.12, 1.03), ylim=(0, 1))
        style.bare(axes)
        children, whole = count(trace.num_children, "child", "children"), len(order) == trace.num_children
        if not whole:
            children = f"{len(order)} of {children}" + ", all their edges" * self.medium.heading
        if not dots and self.medium.heading:
            children = f"what {children} look at"
        above: dict[str, Any] = {"va": "bottom", "size": self.medium.text}
        axes.text(-0.12, 1.025, children, ha="left", **above)
        if whole and self.medium.heading:  # a sample needs this room for its note
            axes.text(1.03, 1.025, count(trace.num_parents, "parent"), ha="right", **above)

    def _draw_children(self, axes: Axes) -> list[Artist]:
        """Draw a dot per child, or a small image that is lit where the child looks. Return the dots."""
        trace, image = self.trace, self.image
        side = 0.94 * axes.bbox.height / trace.num_children
        few = trace.num_children <= _MAX_PICTURED and side >= _MIN_SIDE
        if trace.images is None or trace.saliency is None or not few:
            size = self._layout.node * np.clip(600 / trace.num_children, 2, 30)
            drawn = self._child_y[np.isfinite(self._child_y)]
            return [axes.scatter(np.zeros_like(drawn), drawn, s=size, color=style.INK, zorder=3, lw=0)]
        dim = 0.45 * style.rgb(trace.images[image])
        height = 0.94 / trace.num_children
        width = height * axes.bbox.height / axes.bbox.width * 1.15
        looks: dict[str, Any] = {"aspect": "auto", "zorder": 3, "interpolation": "bilinear"}
        for y, saliency in zip(self._child_y, trace.saliency[image], strict=True):
            spot = smooth(saliency)[..., None]
            lit = dim * (1 - spot) + spot * np.array(to_rgb(style.GLOW))
            axes.imshow(lit, extent=(-width, 0, y - height / 2, y + height / 2), **looks)
        return []

    def _draw_scale(self, axes: Axes) -> None:
        """Draw three lines of known coupling; in a paper also write the range of c."""
        if not self.medium.heading:
            degrees = np.unique(np.bincount(self.trace.src))
            uniform = f"undecided {1 / degrees[-1]:.3f}, " if len(degrees[degrees > 0]) == 1 else ""
            values = f"{uniform}strongest {self._answer[self.edges].max():.3f}"
            values += ", all edges of these children" * (len(self._children) < self.trace.num_children)
            self.figure.text(0.02, self._layout.values, values, size=self.medium.small, va="center")
        axes.set(xlim=(0, 1), ylim=(0, 1))
        style.bare(axes)
        axes.text(0, 0.5, "coupling c", size=self.medium.small, va="center")
        for x, c in zip((0.23, 0.47, 0.71), (0.0, self._scale_end / 2, self._scale_end), strict=True):
            gray = (*to_rgb(style.INK), self.alpha(c))
            axes.add_collection(LineCollection([((x, 0.5), (x + 0.09, 0.5))], colors=[gray], linewidths=self.width(c)))
            axes.text(x + 0.105, 0.5, f"{c:.2f}", size=self.medium.small, va="center")

    def _draw_bars(self, axes: Axes) -> None:
        self.bars = PolyCollection([], facecolors=self._colors, edgecolors=style.INK)
        axes.add_collection(self.bars, autolim=False)
        self._half = min(0.31 / len(self._y), 0.06)
        longest = self.timeline.lengths.max()
        end = min((end for end in _AXIS_ENDS if end > longest), default=1.0)
        self._digits = max(2, 1 - math.floor(math.log10(end)))
        axes.set_xlim(0, end * self._layout.bars[1])
        axes.set_xticks([0, end / 2, end], ["0", f"{end / 2:g}", f"{end:g}"])
        axes.set(ylim=(0, 1), yticks=[])
        axes.spines.left.set_visible(False)
        title = "length of the parent" if self.medium.heading else "length"
        axes.text(0, 1.025, title, transform=axes.transAxes, va="bottom", size=self.medium.text)
        every = -(-len(self._y) // _MAX_NAMED)
        middle: dict[str, Any] = {"size": self.medium.small, "va": "center_baseline"}
        for y, name in zip(self._y[::every], self.names[::every], strict=True):
            axes.text(-0.05 * end, y, name, ha="right", **middle)
        self._values = [axes.text(0, y, "", **middle) for y in self._y] if every == 1 else []
        self._gap = 0.03 * end  # between a bar and its number

    def width(self, c: Numbers) -> Numbers:
        """Width of a line in points, linear in its coupling."""
        return _THIN + (self._thick - _THIN) * c / self._scale_end

    def alpha(self, c: Numbers) -> Numbers:
        """Opacity of a line in [0, 1], linear in its coupling."""
        return _PALE + (_STRONG - _PALE) * c / self._scale_end

    def show(self, position: float) -> None:
        couplings, lengths = self.timeline.at(position)
        c = couplings[self.edges]
        colors = np.column_stack((self._colors[self.trace.dst[self.edges]], self.alpha(c)))  # (K, 4)
        self.lines.set(linewidth=self.width(c), color=colors)
        winner = None if self.timeline.untrained(position) else int(lengths.argmax())
        self._show_parents(lengths, winner)
        self._show_verdict(winner)
        two = self.trace.images is not None and self.trace.labels is None  # for example, images of two digits
        named = np.argsort(-lengths, kind="stable")[: 1 + two]
        answer = "longest parent: " + ", then ".join(f"{self.names[j]} ({lengths[j]:.{self._digits}f})" for j in named)
        line = f"{self.timeline.title(position)}, {'untrained' if winner is None else answer}"
        self._heading.say(choice_in_words(self.trace, couplings), line)

    def _show_parents(self, lengths: np.ndarray, winner: int | None) -> None:
        """Set dots, bars and numbers, and draw a ring around the longest parent."""
        rings = np.where(np.arange(len(lengths)) == winner, 2.0 * self.medium.line, 0.0)
        sizes = self._layout.node * np.where(rings > 0, 130, 55)
        self.nodes.set(sizes=sizes, linewidths=rings, edgecolors=style.INK)
        zero, low, high = np.zeros_like(lengths), self._y - self._half, self._y + self._half
        corners = np.array([(zero, low), (lengths, low), (lengths, high), (zero, high)])  # (4, 2, J)
        self.bars.set(verts=corners.transpose(2, 0, 1), linewidths=0.8 * rings)
        for j, value in enumerate(self._values):
            weight = "bold" if j == winner else "normal"
            value.set(text=f"{lengths[j]:.{self._digits}f}", x=lengths[j] + self._gap, fontweight=weight)

    def _show_verdict(self, winner: int | None) -> None:
        """Write the true label below the image, and the longest parent if it differs."""
        if self.true is None or self.trace.images is None:
            return
        between = " " if self.medium.heading else "\n"
        text, weight = f"true label:{between}{self.names[self.true]}", "normal"
        if winner is not None and winner != self.true:
            text, weight = f"{text}\nlongest:{between}{self.names[winner]}\nwrong", "bold"
        self._verdict.set(text=text, fontweight=weight)


def sample_of(trace: RoutingTrace) -> np.ndarray:
    """The children to draw, ascending: all, or always the same random sample with about 320 edges."""
    if trace.num_edges <= _MAX_LINES:
        return np.arange(trace.num_children)
    linked = np.unique(trace.src)
    shown = max(1, _MAX_LINES * len(linked) // trace.num_edges)
    return np.sort(np.random.default_rng(0).choice(linked, shown, replace=False))


def children_in_order(trace: RoutingTrace, c: np.ndarray) -> np.ndarray:
    """Sort the children (I,) by the mean place of their parents, weighted by the couplings ``c`` (E,)."""
    weight = np.bincount(trace.src, c, trace.num_children)
    place = np.bincount(trace.src, c * trace.dst, trace.num_children)
    mean = np.divide(place, weight, out=np.full_like(place, np.inf), where=weight > 0)
    return np.argsort(mean, kind="stable")


def smooth(saliency: np.ndarray) -> np.ndarray:
    """Blur noisy gradients (H, W) to a spot that is visible on a small picture. The maximum is 1."""
    speckles = Image.fromarray((255 * saliency.astype(np.float64)).round().astype(np.uint8))
    spot = np.asarray(speckles.filter(ImageFilter.GaussianBlur(1.5)), np.float64)
    return spot / max(spot.max(), 1.0)
