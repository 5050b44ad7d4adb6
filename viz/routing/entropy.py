"""Coupling entropy along iterations or epochs: its mean and standard deviation over children."""

import math
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.patches import Polygon, Rectangle

from graphcaps.viz import style
from graphcaps.viz.routing.picture import Picture
from graphcaps.viz.routing.timeline import until
from graphcaps.viz.routing_trace import RoutingTrace

_MAX_CHILD_LINES = 40


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


def number_steps(axes: Axes, picture: Picture, **looks: Any) -> None:
    """Write the steps' numbers below the axes, and what they are. ``looks`` are those of the latter's text."""
    time, iterations = picture.timeline, picture.timeline.over == "iterations"
    routing = "routing " * (picture.trace.agreement is not None)
    label = f"{routing}iteration" if iterations else "epoch of training (those kept)"
    axes.set_xlabel(label + f"  ({picture.source})" * (picture.medium.heading and bool(picture.source)), **looks)
    every = slice(None, None, math.ceil(len(time) / 20))
    axes.set_xticks(time.x[every], [str(step) for step in time.steps[every]])


class EntropyPicture(Picture):
    """Coupling entropy over iterations or epochs. Its curves end at the current position.

    Attributes:
        mean: Line2D of the mean over children.
        band: Polygon of mean +- one standard deviation, clipped at 0 and at ln J.
        children: LineCollection with a line per child if there are at most 40, else None.
        uniform: Line2D at the mean uniform level.
    """

    def draw(self) -> None:
        self._entropies, levels = entropies(self.trace, self.timeline.c)  # (S, I'), (I',)
        self._means, self._spreads = self._entropies.mean(axis=1), self._entropies.std(axis=1)
        self._level = levels.mean()
        self._x = self.timeline.x
        self.figure, self._heading, axes = style.chart(self.medium)
        axes.set_xlim(self._x[0] - 0.4, self._x[-1] + 0.4)
        axes.set_ylabel("coupling entropy H (nat)")
        number_steps(axes, self)
        self._draw_lines(axes, levels)
        style.legend(axes, self.medium)

    def _draw_lines(self, axes: Axes, levels: np.ndarray) -> None:
        highest, line = float(levels.max()), self.medium.line
        axes.set_ylim(0, 1.1 * highest or 1)
        same = bool(np.all(levels == levels[0]))
        level = f"ln {round(math.exp(levels[0]))} = {self._level:.3f}" if same else f"{self._level:.3f} on average"
        dashed: dict[str, Any] = {"color": style.INK, "lw": 1.1 * line, "ls": (0, (4, 3))}
        self.uniform = axes.axhline(self._level, label=f"uniform: {level}", **dashed)
        self.band = Polygon(np.zeros((1, 2)), color=style.ACCENT, alpha=0.22, lw=0, label="± 1 sd")
        axes.add_patch(self.band)
        # No child can be above its uniform level or below 0, but mean +- sd can, so clip the band.
        possible = Rectangle((self._x[0], 0), self._x[-1] - self._x[0], highest, transform=axes.transData)
        self.band.set_clip_path(possible)
        self.children = None
        if self._entropies.shape[1] <= _MAX_CHILD_LINES:
            thin: dict[str, Any] = {"colors": style.MUTED, "linewidths": 0.7 * line, "alpha": 0.45}
            self.children = LineCollection([], label="each child", **thin)
            axes.add_collection(self.children, autolim=False)
        self.mean = axes.plot([], [], color=style.ACCENT, lw=2.4 * line, label="mean over children", clip_on=False)[0]
        self._tip = axes.plot([], [], "o", color=style.ACCENT, ms=7 * line, clip_on=False)[0]

    def show(self, position: float) -> None:
        x, means, spreads, children = until(position, self._x, self._means, self._spreads, self._entropies)
        self.mean.set_data(x, means)
        self._tip.set_data(x[-1:], means[-1:])
        low, high = np.column_stack((x, means - spreads)), np.column_stack((x, means + spreads))
        self.band.set_xy(np.concatenate((low, high[::-1])))
        if self.children is not None:
            self.children.set_segments([np.column_stack((x, child)) for child in children.T])
        share = f", {means[-1] / self._level:.1%} of uniform" if self._level > 0 else ""
        line = f"{self.timeline.title(position)}: mean entropy {means[-1]:.3f} ± {spreads[-1]:.3f} nat{share}"
        self._heading.say(self.choice(position), line)
