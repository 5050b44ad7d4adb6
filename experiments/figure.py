"""Pictures of results: networks compared by a plan, and capsules compared with the true factors of edges."""

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


def compared(result: dict) -> Figure:
    """Draw the networks of a plan, sized for a page of a paper.

    On the left, the accuracy of each seed and their mean; on the right, the difference to the reference, with its 95 %
    interval. There is a row of panels for each set of test images. ``tasks.images`` makes ``result``.
    """
    rows, sets, width = result["rows"], result["images"], style.PAGE.width
    band = 26 * len(rows) + 62
    height, longest = band * len(sets), max(len(row["name"]) for row in rows)
    left, places = min(0.3, (18 + 5.5 * longest) / width), range(len(rows))
    with style.applied(style.PAGE):
        figure = style.blank(width, height)
        for number, (key, title) in enumerate(sets.items()):
            bottom, high = 1 - (band * (number + 1) - 46) / height, 26 * len(rows) / height
            scores = figure.add_axes((left, bottom, 0.6 - left, high))
            gaps = figure.add_axes((0.64, bottom, 0.34, high), sharey=scores)
            gaps.axvline(0, color=style.FAINT, linewidth=0.8)
            for place, row in enumerate(rows):
                numbers = row["images"][key]
                each = [100 * seed["accuracy"][key] for seed in row["seeds"]]
                scores.plot(each, [place] * len(each), ".", color=style.MUTED, markersize=4)
                scores.plot(100 * numbers["mean"], place, "|", color=style.INK, markersize=12)
                if "difference" in numbers:
                    gaps.plot([100 * end for end in numbers["interval"]], [place, place], color=style.INK, linewidth=1)
                    gaps.plot(100 * numbers["difference"], place, "o", color=style.INK, markersize=4)
                else:
                    gaps.text(0, place, " reference", va="center", color=style.MUTED)
            scores.set(ylim=(len(rows) - 0.5, -0.5), xlabel=f"accuracy in %, {numbers['count']:,} images: {title}")
            scores.set_yticks(places, [row["name"] for row in rows])
            gaps.tick_params(labelleft=False)
            gaps.set(xlabel=f"points against {result['against']}, 95 % interval")
    return figure


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
            f"{picture['layer']}, mutual information {picture['score']:.2f}. Node 0, ring: factor, line: capsule",
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
    axes.set_axis_off()
