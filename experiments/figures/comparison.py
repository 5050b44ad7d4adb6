"""A picture that compares networks: the accuracy of every training, and the mean and standard deviation over seeds."""

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from graphcaps.viz import style
from graphcaps.viz.routing.timeline import count

_ROW, _BELOW = 34, 52  # heights in pixels of a row, and of the space for the axis below a panel


def compared(result: dict) -> Figure:
    """Draw the accuracies in the result of ``images.results``, a row per network and a panel per set of images.

    At most two panels are side by side. The figure has no window.
    """
    rows, sets = result["rows"], result["images"]
    across, tall = min(len(sets), 2), _ROW * len(rows)
    lines = -(-len(sets) // across)
    high = 68 + lines * (tall + _BELOW)
    with style.applied():
        figure = style.blank(style.SCREEN.width, high)
        heading = style.Heading(figure)
        names = [style.cut(row["name"], 40) for row in rows]
        left, gap = 0.04 + 0.0092 * max(map(len, names)), 0.06
        width = (0.955 - left - gap * (across - 1)) / across
        for k, (key, title) in enumerate(sets.items()):
            line, column = divmod(k, across)
            low = _BELOW + (lines - 1 - line) * (tall + _BELOW)
            axes = figure.add_axes((left + column * (width + gap), low / high, width, tall / high))
            for place, row in enumerate(rows):
                color = style.ACCENT if row["name"] == result["against"] else style.INK
                accuracies = [seed["accuracy"][key] for seed in row["seeds"]]
                offsets = np.linspace(-0.16, 0.16, len(accuracies)) if accuracies[1:] else 0
                axes.plot(accuracies, place + offsets, "o", color=color, ms=4, alpha=0.45, mew=0)
                mean, sd = row["images"][key]["mean"], row["images"][key]["sd"]
                axes.errorbar(mean, place, xerr=sd, fmt="|", color=color, ms=13, mew=2, lw=1.6, capsize=3)
            axes.set(ylim=(len(rows) - 0.5, -0.5), xlabel=f"accuracy, {title} images")
            axes.set_yticks(range(len(rows)), names if column == 0 else [])
            axes.tick_params(axis="y", length=0)
            axes.locator_params(axis="x", nbins=max(3, 7 // across))
            axes.xaxis.set_major_formatter(FuncFormatter(lambda share, _: f"{100 * share:.6g}%"))
            axes.grid(axis="x", color=style.FAINT, lw=0.6)
            axes.set_axisbelow(True)
        settings = rows[0]["settings"]
        source = [f"{settings[key]}{unit}" for key, unit in (("dataset", ""), ("epochs", " epochs")) if key in settings]
        most = max(len(row["seeds"]) for row in rows)
        heading.say(
            f"Compared: {result['plan']}", ", ".join(source), f"{count(most, 'seed')}, a dot each; bar: mean ± sd"
        )
    return figure
