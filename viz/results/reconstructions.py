"""Images of a trace, and what the decoder makes of them."""

from matplotlib.figure import Figure

from graphcaps.errors import required
from graphcaps.viz import style
from graphcaps.viz.routing.selection import shown_parents
from graphcaps.viz.routing.timeline import caption
from graphcaps.viz.routing_trace import RoutingTrace

_MAX_IMAGES = 10
_STEP, _SIDE, _LEFT, _TOP = 87, 78, 25, 92  # pixels at 100 dpi


def has_reconstructions(trace: RoutingTrace) -> bool:
    """Whether the trace has images and reconstructions by a trained decoder: before training, it draws noise."""
    return trace.epochs[-1] > 0 and trace.images is not None and trace.reconstructions is not None


def sheet(trace: RoutingTrace) -> Figure:
    """Draw images, and below each the decoder's picture of each class that the network names, or else of the longest.

    Returns:
        A figure without a window, 900 pixels wide at 100 dpi. Its axes have the labels ``input n`` and
        ``reconstruction n``, where n is the index of the image; several of an image have the same label.

    Raises:
        InputError: the trace has no reconstructions, or doesn't fit together.
    """
    trace.check()
    decoded, advice = trace.reconstructions, "Traces of trained networks with a decoder have them"
    shown = trace.images if has_reconstructions(trace) else None
    images = required(shown, "trace", "reconstructions", advice=advice)[:_MAX_IMAGES]
    assert decoded is not None, "has_reconstructions has seen them"
    lengths = trace.lengths[-1, trace.answer_at, :_MAX_IMAGES]
    columns = [[(int(longest), decoded[n])] for n, longest in enumerate(lengths.argmax(axis=-1))]
    if trace.decoded_parents is not None:
        for n, column in enumerate(columns):
            column[:] = [(j, trace.decoded_parents[n, -1, j]) for j in shown_parents(trace, lengths[n])] or column
    names = [style.cut(name, 10) for name in trace.parent_names]
    with style.applied():
        figure = style.blank(900, _TOP + 106 + 124 * max(map(len, columns)))
        source = [word for word in caption(trace, "iterations", 0) if not word.startswith("image")]
        title = f"Images, and the {trace.parent_word[1]} that the network names, decoded, with their lengths"
        style.Heading(figure).say(title, ", ".join(source))
        for n, (image, column) in enumerate(zip(images, columns, strict=True)):
            left, label = _LEFT + n * _STEP, None if trace.labels is None else int(trace.labels[n])
            text = "" if label is None else f"label {names[label]}"
            for k, (j, pixels) in enumerate([(label or 0, image), *column]):
                top = _TOP + 124 * k - 18 * (k > 0)
                kind = f"{'reconstruction' if k else 'input'} {n}"
                axes = style.panel(figure, kind, left, top, _SIDE, _SIDE)
                axes.imshow(style.displayed(pixels), vmin=0, vmax=255, cmap="gray")
                style.bare(axes)
                if k:
                    above = not trace.has_classes or lengths[n, j] > trace.threshold
                    text = f"{names[j]} {lengths[n, j]:.2f}" if above else f"none\nabove {trace.threshold:.2f}"
                    text += "\nwrong" * (label not in (None, j))
                bold = "bold" if text.endswith("wrong") else "normal"
                style.write(figure, left + _SIDE / 2, top + _SIDE + 4, text, ha="center", weight=bold, linespacing=1.3)
    return figure
