"""A picture of two panels: capsules compared with the true factors of edges, and the edges of one node."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.patches import Wedge
from scipy.optimize import linear_sum_assignment

from graphcaps.viz import style

_HEIGHT, _SIDE = 420, 0.40  # height in pixels, and width of the left panel as a share
_END = 0.82  # distance of the edges' ends from the centre; the ring of true factors has radius 1
_MAX_NUMBERS = 10  # with more capsules, the matrix has colours but no numbers


def recovered(picture: dict) -> Figure:
    """Draw which capsules the edges of each factor choose, and all edges of one node.

    Each factor is matched with one capsule, so that as many edges as possible choose the capsule of their factor. A
    capsule has the colour of its factor. In the right panel, the edges of a node are sorted by their true factor. The
    ring has the colours of the true factors, an edge that of its capsule. ``tasks.factors`` makes ``picture``.
    """
    table, edges = np.asarray(picture["table"]), np.asarray(picture["edges"], dtype=int).reshape(-1, 3)
    capsules = linear_sum_assignment(table, maximize=True)[1].tolist()
    order = [*capsules, *(k for k in range(table.shape[1]) if k not in capsules)]
    with style.applied():
        figure = style.blank(style.SCREEN.width, _HEIGHT)
        heading = style.Heading(figure)
        high = style.SCREEN.width / _HEIGHT
        _draw_matrix(figure.add_axes((0.085, 0.15, _SIDE, _SIDE * high)), table[:, order], order)
        _draw_node(figure.add_axes((0.56, 0.11, _SIDE + 0.02, (_SIDE + 0.02) * high)), edges, order)
        heading.say(
            f"Couplings and the {len(table)} factors behind the edges",
            f"layer {picture['layer']}, graph {picture['graph']}, adjusted mutual information {picture['score']:.2f}",
            f"node {picture['node']}: ring, true factor; line, capsule",
        )
    return figure


def _draw_matrix(axes: Axes, table: np.ndarray, order: list[int]) -> None:
    shares = table / table.sum(axis=1, keepdims=True).clip(1)
    axes.imshow(shares, cmap="Greys", vmin=0, vmax=1, aspect="auto")
    if table.shape[1] <= _MAX_NUMBERS:
        for (row, column), share in np.ndenumerate(shares):
            color = "white" if share > 0.5 else style.INK
            axes.text(column, row, f"{100 * share:.0f}", ha="center", va="center", color=color, fontsize=style.SMALL)
    axes.set(xlabel="capsule", ylabel="true factor of the edge, each row 100 %")
    axes.set_xticks(range(len(order)), map(str, order))
    axes.set_yticks(range(len(table)), map(str, range(len(table))))
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    for k, labels in enumerate(zip(axes.get_xticklabels(), axes.get_yticklabels(), strict=False)):
        for label in labels:
            label.set(color=style.color(k), weight="bold")


def _draw_node(axes: Axes, edges: np.ndarray, order: list[int]) -> None:
    neighbour, factor, place = edges[:, 0], edges[:, 1], np.argsort(order)[edges[:, 2]]
    rows = np.lexsort((neighbour, place, factor))
    turn = 360 / max(len(edges), 1)
    angles = np.deg2rad(90 - turn * (np.arange(len(edges)) + 0.5))
    ends = _END * np.stack([np.cos(angles), np.sin(angles)], axis=1)
    colors = [style.color(k) for k in place[rows].tolist()]
    axes.add_collection(LineCollection([[(0, 0), end] for end in ends], colors=colors, linewidths=1.8, zorder=1))
    axes.scatter(*ends.T, color=colors, s=34, zorder=2)
    axes.scatter([0], [0], color=style.INK, s=60, zorder=3)
    start = 90.0
    for k, count in enumerate(np.bincount(factor).tolist()):
        axes.add_patch(Wedge((0, 0), 1.0, start - turn * count, start, width=0.1, color=style.color(k), lw=0))
        start -= turn * count
    axes.set(xlim=(-1.04, 1.04), ylim=(-1.04, 1.04), aspect="equal")
    style.bare(axes)
