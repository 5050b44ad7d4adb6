"""Accuracy and each class's recall on transformed test images."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from graphcaps.viz import style

_WIDTH, _LEFT, _RIGHT = 720, 112, 24  # pixels at 100 dpi
_TOP, _CURVE, _BETWEEN, _CELL, _BELOW = 96, 190, 46, 25, 62


def robustness(measured: dict) -> Figure:
    """Draw accuracy and the winning score by severity, and each class's recall below them.

    Both panels share their columns. A cell's number is the recall in percent; its colour shows how much lower it is
    than on the clean images.

    Args:
        measured: the JSON of ``graphcaps evaluate --on``.

    Returns:
        A figure without a window, 720 pixels wide at 100 dpi. Its axes have the labels ``accuracy`` and ``recall``; the
        lines in the first have the labels ``accuracy`` and ``mean winning score``.
    """
    rows, columns = measured["rows"], np.arange(len(measured["rows"]))
    clean, tall, wide = rows[measured["clean"]], _CELL * len(measured["class_names"]), _WIDTH - _LEFT - _RIGHT
    with style.applied():
        figure = style.blank(_WIDTH, _TOP + _CURVE + _BETWEEN + tall + _BELOW)
        _draw_curve(style.panel(figure, "accuracy", _LEFT, _TOP, wide, _CURVE), measured, columns)
        below = style.panel(figure, "recall", _LEFT, _TOP + _CURVE + _BETWEEN, wide, tall)
        _draw_cells(below, measured)
        below.set_xticks(columns, [f"{row['name']}\n{'clean' if row is clean else ' '}" for row in rows])
        below.set_xlabel(measured["says"])
        source = f"{measured['dataset']}, {measured['model']}, {clean['images']:,} test images"
        style.Heading(figure).say(f"Test images, {measured['on']}", source, "with 95 % intervals")
    return figure


def _draw_curve(axes: Axes, measured: dict, columns: np.ndarray) -> None:
    """Draw accuracy with its interval, and the score. Lines don't join image sets, since these have no order."""
    rows, ordered = measured["rows"], measured["says"] != "image set"
    accuracy, score = ([row[key] for row in rows] for key in ("accuracy", "winning_score"))
    low, high = np.transpose([row["interval_95"] for row in rows])
    line, dots = ("-", ":") if ordered else ("", "")
    axes.plot(columns, accuracy, f"o{line}", color=style.ACCENT, lw=2.4, ms=6, label="accuracy")
    axes.plot(columns, score, f"s{dots}", color=style.MUTED, lw=1.4, ms=4, label="mean winning score")
    if ordered:
        axes.fill_between(columns, low, high, color=style.ACCENT, alpha=0.2, lw=0)
    else:
        axes.vlines(columns, low, high, color=style.ACCENT, lw=1.4)
    axes.set(xlim=(-0.5, len(rows) - 0.5), ylim=(0, 1.03), xticks=columns)
    axes.tick_params(axis="x", labelbottom=False)
    axes.yaxis.set_major_formatter(PercentFormatter(1))
    style.legend(axes, style.SCREEN)


def _draw_cells(axes: Axes, measured: dict) -> None:
    """Draw recall per class and severity; the larger the loss against clean images, the more orange the cell."""
    names = measured["class_names"]
    recall = np.array([row["recall"] for row in measured["rows"]], float).T  # (J, S); None becomes NaN
    lost = np.ma.masked_invalid(recall[:, [measured["clean"]]] - recall)
    axes.set_facecolor(style.SHADE)
    axes.imshow(lost, cmap=style.ERRORS, vmin=0, vmax=1, aspect="auto")
    axes.spines[:].set_visible(False)
    axes.hlines(np.arange(len(names) + 1) - 0.5, -0.5, recall.shape[1] - 0.5, color="white", lw=1)
    for (row, column), share in np.ndenumerate(recall):
        text = "-" if np.isnan(share) else f"{100 * share:.0f}"
        axes.text(column, row, text, ha="center", va="center", size=style.SMALL)
    axes.set_yticks(range(len(names)), [style.cut(name, 10) for name in names])
    axes.tick_params(length=0)
    axes.set_title("recall of each class, %; coloured: lost against the clean images", size=style.TEXT)
