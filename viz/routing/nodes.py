"""A user's graph as ``CapsuleConv`` routes along it: each edge in the colour of the capsule that it is coupled with.

It is drawn as a graph, or, where that would be a tangle, as a matrix of nodes by nodes. Entropy stands beside it.
"""

from __future__ import annotations

import math
from typing import Any

import networkx
import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.colors import to_rgb
from matplotlib.image import AxesImage

from graphcaps.errors import check_name, check_whole, expect
from graphcaps.routing_trace import RoutingTrace
from graphcaps.viz import style
from graphcaps.viz.routing.entropy import choice_in_words, entropies
from graphcaps.viz.routing.layout import shelved
from graphcaps.viz.routing.timeline import Timeline, between, caption, count

VIEWS = ("auto", "graph", "matrix")
MOST = 2000  # edges drawn
TANGLE = 400, 0.25  # more edges than this, and this share of all that there could be: a matrix

_LEAST = 0.01  # coupling above undecided that the widest line stands for at least: less is noise
_THIN = 0.5  # points
_BEND = 0.12  # of an edge whose reverse is drawn too, in its length
_CURVE = np.linspace(0, 1, 12)[:, None]
_SMALL = 150  # nodes
_NUMBERED = 40  # nodes with a number each
_PAPER = np.array(to_rgb(style.FAINT))


def has_nodes(trace: RoutingTrace) -> bool:
    """Whether this is a routing along the edges of a graph with one kind of node."""
    return trace.nodes is not None


