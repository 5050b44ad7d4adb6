"""A moving histogram of the couplings of all edges, with the uniform value marked."""

import math
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from graphcaps.viz import style
from graphcaps.viz.routing.picture import Picture

_BINS = 35  # about as many bins
_MAX_MARKS = 6  # with more different uniform values, only the smallest and the largest are marked
_LOG_FROM = 100  # from this many edges on, the axis of counts is logarithmic


class HistogramPicture(Picture):
    """Histogram of all couplings, and of those with the parent that is longest in the network's answer.

    Attributes:
        bins: (X + 1,) bin edges, the same at every step. They start at 0 if the smallest coupling is near it; the
            smallest uniform value is the centre of a bin.
        bars: X rectangles; their heights sum to the number of edges.
        winner_bars: X rectangles, in the colour of that parent, for the edges to it.
        uniform: lines at 1 / degree, for the degrees that children have.
    """

    def draw(self) -> None:
        self._winner = int(self.timeline.lengths[-1].argmax())
        self._to_winner = self.trace.dst == self._winner
        low, high = float(self.timeline.c.min()), float(self.timeline.c.max())
        missing = max(0.0, 0.2 * high - (high - low))  # bins span at least a fifth of the largest coupling
        top = min(1.0, high + missing / 2)
        low -= missing - (top - high)
        low = 0.0 if low < 0.3 * top else low
        below = 1 / np.bincount(self.trace.src).max() - low  # from there to the smallest uniform value
        width = below / (max(0, round(below * _BINS / (top - low) - 0.5)) + 0.5)
        self.bins = low + width * np.arange(math.ceil((top - low) / width - 1e-9) + 1)
        self.figure, self._heading, axes = style.chart(self.medium)
        self._draw_bars(axes)
        self._draw_uniform(axes)
        axes.set_xlabel("coupling c" + f"  ({self.source})" * (self.medium.heading and bool(self.source)))
        style.legend(axes, self.medium)

    def _draw_bars(self, axes: Axes) -> None:
        edges, empty = len(self._to_winner), np.zeros(len(self.bins) - 1)
        why = " (most loaded)" if self.trace.agreement is None else " (the answer)"
        winner = self.names[self._winner] + why * self.medium.heading
        looks: dict[str, Any] = {"width": 0.94 * np.diff(self.bins), "align": "edge"}
        every, some = f"all {edges:,} couplings", f"those with {winner}"
        self.bars = list(axes.bar(self.bins[:-1], empty, color=style.FAINT, label=every, **looks))
        color = style.color(self._winner)
        self.winner_bars = list(axes.bar(self.bins[:-1], empty, color=color, label=some, **looks))
        axes.set_xlim(self.bins[0], self.bins[-1])
        axes.set_ylabel("number of couplings")
        if edges >= _LOG_FROM:
            axes.set_ylim(0.7, 1.7 * edges)
            axes.set_yscale("log")
            axes.yaxis.set_major_formatter(lambda count, _: f"{round(count):,}")
        else:
            axes.set_ylim(0, 1.05 * edges)

    def _draw_uniform(self, axes: Axes) -> None:
        degrees = np.unique(
            np.unique(self.trace.src, return_counts=True)[1]
        )  # the different numbers of edges of a child
        fewest, most = degrees[0], degrees[-1]
        shown = degrees if len(degrees) <= _MAX_MARKS else [fewest, most]
        dashed: dict[str, Any] = {"color": style.INK, "lw": 1.1 * self.medium.line, "ls": (0, (4, 3))}
        self.uniform = [axes.axvline(1 / degree, **dashed) for degree in shown]
        self.uniform[0].set_label(f"uniform: 1/{most}" + (f" to 1/{fewest}" if fewest < most else ""))

    def show(self, position: float) -> None:
        c, _ = self.timeline.at(position)
        counts, to_winner = (np.histogram(chosen, self.bins)[0] for chosen in (c, c[self._to_winner]))
        for bars, heights in ((self.bars, counts), (self.winner_bars, to_winner)):
            for bar, height in zip(bars, heights, strict=True):
                bar.set_height(height)
        strong = f"{(c > 0.5).sum():,} of {len(c):,}"
        line = f"{self.timeline.title(position)}: largest coupling {c.max():.3f}, {strong} above one half"
        self._heading.say(self.choice(position), line)
