"""A picture that compares networks: the accuracy of every training, and the mean and standard deviation over seeds."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from graphcaps.viz import style
from graphcaps.viz.routing.timeline import count

_ROW, _BELOW = 34, 52  # heights in pixels of a row, and of the space for the axis below a panel
_APART = 0.16  # largest distance of a dot from the middle of its row, as a share of the row


def compared(result: dict) -> Figure:
    """Draw the accuracies in the result of ``images.summary``, a row per network and a panel per set of images.

    At most two panels are side by side. The figure has no window.
    """
    rows, sets = result["rows"], result["images"]
    most = max(len(row["seeds"]) for row in rows)
    across, tall = min(len(sets), 2), _ROW * len(rows)
    lines = -(-len(sets) // across)
    high = 68 + lines * (tall + _BELOW)
    with style.applied():
        figure = style.blank(style.SCREEN.width, high)
        heading = style.Heading(figure)
        names = [style.cut(row["name"], 40) for row in rows]
        left, right, gap = 0.04 + 0.0092 * max(map(len, names)), 0.955, 0.06
        width = (right - left - gap * (across - 1)) / across
        for k, (key, name) in enumerate(sets.items()):
            line, column = divmod(k, across)
            low = _BELOW + (lines - 1 - line) * (tall + _BELOW)
            axes = figure.add_axes((left + column * (width + gap), low / high, width, tall / high))
            for at, row in enumerate(rows):
                _draw(axes, at, row, key, row["name"] == result["against"])
            axes.set(ylim=(len(rows) - 0.5, -0.5), xlabel=f"accuracy, {name} images")
            axes.set_yticks(range(len(rows)), names if column == 0 else [])
            axes.tick_params(axis="y", length=0)
            axes.locator_params(axis="x", nbins=max(3, 7 // across))
            axes.xaxis.set_major_formatter(FuncFormatter(lambda share, _: f"{100 * share:.6g}%"))
            axes.grid(axis="x", color=style.FAINT, lw=0.6)
            axes.set_axisbelow(True)
        settings = rows[0]["settings"]
        units = {"dataset": "", "epochs": " epochs"}
        source = ", ".join(f"{settings[key]}{unit}" for key, unit in units.items() if key in settings)
        heading.say(f"Compared: {result['plan']}", source, f"{count(most, 'seed')}, a dot each; bar: mean ± sd")
    return figure


def _draw(axes: Axes, at: int, row: dict, key: str, base: bool) -> None:
    color = style.ACCENT if base else style.INK
    values = np.array([seed["accuracy"][key] for seed in row["seeds"]])
    mean, sd = row["images"][key]["mean"], row["images"][key]["sd"]
    offsets = np.linspace(-_APART, _APART, len(values)) if len(values) > 1 else np.zeros(1)
    axes.plot(values, at + offsets, "o", color=color, ms=4, alpha=0.45, mew=0)
    axes.errorbar(mean, at, xerr=sd, fmt="|", color=color, ms=13, mew=2, lw=1.6, capsize=3)
