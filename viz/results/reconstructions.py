"""Images of a trace, and what the decoder makes of them."""

from typing import Any

from matplotlib.figure import Figure

from graphcaps.errors import required
from graphcaps.viz import style
from graphcaps.viz.routing.timeline import caption
from graphcaps.viz.routing_trace import RoutingTrace

_WIDTH, _HEIGHT, _TOP = 900, 310, 70  # pixels at 100 dpi
_LEFT = 90
_MAX_IMAGES = 10


def has_reconstructions(trace: RoutingTrace) -> bool:
    """Whether the trace has images and reconstructions by a trained decoder: before training, it draws noise."""
    return trace.epochs[-1] > 0 and trace.images is not None and trace.reconstructions is not None


def sheet(trace: RoutingTrace) -> Figure:
    """Draw images, and below each the decoder's picture of its longest capsule.

    Returns:
        A figure without a window, 900 pixels wide at 100 dpi. Its axes have the labels ``input n`` and
        ``reconstruction n``, where n is the index of the image.

    Raises:
        InputError: the trace has no reconstructions, or doesn't fit together.
    """
    trace.check()
    images, decoded = trace.images, trace.reconstructions if has_reconstructions(trace) else None
    decoded = required(
        decoded, "trace", "reconstructions", advice="Traces of trained networks with a decoder have them"
    )
    longest = trace.lengths[-1, trace.answer_at].argmax(axis=-1)  # (N,)
    names = {j: style.cut(name, 10) for j, name in enumerate(trace.class_names)}
    step = (_WIDTH - 25 - _LEFT) / _MAX_IMAGES
    with style.applied():
        figure = style.blank(_WIDTH, _HEIGHT)
        source = [word for word in caption(trace, "iterations", 0) if not word.startswith("image")]
        style.Heading(figure).say("Images, and what the decoder makes of the longest capsule", ", ".join(source))
        rows = {"input": 82, "decoded": 162, "longest": 208} | ({"true": 30} if trace.labels is not None else {})
        for name, down in rows.items():
            style.write(figure, 25, _TOP + down, name, color=style.MUTED, va="center")
        assert images is not None, "has_reconstructions has seen them"
        for n, image in enumerate(images[:_MAX_IMAGES]):
            left, side = _LEFT + n * step, step - 6
            middle: dict[str, Any] = {"ha": "center", "va": "center"}
            label, answer = None if trace.labels is None else int(trace.labels[n]), int(longest[n])
            is_wrong = label not in (None, answer)
            if label is not None:
                style.write(figure, left + side / 2, _TOP + rows["true"], names.get(label, str(label)), **middle)
            style.show_image(style.panel(figure, f"input {n}", left, _TOP + 43, side, side), image)
            style.show_image(style.panel(figure, f"reconstruction {n}", left, _TOP + 123, side, side), decoded[n])
            text = names.get(answer, str(answer)) + "\nwrong" * is_wrong
            looks = {"ha": "center", "linespacing": 1.3, "weight": "bold" if is_wrong else "normal"}
            style.write(figure, left + side / 2, _TOP + rows["longest"] - 9, text, **looks)
    return figure
