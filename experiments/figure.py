"""The picture of the networks that a plan compares."""

from matplotlib.figure import Figure

from graphcaps.viz import style


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
