"""Pictures of results."""

from typing import Any

import numpy as np
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure

from graphcaps.errors import expect
from graphcaps.viz import style

_ERRORS = LinearSegmentedColormap.from_list("errors", ["white", "#f6893d"])


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
    size = max(2, 46 if number <= 12 else min(36, 2160 // number)) * number  # pixels
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
        for (row, column), count in np.ndenumerate(matrix) if number <= 60 else ():  # more would be too small to read
            color = style.INK if count else style.FAINT
            axes.text(column, row, str(count), ha="center", va="center", size=style.SMALL, color=color)
        turn: dict[str, Any] = {"rotation": 45, "ha": "right", "rotation_mode": "anchor"} if turned else {}
        ticks = range(0, number, -(-18 * number // size))  # at most one in 18 pixels
        axes.set_xticks(ticks, names[:: ticks.step], **turn)
        axes.set_yticks(ticks, names[:: ticks.step])
        axes.tick_params(length=0)
        axes.set(xlabel="predicted class", ylabel="true class")
        share = f" ({100 * right / total:.2f} %)" if total else ""
        line = f"{right:,} of {total:,} {unit} right{share}"
        style.Heading(figure).say("Which class is taken for which", line)
    return figure
