"""A picture of two panels: capsules compared with the true factors of edges, and the edges of one node."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.patches import Wedge
from scipy.optimize import linear_sum_assignment

from graphcaps.viz import style

_HEIGHT = 420  # pixels
_RING = (1.0, 0.82)  # radius of the ring of true factors, and distance of the edges' ends from the centre
_MAX_NUMBERS = 10  # with more capsules, the matrix has colours but no numbers


def recovered(picture: dict) -> Figure:
    """Draw which capsules the edges of each factor choose, and all edges of one node.

    Each factor is matched with one capsule, so that as many edges as possible choose the capsule of their factor. A
    capsule has the colour of its factor. In the right panel, the edges of a node are sorted by their true factor. The
    ring has the colours of the true factors, an edge that of its capsule. ``tasks.factors`` makes ``picture``.
    """
    table = np.asarray(picture["table"])
    edges = np.asarray(picture["edges"], dtype=int).reshape(-1, 3)
    order = matched(table)
    with style.applied():
        figure = style.blank(style.SCREEN.width, _HEIGHT)
        heading = style.Heading(figure)
        side = 0.40
        matrix = figure.add_axes((0.085, 0.15, side, side * style.SCREEN.width / _HEIGHT))
        _draw_matrix(matrix, table[:, order], order)
        around = figure.add_axes((0.56, 0.11, side + 0.02, (side + 0.02) * style.SCREEN.width / _HEIGHT))
        _draw_node(around, edges, {capsule: place for place, capsule in enumerate(order)})
        heading.say(
            f"Couplings and the {len(table)} factors behind the edges",
            f"layer {picture['layer']}, graph {picture['graph']}, adjusted mutual information {picture['score']:.2f}",
            f"node {picture['node']}: ring, true factor; line, capsule",
        )
    return figure


def matched(table: np.ndarray) -> list[int]:
    """The capsules, ordered by the factors with which they are matched. Capsules without a factor come last.

    >>> matched(np.array([[1, 9, 0], [8, 2, 0]]))
    [1, 0, 2]
    """
    _, capsules = linear_sum_assignment(table, maximize=True)
    return [*map(int, capsules), *(k for k in range(table.shape[1]) if k not in set(capsules))]


def _draw_matrix(axes: Axes, table: np.ndarray, order: list[int]) -> None:
    shares = table / table.sum(axis=1, keepdims=True).clip(1)
    axes.imshow(shares, cmap="Greys", vmin=0, vmax=1, aspect="auto")
    if table.shape[1] <= _MAX_NUMBERS:
        for (row, column), share in np.ndenumerate(shares):
            dark = "white" if share > 0.5 else style.INK
            axes.text(column, row, f"{100 * share:.0f}", ha="center", va="center", color=dark, fontsize=style.SMALL)
    axes.set(xlabel="capsule", ylabel="true factor of the edge, each row 100 %")
    axes.set_xticks(range(len(order)), [str(k) for k in order])
    axes.set_yticks(range(len(table)), [str(k) for k in range(len(table))])
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    for k, labels in enumerate(zip(axes.get_xticklabels(), axes.get_yticklabels(), strict=False)):
        for label in labels:
            label.set(color=style.color(k), weight="bold")


def _draw_node(axes: Axes, edges: np.ndarray, place: dict[int, int]) -> None:
    edges = edges[np.lexsort((edges[:, 0], np.array([place[k] for k in edges[:, 2]]), edges[:, 1]))]
    turn = 360 / max(len(edges), 1)
    angles = np.deg2rad(90 - turn * (np.arange(len(edges)) + 0.5))
    ends = _RING[1] * np.stack([np.cos(angles), np.sin(angles)], axis=1)
    colors = [style.color(place[capsule]) for capsule in edges[:, 2]]
    axes.add_collection(LineCollection([[(0, 0), end] for end in ends], colors=colors, linewidths=1.8, zorder=1))
    axes.scatter(ends[:, 0], ends[:, 1], color=colors, s=34, zorder=2)
    axes.scatter([0], [0], color=style.INK, s=60, zorder=3)
    for factor, count in zip(*np.unique(edges[:, 1], return_counts=True), strict=True):
        before = turn * int((edges[:, 1] < factor).sum())
        axes.add_patch(
            Wedge((0, 0), _RING[0], 90 - before - turn * count, 90 - before, width=0.1, color=style.color(factor), lw=0)
        )
    axes.set(xlim=(-1.04, 1.04), ylim=(-1.04, 1.04), aspect="equal")
    style.bare(axes)
