"""Pictures of results: the confusion matrix, and images with what the decoder makes of them."""

import numpy as np
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure

from graphcaps.errors import expect, required
from graphcaps.viz import style
from graphcaps.viz.routing.selection import shown_parents
from graphcaps.viz.routing.timeline import caption
from graphcaps.viz.routing_trace import RoutingTrace

_ERRORS = LinearSegmentedColormap.from_list("errors", ["white", "#f6893d"])
_MAX_IMAGES = 10
_STEP, _SIDE, _LEFT, _TOP = 87, 78, 25, 92  # pixels at 100 dpi, of a sheet's images


def confusion(matrix: np.ndarray, class_names: tuple[str, ...] = (), unit: str = "images") -> Figure:
    """Draw a confusion matrix. An error's colour shows its share of the true class, on the same scale in all pictures.

    Args:
        matrix: (J, J) integers >= 0. A row is a true class, a column a predicted class.
        class_names: J names, or none to number the classes 0 to J - 1.
        unit: what the matrix counts; if images show several objects, these are counted.

    Returns:
        A figure without a window: ``confusion(...).savefig("confusion.png")``.

    Raises:
        InputError: the matrix isn't a square of counts, or there aren't J names.

    >>> confusion(np.array([[9, 1], [0, 10]]), ("cat", "dog")).axes[0].get_xlabel()
    'predicted class'
    """
    matrix = np.asarray(matrix)
    square = matrix.ndim == 2 and matrix.shape[0] == matrix.shape[1] and matrix.size > 0
    expect(square, "matrix", "(J, J) counts", matrix.shape)
    whole = np.issubdtype(matrix.dtype, np.integer) and matrix.min() >= 0
    expect(bool(whole), "matrix", "integers >= 0", f"{matrix.dtype} from {matrix.min()}")
    number = len(matrix)
    expect(len(class_names) in (0, number), "class_names", f"{number} names or none", len(class_names))
    names = [style.cut(name) for name in class_names or map(str, range(number))]
    longest = max(map(len, names))
    turned = longest > 4
    size = (46 if number <= 12 else 36) * number  # pixels
    left, below = 40 + 7.5 * longest, 40 + (5.5 * longest if turned else 14)
    width, height = max(left + size + 20, 380), 70 + size + below
    right, total = int(matrix.trace()), int(matrix.sum())
    errors = np.ma.masked_array(matrix / np.maximum(1, matrix.sum(axis=1, keepdims=True)), np.eye(number, dtype=bool))
    with style.applied():
        figure = style.blank(round(width), round(height))
        axes = figure.add_axes((left / width, below / height, size / width, size / height), facecolor=style.SHADE)
        axes.imshow(errors, cmap=_ERRORS, vmin=0, vmax=1)
        axes.spines[:].set_visible(False)
        lines = np.arange(number + 1) - 0.5
        axes.hlines(lines, -0.5, number - 0.5, color="white", lw=1)
        axes.vlines(lines, -0.5, number - 0.5, color="white", lw=1)
        for (row, column), count in np.ndenumerate(matrix):
            color = style.INK if count else style.FAINT
            axes.text(column, row, str(count), ha="center", va="center", size=style.SMALL, color=color)
        turn = {"rotation": 45, "ha": "right", "rotation_mode": "anchor"} if turned else {}
        axes.set_xticks(range(number), names, **turn)
        axes.set_yticks(range(number), names)
        axes.tick_params(length=0)
        axes.set(xlabel="predicted class", ylabel="true class")
        share = f" ({100 * right / total:.2f} %)" if total else ""
        line = f"{right:,} of {total:,} {unit} right{share}"
        style.Heading(figure).say("Which class is taken for which", line)
    return figure


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
