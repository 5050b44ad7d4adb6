"""What is left of a network's accuracy with fewer edges, beside as many random ones and the weakest."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from graphcaps.viz import style
from graphcaps.viz.story import count


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
        axes.set(xlabel="edges kept", ylabel="test accuracy")
        axes.yaxis.set_major_formatter(PercentFormatter(1, decimals=None))
        style.legend(axes, style.SCREEN)
        source = f"{found['dataset']}, {found['model']}, not trained again"
        draws = count(len(cut[0]["random"]), "draw") if cut else ""
        heading.say(
            "Accuracy with each child's k strongest edges", source, f"random: {draws}, mean and range" * bool(cut)
        )
    return figure
