"""The entropy of each child along the steps of a picture, in the colour of the parent that it chooses."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.collections import LineCollection

from graphcaps.viz import style
from graphcaps.viz.routing.entropy import entropies, number_steps
from graphcaps.viz.routing.timeline import until

if TYPE_CHECKING:
    from graphcaps.viz.routing.graph import GraphPicture

_MAX_OTHERS = 40  # at most this many curves of folded children are drawn


class EntropyCurves:
    """A strip below a ``GraphPicture``, at ``box``: left, top, width, height in pixels. Curves end at the position.

    Attributes:
        children: LineCollection, a curve for each child shown.
        others: LineCollection of up to 40 folded children.
        mean: Line2D of the mean over all children.
    """

    def __init__(self, picture: GraphPicture, box: tuple[float, float, float, float]):
        self._time, medium, trace = picture.timeline, picture.medium, picture.trace
        self._entropies, levels = entropies(trace, self._time.c)  # (S, I'), (I',)
        self._x = self._time.x
        axes = style.panel(picture.figure, "entropy", *box)
        axes.set_facecolor("none")
        small: dict[str, Any] = {"size": medium.small, "color": medium.muted}
        highest, level = float(levels.max()) or 1.0, float(levels.mean())
        axes.set(xlim=(self._x[0] - 0.2, self._x[-1] + 0.2), ylim=(0, 1.06 * highest))
        number_steps(axes, picture, **small)
        axes.set_yticks([0, 1, 2] if 2 < highest < 3 else [0, round(highest / 2, 1)])
        style.write(picture.figure, box[0] - 0.14 * medium.width, box[1], "how\nundecided\n(entropy, nat)", **small)
        axes.axhline(level, color=medium.muted, lw=0.9, ls=(0, (4, 3)))
        same = np.all(levels == levels[0])
        name = f"ln {round(math.exp(level))} = {level:.2f}" if same else f"{level:.2f}"
        axes.text(0.01, 1.02, f"dashed: undecided, {name}", transform=axes.transAxes, va="bottom", **small)
        linked = np.unique(trace.src)
        self._rows = np.searchsorted(linked, picture.chosen.children)
        self._folded = np.setdiff1d(np.arange(len(linked)), self._rows)[:_MAX_OTHERS]
        panel = picture.panels[0]
        best = np.zeros(trace.num_children, int)
        best[trace.src[panel.edges]] = trace.dst[panel.edges]  # the strongest come last
        colors = [picture.color(j) for j in best[picture.chosen.children]]
        self.others = LineCollection([], colors=[medium.faint], linewidths=0.9 * medium.line)
        self.children = LineCollection([], colors=colors, linewidths=1.6 * medium.line)
        for lines in (self.others, self.children):
            axes.add_collection(lines, autolim=False)
        self.mean = axes.plot([], [], color=medium.ink, lw=2.6 * medium.line, clip_on=False)[0]
        self._tip = axes.plot([], [], "o", color=medium.ink, ms=6 * medium.line, clip_on=False)[0]
        self._value = axes.annotate("", (0, 0), (6, 0), va="top", textcoords="offset points", size=medium.small)

    def show(self, position: float) -> None:
        """Draw the curves up to ``position``, in steps from 0."""
        x, curves = until(position, self._x, self._entropies)
        for lines, rows in ((self.children, self._rows), (self.others, self._folded)):
            lines.set_segments([np.column_stack((x, curves[:, row])) for row in rows])
        means = curves.mean(axis=1)
        self.mean.set_data(x, means)
        self._tip.set_data(x[-1:], means[-1:])
        self._value.xy = (x[-1], means[-1])
        self._value.set_text(f"mean {means[-1]:.2f}")
