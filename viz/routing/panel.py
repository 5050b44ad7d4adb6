"""One iteration of routing: the image, the children with their votes, the ribbons, and the parents."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, to_rgb
from matplotlib.patches import Rectangle
from matplotlib.text import Text

from graphcaps.viz import style
from graphcaps.viz.routing.entropy import entropies
from graphcaps.viz.routing.ribbons import Ribbons
from graphcaps.viz.routing.timeline import between, count

if TYPE_CHECKING:
    from graphcaps.viz.routing.graph import GraphPicture

Box = tuple[float, float, float, float]
"""Left, top, width and height in pixels."""


def inked(*images: np.ndarray | None) -> tuple[slice, slice]:
    """Rows and columns of images (..., H, W) uint8 without their blank border, cut equally at all four sides."""
    ink = np.max([stack.max(axis=tuple(range(stack.ndim - 2))) for stack in images if stack is not None], axis=0) > 64
    (rows, columns), (high, wide) = ink.nonzero(), ink.shape
    margin = int(min(rows.min(), columns.min(), high - 1 - rows.max(), wide - 1 - columns.max())) if len(rows) else 0
    margin = max(0, margin - 1)  # a pixel of paper around the ink
    return slice(margin, high - margin), slice(margin, wide - margin)


def pushed_apart(middles: np.ndarray, size: float, low: float, high: float) -> np.ndarray:
    """Ascending ``middles`` of boxes of one size, moved so that they lie between low and high and not on each other."""
    steps = size * np.arange(len(middles))
    places = np.maximum.accumulate(np.maximum(middles, low + size / 2) - steps) + steps
    return np.minimum(places, high - size / 2 - steps[::-1])


class Panel:
    """A round of a ``GraphPicture`` in pixels of the figure: the image at ``square``, the graph at ``box``."""

    def __init__(self, picture: GraphPicture, axes: Axes, square: Box, box: Box):
        self._picture, self._axes, self._medium = picture, axes, picture.medium
        self._size = "{:.1%}" if picture.trace.agreement is None else "{:.2f}"  # of a load, of a length
        self._ink = LinearSegmentedColormap.from_list("ink", [self._medium.paper, self._medium.ink])
        if picture.votes is not None or picture.parents is not None:
            self._view = (..., *inked(picture.votes, picture.parents))
        before = set(axes.get_children())
        self.image: Any = None
        if picture.tint is not None:
            pixels, (left, top, wide, tall) = picture.tint(picture.timeline.c[-1], picture.timeline.end), square
            high, wide = (wide / max(pixels.shape[:2]) * size for size in pixels.shape[:2])
            top += (tall - high) / 2
            self.image = self._show(pixels, left, top, wide, high)
            self.below = self._write(left, top + high + 6, "", va="top", linespacing=1.4)
        self._draw_graph(*box)
        self.graph = [artist for artist in axes.get_children() if artist not in before | {self.image}]

    def _show(self, pixels: np.ndarray, x: float, y: float, wide: float, high: float) -> Any:
        looks: dict[str, Any] = {"aspect": "auto", "zorder": 3, "vmin": 0, "vmax": 255, "cmap": self._ink}
        image = self._axes.imshow(pixels, extent=(x, x + wide, y + high, y), **looks)
        self._axes.set(xlim=(0, self._medium.width), ylim=(self._axes.figure.bbox.height, 0))
        return image

    def _write(self, x: float, y: float, text: str, **looks: Any) -> Text:
        return self._axes.text(x, y, text, **{"size": self._medium.small, "color": self._medium.muted, **looks})

    def _draw_graph(self, left: float, top: float, width: float, height: float) -> None:
        picture, medium, trace, shown = self._picture, self._medium, self._picture.trace, self._picture.named
        letter, small = (0.62 * size * 100 / 72 for size in (medium.text, medium.small))  # pixels
        bars, row = len(shown) + (len(shown) < trace.num_parents), height / len(np.unique(trace.src))
        self._side = min(0.2 * width, 84, 0.8 * height / bars) if picture.parents is not None else 0.0
        label = max(self._side + letter * max(len(picture.names[j]) + 2 for j in (*shown, 0)), 16 * small)
        ends = left + width - min(label, 0.5 * width)
        thumb = 0.9 * row if picture.votes is not None and row > 12 else 0.0
        names = [style.cut(name) for name in trace.child_names] or [f"#{i}" for i in range(trace.num_children)]
        if row < 1.9 * medium.small or not (trace.child_names or medium.heading):
            names = []
        starts = left + small * max(map(len, names), default=0) + thumb + 6
        box = (starts, top, ends - starts - 6, height)
        colors = [*(picture.color(j) for j in shown), to_rgb(medium.faint)]
        self.ribbons = Ribbons(self._axes, trace, picture.timeline.c[-1], shown, colors, box, picture.shown_edges)
        for (i, *_), y in zip(self.ribbons.strips, self.ribbons.middles, strict=True):
            self._write(starts - thumb - 6, y, names[i] if names else "", va="center", ha="right")
            if thumb:
                vote = style.displayed(picture.votes[i][self._view])
                self._show(vote, starts - thumb - 4, y - thumb / 2, thumb, thumb)
        self._draw_parents(ends, colors)
        self._bounds = (top, top + height)
        if medium.heading:
            self._write_headings(left, left + width, top - 8, "their votes" if thumb else "")

    def _draw_parents(self, left: float, colors: list[Any]) -> None:
        """Draw the name and the decoded image of each parent that is shown, and one text for all others."""
        self._decoded: list[tuple[Any, Any]] = []
        for j, color in zip(self._picture.named if self._picture.parents is not None else (), colors, strict=False):
            image = self._show(
                style.displayed(self._picture.parents[0, j][self._view]), left, 0, self._side, self._side
            )
            frame = Rectangle(
                (left, 0), self._side, self._side, ec=color, lw=2 * self._medium.line, zorder=4, fill=False
            )
            self._decoded.append((image, self._axes.add_patch(frame)))
        looks: dict[str, Any] = {"va": "center", "linespacing": 1.3}
        bold = looks | {"weight": "bold", "size": self._medium.text}
        self._labels = [self._write(left + self._side + 8, 0, "", color=color, **bold) for color in colors[:-1]]
        self._others = self._write(left, 0, "", **looks)

    def _write_headings(self, left: float, right: float, bottom: float, votes: str) -> None:
        trace, strips, number = self._picture.trace, len(self.ribbons.strips), sum(map(len, self.ribbons.strips))
        field = (" (child capsules)", " (parent capsules)") if self._picture.words[0] == "part" else ("", "")
        cut = "strips cut into their shares" if strips == number else f"{strips} strips of mean shares"
        shown = f" {votes},\nand {cut}" if votes else f"\n{cut}"
        self._write(left, bottom, f"{count(number, *self._picture.words)}{field[0]}:{shown}", va="bottom")
        sizes = "loads" if trace.agreement is None else "lengths"
        parents = f"{trace.parent_word[1]}{field[1]},\nand their {sizes}"
        self._write(right, bottom, parents, va="bottom", ha="right", multialignment="left")

    def show(self, position: float) -> None:
        """Move the panel to ``position``, in steps from 0."""
        picture = self._picture
        couplings, lengths = picture.timeline.at(position)
        self.ribbons.show(couplings)
        if picture.tint is not None:
            self.image.set_data(picture.tint(couplings, position))
            entropy, levels = (values.mean() for values in entropies(picture.trace, couplings))
            self.below.set_text(f"entropy {entropy:.2f} of {levels:.2f} nat\n{picture.truth}")
        room = max(self._side + 4, 4 * self._medium.text)
        middles = pushed_apart(self.ribbons.ends.mean(axis=1), room, *self._bounds)[self.ribbons.bars]
        for j, label in zip(picture.named, self._labels, strict=True):
            label.set(y=middles[j], text=f"{picture.names[j]}\n{self._size.format(lengths[j])}")
        for j, (image, frame) in zip(picture.named, self._decoded, strict=False):
            now = between(picture.parents[:, j].astype(np.float64), position).round().astype(np.uint8)
            image.set_data(style.displayed(now[self._view]))
            top = middles[j] - self._side / 2
            image.set_extent((*image.get_extent()[:2], top + self._side, top))
            frame.set_y(top)
        others = np.setdiff1d(np.arange(len(lengths)), picture.named)
        if len(others):
            most = self._size.format(np.ceil(100 * lengths[others].max() - 1e-3) / 100)
            other = "other " * (len(picture.named) > 0)
            text = f"{len(others):,} {other}{picture.trace.parent_word[len(others) > 1]}:\nnone above {most}"
            self._others.set(y=middles[others[0]], text=text)
