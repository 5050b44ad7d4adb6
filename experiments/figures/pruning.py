"""What is left of a network's accuracy with fewer edges, beside as many random ones and the weakest."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from graphcaps.viz import style
from graphcaps.viz.routing.timeline import count

_LINE = 0.045  # of the figure: the labels' second line
_APART = 0.06  # of the largest count: labels nearer than this would touch


def accuracy_by_edges(found: dict) -> Figure:
    """Draw test accuracy over the edges kept.

    Args:
        found: what ``graphcaps prune`` writes as prune.json.

    Returns:
        A figure without a window; its lines have the labels ``strongest``, ``random`` and ``weakest``.
    """
    *cut, whole = found["rows"]
    edges = [row["edges"] for row in found["rows"]]
    full = whole["strongest"]["test_accuracy"]
    lines = {
        "strongest": ([row["strongest"]["test_accuracy"] for row in cut], style.ACCENT, "o-", 2.4),
        "random": (
            [np.mean([score["test_accuracy"] for score in row["random"]]) for row in cut],
            style.MUTED,
            "o-",
            1.4,
        ),
        "weakest": ([row["weakest"]["test_accuracy"] for row in cut], style.PALETTE[2], "o:", 1.4),
    }
    with style.applied():
        figure, heading, axes = style.chart(style.SCREEN)
        axes.axhline(full, color=style.INK, lw=1.1, ls=(0, (4, 3)), label="all edges")
        for name, (values, color, looks, width) in lines.items():
            size = 2.6 * width
            axes.plot(edges, [*values, full], looks, color=color, lw=width, ms=size, label=name)
        if cut:
            drawn = np.array([[score["test_accuracy"] for score in row["random"]] for row in cut])  # (rows, draws)
            low, high = (np.append(ends, full) for ends in (drawn.min(axis=1), drawn.max(axis=1)))
            axes.fill_between(edges, low, high, color=style.MUTED, alpha=0.2, lw=0)
        axes.set(xlabel="edges kept, k per child", ylabel="test accuracy")
        axes.set_xticks(edges, _labels(found["rows"]), linespacing=1.3)
        box = axes.get_position()
        axes.set_position((box.x0, box.y0 + _LINE, box.width, box.height - _LINE))
        axes.yaxis.set_major_formatter(PercentFormatter(1, decimals=None))
        style.legend(axes, style.SCREEN)
        source = f"{found['dataset']}, {found['model']}, not trained again"
        draws = count(len(cut[0]["random"]), "draw") if cut else ""
        heading.say(
            "Accuracy with each child's k strongest edges", source, f"random: {draws}, mean and range" * bool(cut)
        )
    return figure


def _labels(rows: list[dict]) -> list[str]:
    """Edges and k of each row; of those too near each other the larger is labelled."""
    labels, last = [], float("inf")
    for row in reversed(rows):
        apart = last - row["edges"] >= _APART * rows[-1]["edges"]
        labels.append(
            f"{style.thousands(row['edges'])}\n" + (f"k = {row['k']}" if row["k"] else "all") if apart else ""
        )
        last = row["edges"] if apart else last
    return labels[::-1]