class NodesPicture:
    """The graph, or its matrix, with entropy over the steps and a key.

    An edge has the colour of the capsule that it is coupled with most. Its width grows linearly with this coupling,
    from undecided, where all capsules have an equal share, to the largest of all steps; so does its colour, from grey.
    A loop is a ring around its node. Of two edges between the same nodes each bends to its right. Parallel edges, and
    capsules of one source, are drawn as their mean.

    Args:
        trace, over, image: as in ``Timeline.of``; of ``CapsuleConv``.
        node: draw this node and those that vote for it. Without it the whole graph, or, of one with more than 2,000
            edges, the nodes with the most of them.
        view: graph, matrix, or auto: a matrix where the graph would be a tangle.
        medium: what it is made for.

    Attributes:
        figure: the matplotlib figure.
        timeline: the steps it moves through.
        shown: (n,) the nodes that are drawn, ascending.
        edges: (P, 2) nodes of the edges that are drawn.
        shares: (S, P, num_caps) their couplings.
        low, full: the couplings of the thinnest and the widest line.
        lines: LineCollection of the edges, weakest in the answer first, as ``order``; loops have no width. None in a
            matrix.
        cells: the matplotlib image of a matrix, a row for each destination; else None.
        words: what is drawn of the graph.
        moving: the artists that ``show`` changes.

    Raises:
        InputError: a trace of another layer, no such node or view.
    """

    def __init__(
        self,
        trace: RoutingTrace,
        over: str = "iterations",
        image: int = 0,
        *,
        node: int | None = None,
        view: str = "auto",
        medium: style.Medium = style.SCREEN,
    ):
        self._trace, self.timeline, self._medium = trace, Timeline.of(trace, over, image), medium
        expect(has_nodes(trace), "trace", "one of CapsuleConv on a graph with one kind of node", "another")
        check_name("view", view, VIEWS)
        pairs, shares = trace.shares_of_edges(self.timeline.c)
        number = int(pairs.max()) + 1
        if node is not None:
            check_whole("node", node, 0, number - 1, f"a node of the graph, 0 to {number - 1}")
            expect(bool((pairs[:, 1] == node).any()), "node", "one that others vote for", node)
        drawn = of_interest(pairs, node)
        self.edges, self.shares = pairs[drawn], shares[:, drawn]
        self.shown, self._ends = np.unique(self.edges, return_inverse=True)
        self._ends = self._ends.reshape(-1, 2)  # (P, 2) places in shown
        degrees = np.unique(np.bincount(trace.src))
        degrees = degrees[degrees > 0]
        self.low = 1 / degrees[0] if len(degrees) == 1 else 0.0
        by_edge = len(degrees) == 1 and degrees[0] == trace.num_caps
        self._children = ("edge", "edges") if by_edge else ("child", "children")
        self.full = max(float(self.shares.max()), self.low + _LEAST)
        self._colors = np.array([style.color(k) for k in range(trace.num_caps)])
        self._node = node
        self.words = self._in_words(number, len(pairs))
        self.lines: LineCollection | None = None
        self.cells: AxesImage | None = None
        size, room = len(self.shown), len(self.shown) * (len(self.shown) - 1)
        tangled = len(self.edges) > max(TANGLE[0], TANGLE[1] * room)
        with style.applied(medium):
            self._lay_out(medium)
            self._heading = style.Heading.on(self.figure, medium)
            self._source = ", ".join(caption(trace, over, image))
            if view == "matrix" or (view == "auto" and tangled):
                self._draw_matrix(self._main, size)
            else:
                self._draw_graph(self._main, size)
            self._draw_entropy(over)
            self._draw_key()
        self.moving = [*self._artists, self._tip, *self._heading.artists]
        self.show(self.timeline.end)

    def _in_words(self, nodes: int, edges: int) -> str:
        what = f"{count(len(self.shown), 'node')}, {count(len(self.edges), 'edge')}"
        if self._node is not None:
            others = len(self.shown) - 1
            what = f"node {self._node} and {others:,} that vote for it, of {nodes:,} nodes"
        elif len(self.edges) < edges:
            what = f"the {len(self.shown):,} nodes with the most edges, of {nodes:,}"
        recorded = self._trace.about.get("edges")
        return what + (f"; {recorded} votes are recorded" if recorded else "")

    def _lay_out(self, medium: style.Medium) -> None:
        screen = medium is style.SCREEN
        side, top, left = (470, 72, 22) if screen else (324, 6, 8)
        rows = -(-self._trace.num_caps // 2)
        right, below = (550, top + 26) if screen else (44, top + side + 44)
        wide, tall = (148, 150) if screen else (120, 84)
        self._key_at = (right - 34, below + tall + 62) if screen else (190, below - 22)
        height = max(top + side + 34, self._key_at[1] + 76 + 16 * rows, below + tall + 42)
        self.figure = style.blank(medium.width, height)
        self._main = style.panel(self.figure, "graph", left, top, side, side)
        self._chart = style.panel(self.figure, "entropy", right, below, wide, tall)
        looks: dict[str, Any] = {"size": medium.small, "color": style.MUTED}
        style.write(self.figure, left, top + side + 6, self.words, **looks)
        style.write(self.figure, right - 34, below - 22, "coupling entropy (nat)", **looks)

    def _draw_graph(self, axes: Axes, size: int) -> None:
        at = self._places()
        self._loops = self._ends[:, 0] == self._ends[:, 1]
        self.order = np.argsort(self.shares[-1].max(axis=-1), kind="stable")
        start, end = (at[self._ends[self.order, k]] for k in (0, 1))
        there = {tuple(pair) for pair in self._ends.tolist()}
        both = np.array([(v, u) in there for u, v in self._ends[self.order].tolist()])
        across = (end - start)[:, ::-1] * (1, -1) * _BEND * both[:, None]  # to the right
        straight = start[:, None] + (end - start)[:, None] * _CURVE
        self.lines = LineCollection(list(straight + across[:, None] * 4 * _CURVE * (1 - _CURVE)), capstyle="round")
        axes.add_collection(self.lines, autolim=False)
        few = min(1.0, 4 / np.sqrt(size))
        self._thick = float(np.clip(42 / np.sqrt(len(self.edges)), 1.5, 5)) * self._medium.line
        area = (18 * few) ** 2 * self._medium.line
        chosen = np.where(self.shown == self._node, style.GLOW, "white")
        self.nodes = axes.scatter(
            at[:, 0], at[:, 1], s=area, facecolors=chosen, edgecolors=style.MUTED, lw=0.6, zorder=3
        )
        margin = 0.06 + 0.04 * few
        axes.set(xlim=(-margin, 1 + margin), ylim=(-margin, 1 + margin))
        style.bare(axes)
        self._artists: list[Any] = [self.lines, self.nodes, *self._letters(axes, at, 10 * few)]

    def _letters(self, axes: Axes, at: np.ndarray, size: float) -> list[Any]:
        tags, names = self._trace.node_tags, self._trace.tag_names
        texts = [str(n) if tags is None or not names else names[tags[n]] for n in self.shown]
        size *= self._medium.line * min(1, 2.2 / max(map(len, texts)))
        if size < 4 or (tags is None and len(at) > _NUMBERED):
            return []
        looks: dict[str, Any] = {"ha": "center", "va": "center_baseline", "size": size, "zorder": 4}
        return [axes.text(x, y, text, **looks) for (x, y), text in zip(at, texts, strict=True)]

    def _places(self) -> np.ndarray:
        """(n, 2) in [0, 1]: as the trace has them, in their proportions, or by networkx."""
        if self._trace.positions is not None:
            at = self._trace.positions[self.shown].astype(np.float64)
        elif self._node is not None:
            at = self._around(self._node)
        else:
            at = laid_out(len(self.shown), self._ends)
        low, high = at.min(axis=0), at.max(axis=0)
        extent = np.maximum(high - low, 1e-9) if self._trace.positions is None else max(float((high - low).max()), 1e-9)
        return 0.5 + (at - (low + high) / 2) / extent

    def _around(self, node: int) -> np.ndarray:
        """(n, 2): the node in the middle of those that vote for it, those of one capsule side by side."""
        ring = self._ends[np.argsort(self.shares[-1].argmax(axis=1), kind="stable"), 0]
        middle = int(np.searchsorted(self.shown, node))
        graph = networkx.empty_graph(len(self.shown))
        found = networkx.shell_layout(graph, [[middle], ring[ring != middle].tolist()], rotate=0)
        return np.array([found[n] for n in graph])

    def _draw_matrix(self, axes: Axes, size: int) -> None:
        self.cells = axes.imshow(np.ones((size, size, 3)), interpolation="nearest")
        axes.spines[:].set(visible=True, color=style.FAINT)
        axes.set(xticks=[], yticks=[], xlabel="from node", ylabel="to node")
        if size <= _NUMBERED:
            for axis in (axes.xaxis, axes.yaxis):
                axis.set_ticks(range(size), [str(n) for n in self.shown], size=0.8 * self._medium.small)
            axes.tick_params(axis="x", rotation=90)
            axes.tick_params(length=0)
        width, height = self.figure.get_size_inches() * 100
        box = axes.get_position()
        axes.set_position((box.x0 + 24 / width, box.y0 + 24 / height, box.width - 24 / width, box.height - 24 / height))
        self._artists = [self.cells]

    def _draw_entropy(self, over: str) -> None:
        found, levels = entropies(self._trace, self.timeline.c)
        self._means, axes = found.mean(axis=1), self._chart
        self._x = np.arange(len(self.timeline)) + (1 if over == "iterations" else 0)
        axes.axhline(levels.mean(), color=style.INK, lw=self._medium.line, ls=(0, (4, 3)))
        axes.plot(self._x, self._means, color=style.ACCENT, lw=2 * self._medium.line)
        (self._tip,) = axes.plot([], [], "o", color=style.ACCENT, ms=7 * self._medium.line, clip_on=False)
        axes.set_ylim(0, 1.12 * levels.mean() or 1)
        axes.text(self._x[-1], 1.02 * levels.mean(), "undecided", ha="right", va="bottom", size=self._medium.small)
        every = slice(None, None, -(-len(self._x) // 6))
        axes.set_xticks(self._x[every], [str(step) for step in self.timeline.steps[every]])
        axes.set_xlabel(over[:-1], size=self._medium.small)

    def _draw_key(self) -> None:
        """A wedge from undecided to the largest coupling, and the capsules' colours."""
        left, top = self._key_at
        small: dict[str, Any] = {"size": self._medium.small}
        style.write(self.figure, left, top, "largest coupling c of an edge", color=style.MUTED, **small)
        wedge = style.panel(self.figure, "key", left, top + 20, 120, 10)
        wedge.fill_between([0, 1], [0.45, 0], [0.55, 1], color=style.MUTED, lw=0)
        wedge.set(xlim=(0, 1), ylim=(0, 1))
        style.bare(wedge)
        digits = max(2, math.ceil(-math.log10(self.full - self.low)) + 1)
        style.write(self.figure, left, top + 33, f"{self.low:.{digits}f}", **small)
        style.write(self.figure, left + 120, top + 33, f"{self.full:.{digits}f}", ha="right", **small)
        for k in range(self._trace.num_caps):
            x, y = left + (80 if self._medium is style.SCREEN else 68) * (k % 2), top + 56 + 16 * (k // 2)
            style.write(self.figure, x, y - 2, "■", color=self._colors[k], **small)
            style.write(self.figure, x + 13, y, f"capsule {k}", **small)

    def show(self, position: float) -> None:
        """Draw the couplings at ``position``, in steps from 0."""
        shares = between(self.shares, position)  # (P, num_caps)
        capsule, c = shares.argmax(axis=1), shares.max(axis=1)
        strength = np.clip((c - self.low) / (self.full - self.low), 0, 1)
        if self.cells is not None:
            colors = 1 - strength[:, None] * (1 - self._colors[capsule])
            cells = np.ones((len(self.shown), len(self.shown), 3))
            cells[self._ends[:, 1], self._ends[:, 0]] = colors
            self.cells.set_data(cells)
        if self.lines is not None:
            colors = _PAPER + strength[:, None] * (self._colors[capsule] - _PAPER)
            widths = _THIN * self._medium.line + (self._thick - _THIN * self._medium.line) * strength
            straight = np.where(self._loops, 0, widths)
            self.lines.set(linewidth=straight[self.order], color=colors[self.order])
            rings, ring_widths = np.tile(to_rgb(style.MUTED), (len(self.shown), 1)), np.full(len(self.shown), 0.6)
            looped = self._ends[self._loops, 0]
            rings[looped], ring_widths[looped] = colors[self._loops], widths[self._loops]
            self.nodes.set(edgecolors=rings, linewidths=ring_widths)
        mean = float(between(self._means, position))
        self._tip.set_data([between(self._x.astype(float), position)], [mean])
        title = choice_in_words(self._trace, self.timeline.at(position)[0], *self._children)
        self._heading.say(title, f"{self.timeline.title(position)}: mean entropy {mean:.3f} nat", self._source)


def of_interest(pairs: np.ndarray, node: int | None) -> np.ndarray:
    """(P,) which edges are drawn: all, or those to a node, or those among the nodes with the most edges.

    Never more than 2,000; nodes are left out from the one with the fewest edges on.
    """
    wanted = np.ones(len(pairs), bool) if node is None else pairs[:, 1] == node
    if wanted.sum() <= MOST:
        return wanted
    degree = np.bincount(pairs.ravel())
    place = np.empty(len(degree), np.int64)
    place[np.argsort(-degree, kind="stable")] = np.arange(len(degree))
    later = place[pairs[:, 0]] if node is not None else place[pairs].max(axis=1)
    fit = np.cumsum(np.bincount(later[wanted], minlength=len(degree))) <= MOST
    return wanted & (later < fit.sum())


def laid_out(size: int, ends: np.ndarray) -> np.ndarray:
    """(n, 2): each part of the graph by Kamada & Kawai, or by springs where it is large; the same each time."""
    graph = networkx.Graph()
    graph.add_nodes_from(range(size))
    graph.add_edges_from(ends.tolist())
    parts, found = [sorted(part) for part in networkx.connected_components(graph)], []
    for part in parts:
        own = graph.subgraph(part)
        if len(part) <= _SMALL:
            at = networkx.kamada_kawai_layout(own)
        else:
            iterations = 200 if len(part) < 500 else 50
            at = networkx.spring_layout(own, k=2.5 / np.sqrt(len(part)), iterations=iterations, seed=0)
        at = np.sqrt(len(part)) * np.array([at[n] for n in part])
        found.append(at - at.min(axis=0))
    return shelved(parts, found)
