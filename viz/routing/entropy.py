"""Coupling entropy along iterations or epochs: how undecided each child is."""

import math
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection

from graphcaps.viz import style
from graphcaps.viz.routing.picture import Picture
from graphcaps.viz.routing.selection import Selection, selected
from graphcaps.viz.routing.timeline import until
from graphcaps.viz.routing_trace import RoutingTrace

_MAX_OTHERS = 40  # at most this many curves of other children are drawn


def entropies(trace: RoutingTrace, c: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Entropy of each child's couplings in nats, and its uniform level. Children without edges are left out.

    H_i = -sum over its edges of c ln c. First c is divided by its sum, which float16 leaves at 1 within 5e-4.

    Args:
        trace: I' <= I of its children have edges.
        c: (S, E) couplings.

    Returns:
        (S, I') entropies, and (I',) uniform levels: ln of the number of each child's edges.
    """
    degree = np.bincount(trace.src, minlength=trace.num_children)
    linked = degree > 0
    total = _per_child(trace, c)[:, trace.src]
    share = np.divide(c, total, out=np.zeros_like(c), where=total > 0)
    logs = np.log(share, out=np.zeros_like(share), where=share > 0)
    return -_per_child(trace, share * logs)[:, linked], np.log(degree[linked])


def _per_child(trace: RoutingTrace, values: np.ndarray) -> np.ndarray:
    """Sum (S, E) over each child's edges, to (S, I)."""
    return np.stack([np.bincount(trace.src, row, trace.num_children) for row in values])


class EntropyCurves:
    """The entropy of each child along the steps of a picture, on ``axes``. Curves end at the current position.

    Attributes:
        children: LineCollection of the ``chosen`` children, in the colours of the parents that they choose.
        others: LineCollection of up to 40 other children.
        mean: Line2D of the mean over all children.
        level: the mean uniform level.
    """

    def __init__(self, picture: Picture, axes: Axes, chosen: Selection):
        time, medium, trace = picture.timeline, picture.medium, picture.trace
        self._x = time.x
        self._entropies, levels = entropies(trace, time.c)  # (S, I'), (I',)
        small: dict[str, Any] = {"size": medium.small, "color": medium.muted}
        highest, self.level = float(levels.max()) or 1.0, float(levels.mean())
        axes.set_facecolor("none")
        axes.set(xlim=(self._x[0] - 0.2, self._x[-1] + 0.2), ylim=(0, 1.06 * highest))
        axes.set_yticks([0, 1, 2] if 2 < highest < 3 else [0, round(highest / 2, 1)])
        iteration = "iteration" if trace.agreement is None else "routing iteration"
        label = iteration if time.over == "iterations" else "epoch of training (those kept)"
        axes.set_xlabel(label + f"  ({picture.source})" * (medium.heading and bool(picture.source)), **small)
        every = slice(None, None, math.ceil(len(time) / 20))
        axes.set_xticks(time.x[every], [str(step) for step in time.steps[every]])
        axes.axhline(self.level, color=medium.muted, lw=0.9, ls=(0, (4, 3)))
        same = np.all(levels == levels[0])
        name = f"ln {round(math.exp(self.level))} = {self.level:.2f}" if same else f"{self.level:.2f}"
        axes.text(0.01, 1.02, f"dashed: undecided, {name}", transform=axes.transAxes, va="bottom", **small)
        linked, best = np.unique(trace.src), np.zeros(trace.num_children, int)
        order = np.argsort(time.c[-1], kind="stable")
        order = order[np.isin(trace.dst[order], chosen.parents)]
        best[trace.src[order]] = trace.dst[order]  # the strongest come last
        self._rows = np.searchsorted(linked, chosen.children)
        self._other_rows = np.setdiff1d(np.arange(len(linked)), self._rows)[:_MAX_OTHERS]
        self.others = LineCollection([], colors=[medium.faint], linewidths=0.9 * medium.line)
        colors = [picture.color(j) for j in best[chosen.children]]
        self.children = LineCollection([], colors=colors, linewidths=1.6 * medium.line)
        for lines in (self.others, self.children):
            axes.add_collection(lines, autolim=False)
        self.mean = axes.plot([], [], color=medium.ink, lw=2.6 * medium.line, clip_on=False)[0]
        self._tip = axes.plot([], [], "o", color=medium.ink, ms=6 * medium.line, clip_on=False)[0]
        self._value = axes.annotate("", (0, 0), (6, 0), va="top", textcoords="offset points", size=medium.small)

    def show(self, position: float) -> np.ndarray:
        """Draw the curves up to ``position``, in steps from 0. Return the entropies (I',) there."""
        x, curves = until(position, self._x, self._entropies)
        for lines, rows in ((self.children, self._rows), (self.others, self._other_rows)):
            lines.set_segments([np.column_stack((x, curves[:, row])) for row in rows])
        means = curves.mean(axis=1)
        self.mean.set_data(x, means)
        self._tip.set_data(x[-1:], means[-1:])
        self._value.xy = (x[-1], means[-1])
        self._value.set_text(f"mean {means[-1]:.2f}")
        return curves[-1]


class EntropyPicture(Picture):
    """Coupling entropy over iterations or epochs; ``curves`` are its ``EntropyCurves``."""

    def draw(self) -> None:
        screen = self.medium.heading
        self.figure = style.blank(self.medium.width, 400 if screen else 230)
        self._heading = style.Heading(self.figure, self.medium)
        axes = self.figure.add_axes((0.115, 0.135, 0.715, 0.585) if screen else (0.185, 0.16, 0.64, 0.655))
        chosen = selected(self.trace, self.timeline.c[-1], self.timeline.lengths[-1])
        self.curves = EntropyCurves(self, axes, chosen)
        axes.set_ylabel("coupling entropy (nat)")

    def show(self, position: float) -> None:
        values = self.curves.show(position)
        share = f", {values.mean() / self.curves.level:.1%} of uniform" if self.curves.level > 0 else ""
        line = f"{self.timeline.title(position)}: mean entropy {values.mean():.3f} ± {values.std():.3f} nat{share}"
        self._heading.say(self.choice(position), line)
