"""What a benchmark measured, as bars: one panel per table, one bar per formulation."""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from graphcaps.viz import style

_WIDTH = 900  # pixels at 100 dpi
_LEFT, _RIGHT, _HEAD, _ROW, _AROUND = 230, 870, 66, 22, 78  # pixels
_OWN = ("fused", "graphcaps")  # rows that start so are in the accent colour


def bars(work: str, found: dict) -> Figure:
    """Draw one work of what ``graphcaps bench --json`` writes.

    Args:
        work: a key of ``found["works"]``.
        found: with ``machine`` and ``works``; a table has ``name``, ``shown``, ``unit`` and ``rows``, a row ``name``,
            ``note``, ``another_algorithm`` and ``numbers``, among them the one that ``shown`` names.

    Returns:
        A figure without a window, 900 pixels wide at 100 dpi; its axes have the tables' names as labels.
    """
    tables, machine = found["works"][work]["tables"], found["machine"]
    heights = [_ROW * len(table["rows"]) for table in tables]
    height = _HEAD + sum(heights) + _AROUND * len(tables)
    with style.applied():
        figure = style.blank(_WIDTH, height)
        line = f"{machine['processor']}, {machine['device']}, threads: {machine['threads']}, torch {machine['torch']}"
        style.Heading.on(figure).say(f"graphcaps bench {work}", line)
        top = _HEAD
        for table, tall in zip(tables, heights, strict=True):
            low = 1 - (top + 26 + tall) / height
            box = (_LEFT / _WIDTH, low, (_RIGHT - _LEFT) / _WIDTH, tall / height)
            _panel(figure.add_axes(box, label=table["name"]), table)
            top += tall + _AROUND
    return figure


def _panel(axes: Axes, table: dict) -> None:
    shown, rows = table["shown"], table["rows"]
    ends = [row["numbers"].get("high" if shown == "median" else shown, 0) for row in rows]
    most = max(ends, default=0) or 1
    for k, row in enumerate(rows):
        if shown not in row["numbers"]:
            axes.text(0.01 * most, k, style.cut(row["note"], 90), va="center", size=style.SMALL, color=style.MUTED)
            continue
        value = row["numbers"][shown]
        own = row["name"].startswith(_OWN)
        color, hatch = style.ACCENT if own else style.FAINT, "///" if row["another_algorithm"] else None
        axes.barh(k, value, height=0.72, edgecolor="white", linewidth=0, color=color, hatch=hatch)
        end = value
        if shown == "median":
            end = row["numbers"]["high"]
            axes.plot([row["numbers"]["low"], end], [k, k], color=style.INK, lw=1)
        ratio = f"  ({row['numbers']['ratio']:.2g}x {table['reference']})" if "ratio" in row["numbers"] else ""
        axes.text(end + 0.012 * most, k, f"{value:,.3g}{ratio}", va="center", size=style.SMALL)
    axes.set_yticks(range(len(rows)), [row["name"] + (" *" if row["another_algorithm"] else "") for row in rows])
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.set_xlim(0, 1.3 * most)  # room for the numbers
    axes.tick_params(axis="y", length=0)
    unit = "images/s" if shown == "speed" else table["unit"]
    starred = "     * another algorithm" if any(row["another_algorithm"] for row in rows) else ""
    axes.set_title(table["name"], weight="bold")
    axes.set_xlabel(unit + starred)
