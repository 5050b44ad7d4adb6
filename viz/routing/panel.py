"""One iteration of routing: the image, the children, each drawn as its decoded vote, the parents, and lines between."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.patches import Rectangle

from graphcaps.viz import style
from graphcaps.viz.routing.selection import DECIDED
from graphcaps.viz.routing.timeline import between

if TYPE_CHECKING:
    from graphcaps.viz.routing.graph import GraphPicture

_THIN, _PALE, _STRONG = 0.5, 0.12, 0.95  # width in points at coupling 0; opacities at coupling 0 and 1
_CURVE = np.linspace(0, 1, 18)


def inked(*images: np.ndarray | None) -> tuple[slice, slice]:
    """Rows and columns of images (..., H, W) uint8 without their blank border, cut equally at all four sides."""
    ink = np.max([stack.max(axis=tuple(range(stack.ndim - 2))) for stack in images if stack is not None], axis=0) > 64
    places = [(size, np.flatnonzero(ink.any(axis=1 - axis))) for axis, size in enumerate(ink.shape)]
    margin = min((k for size, at in places if len(at) for k in (at[0], size - 1 - at[-1])), default=0)
    margin = max(0, margin - 1)  # a pixel of paper around the ink
    rows, columns = (slice(margin, size - margin) for size in ink.shape)
    return rows, columns


class Panel:
    """A round of a ``GraphPicture``, drawn on axes in pixels of the figure.

    Args:
        square: left, top and side of a square with the image in its middle, if the picture has one.
        box: left, top, width, height of the graph.

    Attributes:
        edges: (K,) the edge of each line. The weakest coupling in the answer comes first.
        lines: LineCollection of K lines.
        frames: a rectangle around each parent shown.
        bars: a bar in each frame, whose height is the length of the parent; hidden if there is a decoded image.
    """

    def __init__(
        self,
        picture: GraphPicture,
        axes: Axes,
        square: tuple[float, float, float],
        box: tuple[float, float, float, float],
    ):
        self._time, self._medium, self._trace = picture.timeline, picture.medium, picture.trace
        self._size = "{:.1%}" if self._trace.agreement is None else "{:.2f}"  # of a load, of a length
        self._chosen, self._tint, self._axes, self._names = picture.chosen, picture.tint, axes, picture.names
        self._word = picture.words[1 if len(self._chosen.children) > 1 else 0]
        self._colors = [picture.color(j) for j in range(picture.trace.num_parents)]
        self._votes, self._parents = picture.votes, picture.parents
        self._ink = LinearSegmentedColormap.from_list("ink", [self._medium.paper, self._medium.ink])
        if self._votes is not None or self._parents is not None:
            self._view = (..., *inked(self._votes, self._parents))
        answer = self._time.c[-1]
        order = np.argsort(answer, kind="stable")
        drawn = np.isin(self._trace.src, self._chosen.children) & np.isin(self._trace.dst, self._chosen.parents)
        if picture.shown_edges is not None:
            drawn &= np.isin(np.arange(len(drawn)), picture.shown_edges)
        self.edges = order[drawn[order]]
        if self._tint is not None:
            self._draw_image(self._tint(answer, self._time.end), picture.true, *square)
        self._draw_graph(*box)

    def _draw_image(self, pixels: np.ndarray, true: int | None, left: float, top: float, side: float) -> None:
        """Draw the image (H, W, 3). A film has its true label below it, and the answer if that is another."""
        high, wide = (side * size / max(pixels.shape[:2]) for size in pixels.shape[:2])
        x, y = left + (side - wide) / 2, top + (side - high) / 2
        self._image = self._show(pixels, x, y, wide, high)
        if self._medium.heading:
            text = "strokes take their parent's colour"
            self._axes.text(x, y - 6, text, va="bottom", size=self._medium.small, color=self._medium.muted)
        if true is not None and self._medium.heading:
            answer = int(self._time.lengths[-1].argmax())
            text = f"true label: {self._names[true]}" + f", answer: {self._names[answer]}" * (true != answer)
            self._axes.text(x, y + high + 6, text, va="top", size=self._medium.small)

    def _show(self, pixels: np.ndarray, x: float, y: float, wide: float, high: float) -> Any:
        looks: dict[str, Any] = {"aspect": "auto", "zorder": 3, "vmin": 0, "vmax": 255, "cmap": self._ink}
        image = self._axes.imshow(pixels, extent=(x, x + wide, y + high, y), **looks)
        self._axes.set(xlim=(0, self._medium.width), ylim=(self._axes.figure.bbox.height, 0))
        return image

    def _draw_graph(self, left: float, top: float, width: float, height: float) -> None:
        trace, shown, medium = self._trace, self._chosen, self._medium
        row, place = height / max(1, len(shown.children)), height / len(shown.parents)
        letter = 0.62 * medium.text * 100 / 72  # pixels
        label = min(0.42 * width, letter * max(len(self._names[j]) + 1 for j in (*shown.parents, 0)) + 3 * letter)
        thumb, box = min(0.94 * row, 0.15 * width), min(0.86 * place, 0.27 * width)
        right = left + width - label - box
        child_y = np.full(trace.num_children, np.nan)
        child_y[shown.children] = top + row * (np.arange(len(shown.children)) + 0.5)
        parent_y = np.full(trace.num_parents, np.nan)
        parent_y[shown.parents] = top + place * (np.arange(len(shown.parents)) + 0.5)
        names = [style.cut(trace.child_names[i]) for i in shown.children if trace.child_names and self._votes is None]
        indent = letter * max(map(len, names), default=0)
        names, left = (names, left + indent) if indent < 0.2 * width else ([], left)
        self._draw_children(left, child_y, thumb, names)
        self._draw_lines((left + thumb + 3, right - 2), child_y, parent_y, min(9.0, 0.5 * row * 72 / 100))
        self._draw_parents(right, parent_y, box, letter)
        self._note(left, top + height, right)
        if medium.heading:
            parents = f"{trace.about.get('parent', 'parent')}s, and their "
            parents += "loads" if trace.agreement is None else "lengths"
            children = f"{len(shown.children)} {self._word}"
            if self._tint is not None:
                children += " (child capsules)"
                parents = "wholes (parent capsules),\nlength: how sure"
            if self._votes is not None:
                children += ", drawn as what\neach votes for: the fainter, the less it counts"
            for x, text in ((left, children), (right, parents)):
                self._axes.text(x, top - 8, text, va="bottom", size=medium.small, color=medium.muted)

    def _draw_children(self, left: float, y: np.ndarray, side: float, names: list[str]) -> None:
        """Draw each child as the decoded image of its vote for the parent that it goes to most, or as a dot."""
        children, trace = self._chosen.children, self._trace
        self._portraits = []  # each with the edge of its vote
        if self._votes is None:
            x = np.full(len(children), left + side - 2)
            self._axes.scatter(x, y[children], min(0.2 * side**2, 120.0), color=self._medium.ink, lw=0, zorder=3)
            for i, name in zip(children, names, strict=False):
                self._axes.text(x[0] - 12, y[i], name, ha="right", va="center", size=self._medium.small)
        else:
            best = dict(zip(trace.src[self.edges].tolist(), self.edges.tolist(), strict=True))  # the last is strongest
            for i in (i for i in children if i in best):  # not where the shown edges go to other parents
                portrait = self._show(style.displayed(self._votes[i][self._view]), left, y[i] - side / 2, side, side)
                self._portraits.append((portrait, best[i]))

    def _draw_lines(self, x: tuple[float, float], child_y: np.ndarray, parent_y: np.ndarray, thick: float) -> None:
        start, end = child_y[self._trace.src[self.edges]], parent_y[self._trace.dst[self.edges]]
        y = start[:, None] + (end - start)[:, None] * _CURVE * _CURVE * (3 - 2 * _CURVE)  # (K, points)
        across = np.broadcast_to(x[0] + (x[1] - x[0]) * _CURVE, y.shape)
        self.lines = LineCollection(list(np.stack((across, y), axis=-1)), capstyle="butt", zorder=2)
        self._axes.add_collection(self.lines, autolim=False)
        self._thick = max(thick, 3 * _THIN)

    def _draw_parents(self, left: float, y: np.ndarray, side: float, letter: float) -> None:
        """Draw a frame for each parent, with its decoded image, or else with a bar whose height is its length."""
        self.frames, self._decoded, self.bars, self._labels = [], [], [], []
        looks: dict[str, Any] = {"va": "center", "size": self._medium.text, "weight": "bold", "linespacing": 1.3}
        for j in self._chosen.parents:
            top, color = y[j] - side / 2, self._colors[j]
            if self._parents is not None:
                image = style.displayed(self._parents[0, j][self._view])
                self._decoded.append(self._show(image, left, top, side, side))
            self.bars.append(Rectangle((left, top + side), side, 0, fc=color, lw=0, visible=not self._decoded))
            self.frames.append(Rectangle((left, top), side, side, fill=False, ec=color, zorder=4))
            self._axes.add_patch(self.bars[-1])
            self._axes.add_patch(self.frames[-1])
            self._labels.append(self._axes.text(left + side + 0.8 * letter, y[j], "", color=color, **looks))
        self._side, self._two_lines = side, side > 3.2 * self._medium.text

    def _note(self, left: float, top: float, right: float) -> None:
        """Write how many children and parents are folded away."""
        looks: dict[str, Any] = {"va": "top", "size": self._medium.small, "color": self._medium.muted}
        others = len(self._names) - len(self._chosen.parents)
        equal = 1 / np.unique(np.bincount(self._trace.src)[self._trace.src])  # an equal share
        if self._chosen.folded:
            undecided = self._chosen.undecided and self._medium.heading
            what = " that stay undecided" if undecided else " other" + "s" * (self._chosen.folded > 1)
            if len(equal) == 1 and undecided:
                what += f" (couplings ≤ {equal[0] + DECIDED * (1 - equal[0]):.2f})"
            self._axes.text(left, top + 6, f"+ {self._chosen.folded:,}{what}", **looks)
        if others:
            rest = " other" + "s" * (others > 1) if self._medium.heading else ""  # a still has less room
            longest = np.delete(self._time.lengths, self._chosen.parents, axis=1).max() + 0.005
            self._axes.text(right, top + 6, f"+ {others:,}{rest} below {self._size.format(longest)}", **looks)

    def width(self, c: float | np.ndarray) -> float | np.ndarray:
        """Width of a line in points, linear in its coupling."""
        return _THIN + (self._thick - _THIN) * c

    def show(self, position: float) -> None:
        """Move the panel to ``position``, in steps from 0."""
        couplings, lengths = self._time.at(position)
        c = couplings[self.edges]
        colors = np.array(self._colors)[self._trace.dst[self.edges]]
        self.lines.set(linewidth=self.width(c), color=np.column_stack((colors, _PALE + (_STRONG - _PALE) * c)))
        for portrait, edge in self._portraits:
            portrait.set_alpha(float(np.sqrt(couplings[edge])))  # the root, or nothing would be seen where c is small
        if self._tint is not None:
            self._image.set_data(self._tint(couplings, position))
        for k, j in enumerate(self._chosen.parents):
            length = lengths[j]
            self.frames[k].set_linewidth(self._medium.line * (0.5 + 3.5 * length))
            self.bars[k].set(height=-self._side * length)
            size = self._size.format(length)
            self._labels[k].set_text(f"{self._names[j]}{chr(10) if self._two_lines else ' '}{size}")
            if self._parents is not None:
                shown = between(self._parents[:, j].astype(np.float64), position).round().astype(np.uint8)
                self._decoded[k].set_data(style.displayed(shown[self._view]))
