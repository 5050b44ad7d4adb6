"""A user's graph as ``CapsuleConv`` routes along it, with edges in the colours of their capsules."""

from typing import Any

import networkx
import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.colors import to_rgb

from graphcaps.errors import check_whole, expect
from graphcaps.viz import style
from graphcaps.viz.routing.entropy import entropies
from graphcaps.viz.routing.layout import laid_out
from graphcaps.viz.routing.picture import Picture
from graphcaps.viz.routing.timeline import between, count

MAX_EDGES = 2000  # edges drawn at most

_THIN = 0.5  # points
_BEND = 0.12  # sideways bend, as a share of the edge's length, if the reverse edge is drawn too
_CURVE = np.linspace(0, 1, 12)[:, None]
_SMALLEST = 4  # points of letters
_PAPER = np.array(to_rgb(style.FAINT))


class NodesPicture(Picture):
    """The graph, with a key.

    An edge has the colour of the capsule that it is coupled with most. Its width grows linearly with this coupling,
    from undecided (all capsules have an equal share) to 1. Its colour goes from grey to the capsule's in the same way.
    A loop is a ring around its node. Two edges between the same nodes, in opposite directions, each bend to their
    right. Parallel edges are drawn as their mean. Names of nodes are written if they fit into the nodes.

    Args:
        node: draw this node and those that vote for it. None draws the whole graph, or, if it has more than 2,000
            edges, the nodes with the most edges.

    Raises:
        InputError: the trace is of another layer than ``CapsuleConv``, or there is no such node.
    """

    def draw(self, node: int | None = None) -> None:
        trace, self.node = self.trace, node
        expect(trace.nodes is not None, "trace", "one of CapsuleConv on a graph with one kind of node", "another")
        pairs, couplings = trace.couplings_of_links(self.timeline.c)
        number = int(pairs.max()) + 1
        if node is not None:
            check_whole("node", node, 0, number - 1, f"a node of the graph, 0 to {number - 1}")
            expect(bool((pairs[:, 1] == node).any()), "node", "one that others vote for", node)
        drawn = edges_to_draw(pairs, node)
        self.edges, self.couplings = pairs[drawn], couplings[:, drawn]  # (P, 2), (S, P, num_caps)
        self.shown, ends = np.unique(self.edges, return_inverse=True)  # (n,) nodes
        self._ends = ends.reshape(-1, 2)  # (P, 2) places in shown
        self.low = 1 / trace.num_caps if trace.num_caps > 1 else 0.0  # the coupling of the thinnest line
        self.words = ("edge", "edges")
        self.names = [f"capsule {j % trace.num_caps}" for j in range(trace.num_parents)]
        self._colors = np.array([style.color(k) for k in range(trace.num_caps)])
        self._draw_graph(self._lay_out(self._size_in_words(number, len(pairs))))
        self._means = entropies(trace, self.timeline.c)[0].mean(axis=1)

    def _size_in_words(self, nodes: int, edges: int) -> str:
        what = f"{count(len(self.shown), 'node')}, {count(len(self.edges), 'edge')}"
        if self.node is not None:
            others = len(self.shown) - 1
            name = self.trace.node_names[self.node] if self.trace.node_names else f"node {self.node}"
            what = f"{name} and {others:,} that vote for it, of {nodes:,} nodes"
        elif len(self.edges) < edges:
            what = f"the {len(self.shown):,} nodes with the most edges, of {nodes:,}"
        recorded = self.trace.about.get("edges")
        what += f"; {recorded} votes are recorded" if recorded else ""
        return f"{self.source}: {what}" if self.source else what

    def _lay_out(self, size_in_words: str) -> Axes:
        """Make the figure, with axes for the graph, its size in words, and a key of the capsules below it."""
        medium, top = self.medium, 72 if self.medium.heading else 6
        side, in_row = 0.78 * medium.width, medium.width // 84
        left, below = (medium.width - side) / 2, top + side + 6
        self.figure = style.blank(medium.width, round(below + 44 + 16 * -(-self.trace.num_caps // in_row)))
        self._heading, canvas = style.Heading(self.figure, medium), style.canvas(self.figure)
        high, wide = self.figure.bbox.height, self.figure.bbox.width
        small: dict[str, Any] = {"size": medium.small, "va": "top"}
        text = f"{size_in_words}\nwidth and colour: the largest coupling c, from {self.low:.2f} to 1.00"
        canvas.text(8, below, text, color=medium.muted, linespacing=1.4, **small)
        for k in range(self.trace.num_caps):
            x, y = 8 + 80 * (k % in_row), below + 38 + 16 * (k // in_row)
            canvas.text(x, y - 2, "■", color=self._colors[k], **small)
            canvas.text(x + 13, y, f"capsule {k}", **small)
        return self.figure.add_axes((left / wide, 1 - (top + side) / high, side / wide, side / high))

    def _draw_graph(self, axes: Axes) -> None:
        at, line = self._positions(), self.medium.line
        self._loops = self._ends[:, 0] == self._ends[:, 1]
        self.order = np.argsort(self.couplings[-1].max(axis=-1), kind="stable")  # of lines: the weakest lies lowest
        start, end = (at[self._ends[self.order, k]] for k in (0, 1))
        pairs = {tuple(pair) for pair in self._ends.tolist()}
        two_way = np.array([(v, u) in pairs for u, v in self._ends[self.order].tolist()])
        across = (end - start)[:, ::-1] * (1, -1) * _BEND * two_way[:, None]  # to the right
        straight = start[:, None] + (end - start)[:, None] * _CURVE
        self.lines = LineCollection(list(straight + across[:, None] * 4 * _CURVE * (1 - _CURVE)), capstyle="round")
        axes.add_collection(self.lines, autolim=False)
        scale = min(1.0, 4 / np.sqrt(len(self.shown)))
        self._thick = float(np.clip(42 / np.sqrt(len(self.edges)), 1.5, 5)) * line
        chosen = np.where(self.shown == self.node, style.GLOW, "white")
        looks: dict[str, Any] = {"facecolors": chosen, "edgecolors": style.MUTED, "lw": 0.6, "zorder": 3}
        self.nodes = axes.scatter(at[:, 0], at[:, 1], s=(18 * scale) ** 2 * line, **looks)
        margin = 0.06 + 0.04 * scale
        axes.set(xlim=(-margin, 1 + margin), ylim=(-margin, 1 + margin))
        axes.set_axis_off()
        self._write_names(axes, at, 10 * scale)

    def _write_names(self, axes: Axes, at: np.ndarray, size: float) -> None:
        """Write names or numbers into the nodes, if letters there aren't too small."""
        texts = [self.trace.node_names[n] if self.trace.node_names else str(n) for n in self.shown]
        size *= self.medium.line * min(1, 2.2 / max(map(len, texts)))
        if size >= _SMALLEST:
            for (x, y), text in zip(at, texts, strict=True):
                axes.text(x, y, text, ha="center", va="center_baseline", size=size, zorder=4)

    def _positions(self) -> np.ndarray:
        """(n, 2) in [0, 1]: the trace's own positions with their proportions kept, else those of networkx."""
        own = self.trace.positions
        if own is not None:
            at = own[self.shown].astype(np.float64)
        else:
            at = laid_out(len(self.shown), self._ends) if self.node is None else self._around(self.node)
        low, high = at.min(axis=0), at.max(axis=0)
        extent = np.maximum(high - low, 1e-9) if own is None else max(float((high - low).max()), 1e-9)
        return 0.5 + (at - (low + high) / 2) / extent

    def _around(self, node: int) -> np.ndarray:
        """(n, 2): the node in the middle, around it those that vote for it, grouped by capsule."""
        ring = self._ends[np.argsort(self.couplings[-1].argmax(axis=1), kind="stable"), 0]
        middle = int(np.searchsorted(self.shown, node))
        graph = networkx.empty_graph(len(self.shown))
        at = networkx.shell_layout(graph, [[middle], ring[ring != middle].tolist()], rotate=0)
        return np.array([at[n] for n in graph])

    def show(self, position: float) -> None:
        couplings = between(self.couplings, position)  # (P, num_caps)
        capsule, c = couplings.argmax(axis=1), couplings.max(axis=1)
        strength = np.clip((c - self.low) / (1 - self.low), 0, 1)[:, None]
        colors = _PAPER + strength * (self._colors[capsule] - _PAPER)
        widths = _THIN * self.medium.line + (self._thick - _THIN * self.medium.line) * strength[:, 0]
        self.lines.set(linewidth=np.where(self._loops, 0, widths)[self.order], color=colors[self.order])
        rings, ring_widths = np.tile(to_rgb(style.MUTED), (len(self.shown), 1)), np.full(len(self.shown), 0.6)
        looped = self._ends[self._loops, 0]
        rings[looped], ring_widths[looped] = colors[self._loops], widths[self._loops]
        self.nodes.set(edgecolors=rings, linewidths=ring_widths)
        mean = float(between(self._means, position))
        line = f"{self.timeline.title(position)}: mean entropy {mean:.3f} nat"
        self._heading.say(self.choice(position), line)


def edges_to_draw(pairs: np.ndarray, node: int | None) -> np.ndarray:
    """(P,) bool: all edges, or those to ``node``. Nodes with the fewest edges are left out to keep at most 2,000."""
    wanted = np.ones(len(pairs), bool) if node is None else pairs[:, 1] == node
    if wanted.sum() <= MAX_EDGES:
        return wanted
    rank = np.argsort(np.argsort(-np.bincount(pairs.ravel()), kind="stable"))  # 0: the node with the most edges
    needed = rank[pairs[:, 0]] if node is not None else rank[pairs].max(axis=1)  # the higher rank of an edge's nodes
    return wanted & (needed < np.sort(needed[wanted])[MAX_EDGES])
