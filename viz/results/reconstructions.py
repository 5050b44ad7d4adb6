"""Images of a trace, and what the decoder makes of them."""

from typing import Any

from matplotlib.figure import Figure

from graphcaps.errors import required
from graphcaps.viz import style
from graphcaps.viz.routing.selection import shown_parents
from graphcaps.viz.routing.timeline import caption
from graphcaps.viz.routing_trace import RoutingTrace

_WIDTH, _TOP, _LEFT = 900, 70, 90  # pixels at 100 dpi
_MAX_IMAGES = 10


def has_reconstructions(trace: RoutingTrace) -> bool:
    """Whether the trace has images and reconstructions by a trained decoder: before training, it draws noise."""
    return trace.epochs[-1] > 0 and trace.images is not None and trace.reconstructions is not None


def sheet(trace: RoutingTrace) -> Figure:
    """Draw images, and below each the decoder's picture of each class that the network names, or of the longest.

    Returns:
        A figure without a window, 900 pixels wide at 100 dpi. Its axes have the labels ``input n`` and
        ``reconstruction n``, where n is the index of the image; several of an image have the same label.

    Raises:
        InputError: the trace has no reconstructions, or doesn't fit together.
    """
    trace.check()
    images, decoded = trace.images, trace.reconstructions if has_reconstructions(trace) else None
    advice = "Traces of trained networks with a decoder have them"
    decoded = required(decoded, "trace", "reconstructions", advice=advice)
    assert images is not None, "has_reconstructions has seen them"
    lengths, by_class = trace.lengths[-1, trace.answer_at, :_MAX_IMAGES], trace.decoded_parents
    named = [shown_parents(trace, row) if trace.has_classes else row.argsort()[-1:] for row in lengths]
    columns = [
        [(j, by_class[n, -1, j]) for j in parents] if by_class is not None and len(parents) else [(longest, decoded[n])]
        for n, (parents, longest) in enumerate(zip(named, lengths.argmax(axis=-1), strict=True))
    ]
    step = (_WIDTH - 25 - _LEFT) / _MAX_IMAGES
    rows, side = max(map(len, columns)), step - 6
    with style.applied():
        figure = style.blank(_WIDTH, round(_TOP + 50 + side + rows * (side + 44)))
        source = [word for word in caption(trace, "iterations", 0) if not word.startswith("image")]
        title = f"Images, and what the decoder makes of the {trace.parent_word[1]} that the network names"
        style.Heading(figure).say(title, ", ".join(source))
        tops = [_TOP + 48 + side + k * (side + 44) for k in range(rows)]
        words = {"input": _TOP + 40 + side / 2} | ({"true": _TOP + 30} if trace.labels is not None else {})
        words |= {"decoded": tops[0] + side / 2, "length": tops[0] + side + 11}
        for word, down in words.items():
            style.write(figure, 25, down, word, color=style.MUTED, va="center")
        for n, column in enumerate(columns):
            left, label = _LEFT + n * step, None if trace.labels is None else int(trace.labels[n])
            middle: dict[str, Any] = {"ha": "center", "va": "center"}
            if label is not None:
                style.write(figure, left + side / 2, _TOP + 30, _name(trace, label), **middle)
            style.show_image(style.panel(figure, f"input {n}", left, _TOP + 40, side, side), images[n])
            for (j, image), top in zip(column, tops, strict=False):
                style.show_image(style.panel(figure, f"reconstruction {n}", left, top, side, side), image)
                wrong = label not in (None, int(j))
                text = (
                    f"{_name(trace, j)} {lengths[n, j]:.2f}" if len(named[n]) else f"none\nabove {trace.threshold:.2f}"
                )
                looks = {"ha": "center", "linespacing": 1.3, "weight": "bold" if wrong else "normal"}
                style.write(figure, left + side / 2, top + side + 4, text + "\nwrong" * wrong, **looks)
    return figure


def _name(trace: RoutingTrace, parent: int) -> str:
    return style.cut(trace.class_names[parent], 10) if trace.class_names else str(parent)
