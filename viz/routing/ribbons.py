"""Ribbons: each child is a strip that is cut into its couplings, and each share flows to the bar of its parent.

The shares of a child sum to 1, so nothing is lost on the way, and the height of a bar is the load of its parent.
Parents without a colour of their own share one grey bar. If there are many children, those that are next to each other
in the order share a strip, which shows their mean.
"""

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection

from graphcaps.viz.routing_trace import RoutingTrace

MOST_STRIPS = 48
FILL = 0.72  # share of the height that strips fill; the rest are gaps
_STEPS = np.linspace(0, 1, 36)
_CURVE = _STEPS * _STEPS * (3 - 2 * _STEPS)


def flow(shares: np.ndarray, bar: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Tops and bottoms (G, C, 2) of the C shares of G strips, and the same on the bars (C,) that they flow to.

    They go from 0 at the top to 1 at the bottom. Shares (G, C) sum to 1, and each is equally high at both ends.
    """
    high, strip = FILL * shares, shares.sum(axis=1)
    top = strip.cumsum() - strip * (1 + FILL) / 2  # the strip is in the middle of its row
    start = top[:, None] + high.cumsum(axis=1) - high
    arriving = high.sum(axis=0)
    gaps = (1 - FILL) * (bar / bar[-1] if bar[-1] else 0.5)
    end = arriving.cumsum() - arriving + gaps + high.cumsum(axis=0) - high
    return np.stack((start, start + high), axis=-1), np.stack((end, end + high), axis=-1)


class Ribbons:
    """The ribbons of a trace on axes in pixels.

    Args:
        answer: (E,) couplings that determine the order of the children.
        parents: (P,) parents that have bars and colours of their own. A grey bar in the middle is of all others.
        colors: P colours, and that of the others.
        box: left, top, width and height, from the left of the strips to the right of the bars.
        edges: (K,) the edges whose ribbons are strong; the others are pale. None: all are strong.
    """

    def __init__(
        self,
        axes: Axes,
        trace: RoutingTrace,
        answer: np.ndarray,
        parents: np.ndarray,
        colors: list[Any],
        box: tuple[float, float, float, float],
        edges: np.ndarray | None = None,
    ):
        self._trace, self._box = trace, box
        first, others, place = (len(parents) + 1) // 2, len(parents) < trace.num_parents, np.arange(len(parents))
        self.bars = np.full(trace.num_parents, first)
        self.bars[parents] = place + (place >= first) * others
        own = np.array([*colors[:first], *[colors[-1]] * others, *colors[first : len(parents)]])
        self._bar = bar = np.repeat(np.arange(len(own)), 2)  # (C,) each bar has a strong and a pale share
        pale = np.zeros(trace.num_edges, bool) if edges is None else ~np.isin(np.arange(trace.num_edges), edges)
        mean_bar, linked = trace.per_child(answer * self.bars[trace.dst]), np.unique(trace.src)
        order = linked[np.argsort(mean_bar[linked], kind="stable")]
        self.strips = np.array_split(order, min(MOST_STRIPS, len(order)))
        self._sizes = np.array([len(children) for children in self.strips])
        strip = np.zeros(trace.num_children, int)
        strip[order] = np.repeat(np.arange(len(self.strips)), self._sizes)
        self._cell = strip[trace.src] * len(bar) + 2 * self.bars[trace.dst] + pale
        self._order = np.argsort((bar != first) | (not others), kind="stable")  # the grey ones lie at the back

        def polygons(copies: int, opacities: tuple[float, float]) -> Any:
            rgba = np.column_stack((own[bar], np.tile(opacities, len(own))))[self._order]
            rgba = np.tile(rgba, (copies * len(self.strips), 1))
            return axes.add_collection(PolyCollection([], facecolors=rgba, linewidths=0, zorder=2), autolim=False)

        self.ways, self._blocks = polygons(1, (0.8, 0.15)), polygons(2, (1, 0.3))
        self.show(answer)

    def show(self, c: np.ndarray) -> None:
        """Move the ribbons to couplings ``c`` (E,)."""
        left, top, wide, tall = self._box
        shares = np.bincount(self._cell, c, len(self.strips) * len(self._bar)).reshape(len(self.strips), -1)
        part = self._sizes[:, None] / self._sizes.sum()
        self.shares = shares / shares.sum(axis=1, keepdims=True) * part  # float16 leaves sums near 1
        starts, ends = (top + tall * places for places in flow(self.shares, self._bar))
        self.ends = np.stack((ends[0, ::2, 0], ends[-1, 1::2, 1]), axis=1)  # (B, 2) tops and bottoms of the bars
        self.middles = starts[:, [0, -1], [0, 1]].mean(axis=1)  # (G,) of the strips
        starts, ends = (places[:, self._order].reshape(-1, 2) for places in (starts, ends))
        block = 0.03 * wide  # width of strips and bars
        y = starts[..., None] + (ends - starts)[..., None] * _CURVE  # (G C, 2, points)
        x = np.broadcast_to(left + block + (wide - 2 * block) * _STEPS, y[:, 0].shape)
        there, back = (np.stack((x, y[:, k]), axis=-1) for k in (0, 1))
        self.ways.set_verts(list(np.concatenate((there, back[:, ::-1]), axis=1)))
        corners = np.array([(0, 0), (block, 0), (block, 1), (0, 1)])
        places = [(left, *ends) for ends in starts] + [(left + wide - block, *ends) for ends in ends]
        self._blocks.set_verts([corners * (1, bottom - top) + (x, top) for x, top, bottom in places])
