"""A moving histogram of the couplings of all edges, with the uniform value marked."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes

from graphcaps.routing_trace import RoutingTrace
from graphcaps.viz import style
from graphcaps.viz.routing.entropy import CHOICE, choice_in_words
from graphcaps.viz.routing.timeline import Timeline, caption, wide_range

_BINS = 35  # on 0 to 1, a tenth and a half are the middle of one
_MARKS = 6  # uniform values marked; of more, the smallest and the largest
_LOG_FROM = 100  # edges: with fewer, counts are read off a linear axis


def bins_of(c: np.ndarray) -> np.ndarray:
    """(36,) bin edges from the smallest to the largest of the couplings, or from 0 where that is near."""
    low, high = wide_range(c)
    return np.linspace(0.0 if low < 0.3 * high else low, high, _BINS + 1)


class HistogramPicture:
    """Histogram of the couplings of all edges, and of those with the parent that is longest in the network's answer.

    Args:
        trace, over, image: as in ``Timeline.of``.
        medium: what it is made for.

    Attributes:
        figure: the matplotlib figure.
        timeline: the steps it moves through.
        bins: (36,) bin edges, the same at every step.
        bars: 35 rectangles; their heights sum to the number of edges.
        winner_bars: 35 rectangles for the edges to the parent that is longest in the answer, in its colour.
        uniform: the lines at 1 / number of edges, for the numbers that children have.
        moving: the artists that ``show`` changes.
    """

    def __init__(
        self, trace: RoutingTrace, over: str = "iterations", image: int = 0, *, medium: style.Medium = style.SCREEN
    ):
        self.timeline = Timeline.of(trace, over, image)
        winner = int(self.timeline.lengths[-1].argmax())
        self._trace = trace
        self._to_winner = trace.dst == winner
        degrees = np.unique(np.bincount(trace.src))
        self._degrees = degrees[degrees > 0]
        self.bins = bins_of(self.timeline.c)
        with style.applied(medium):
            self.figure, self._heading, axes = style.chart(medium)
            named = style.short(trace.parent_names)[winner]
            self._draw_bars(axes, named + " (the answer)" * medium.heading, style.color(winner))
            self._draw_uniform(axes, 1.1 * medium.line)
            source = ", ".join(caption(trace, over, image)) if medium.heading else ""
            axes.set_xlabel("coupling c" + (f"  ({source})" if source else ""))
            style.legend(axes, medium)
        self.moving = [*self.bars, *self.winner_bars, *self.uniform, *self._heading.artists]
        self.show(self.timeline.end)

    def _draw_bars(self, axes: Axes, winner: str, color: tuple[float, float, float]) -> None:
        edges, width = len(self._to_winner), np.diff(self.bins)
        empty = np.zeros(_BINS)
        every, some = f"all {style.thousands(edges)} couplings", f"those with {winner}"
        looks: dict[str, Any] = {"width": 0.94 * width, "align": "edge"}
        self.bars = list(axes.bar(self.bins[:-1], empty, color=style.FAINT, label=every, **looks))
        self.winner_bars = list(axes.bar(self.bins[:-1], empty, color=color, label=some, **looks))
        axes.set_xlim(self.bins[0], self.bins[-1])
        axes.set_ylabel("number of couplings")
        if edges >= _LOG_FROM:
            axes.set_ylim(0.7, 1.7 * edges)
            axes.set_yscale("log")
            axes.yaxis.set_major_formatter(lambda count, _: style.thousands(round(count)))
        else:
            axes.set_ylim(0, 1.05 * edges)

    def _draw_uniform(self, axes: Axes, width: float) -> None:
        fewest, most = self._degrees[0], self._degrees[-1]
        shown = self._degrees if len(self._degrees) <= _MARKS else [fewest, most]
        dashed: dict[str, Any] = {"color": style.INK, "lw": width, "ls": (0, (4, 3))}
        self.uniform = [axes.axvline(1 / degree, **dashed) for degree in shown]
        self.uniform[0].set_label(f"uniform: 1/{most}" + (f" to 1/{fewest}" if fewest < most else ""))

    def show(self, position: float) -> None:
        """Set the bars to the couplings at ``position``, in steps from 0."""
        c, _ = self.timeline.at(position)
        counts, to_winner = (np.histogram(chosen, self.bins)[0] for chosen in (c, c[self._to_winner]))
        for bars, heights in ((self.bars, counts), (self.winner_bars, to_winner)):
            for bar, height in zip(bars, heights, strict=True):
                bar.set_height(height)
        strong = f"{style.thousands(int((c > CHOICE).sum()))} of {style.thousands(len(c))}"
        line = f"{self.timeline.title(position)}: largest coupling {c.max():.3f}, {strong} above one half"
        self._heading.say(choice_in_words(self._trace, c), line)
