"""How class capsules change as digits turn and shift: their numbers by angle, and R^2 by parameter and class."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from graphcaps.viz import style

_WIDTH, _HEIGHT = 900, 604  # pixels at 100 dpi
_LEFT, _RIGHT, _GAP = 62, 26, 34
_SIDE = 44  # side of a thumbnail
_CURVES = (142, 160)  # top and height of the panels with the capsules' numbers
_SQUARES = (394, 172)  # top and height of the panels with R^2
_LOOKS = {"rotation": ("o", style.ACCENT), "shift x": ("s", style.INK), "shift y": ("^", style.MUTED)}


def equivariance(measured: dict, images: np.ndarray) -> Figure:
    """Draw a few digits' capsules over the angle, and below them R^2 of the line fits and of the read-outs.

    Args:
        measured: the JSON of ``graphcaps evaluate --on equivariance``, with at most four examples.
        images: (examples, 3, C, H, W) uint8, each example at the first, the middle and the last angle.

    Returns:
        A figure without a window, 900 pixels wide at 100 dpi. Its axes have the labels ``example n``, ``fit`` and
        ``readout``; the lines in the last two have the names of the parameters.
    """
    with style.applied():
        figure = style.blank(_WIDTH, _HEIGHT)
        source = f"{measured['dataset']}, {measured['model']}, {measured['images']:,} test images"
        note = "its numbers, strong: the three that move most; dotted: line fit"
        style.Heading(figure).say("How the winning class's capsule moves", source, note)
        _draw_examples(figure, measured, images)
        wide = (_WIDTH - _LEFT - _RIGHT - 40) / 2
        titles = {"fit": "fit: change of v that a line in p explains", "readout": "read-out: p from v, held-out images"}
        for n, (kind, title) in enumerate(titles.items()):
            axes = style.panel(figure, kind, _LEFT + n * (wide + 40), _SQUARES[0], wide, _SQUARES[1])
            _draw_classes(axes, measured, kind)
            axes.set_title(title, pad=22)
            if n == 0:
                axes.set_ylabel("R²")
                axes.legend(loc="lower left", bbox_to_anchor=(-0.03, 0.97), ncols=3, handletextpad=0.2, columnspacing=1)
    return figure


def _draw_examples(figure: Figure, measured: dict, images: np.ndarray) -> None:
    """Draw a panel for each example, with its three images above it.

    Each of the D numbers is a line over the angle. Those that vary most have strong lines and fits.
    """
    examples, angles = measured["examples"], np.array(measured["parameters"]["rotation"]["values"], float)
    reach = 1.08 * max(float(abs(np.array(example["vectors"])).max()) for example in examples)
    wide = (_WIDTH - _LEFT - _RIGHT - 3 * _GAP) / 4
    for n, example in enumerate(examples):
        left, vectors = _LEFT + n * (wide + _GAP), np.array(example["vectors"])  # (T, D)
        axes = style.panel(figure, f"example {n}", left, _CURVES[0], wide, _CURVES[1])
        strong = np.argsort(-vectors.var(axis=0))[:3]
        axes.plot(angles, np.delete(vectors, strong, axis=1), color=style.FAINT, lw=1)
        for d, color in zip(strong, (style.ACCENT, style.INK, style.PALETTE[2]), strict=False):
            axes.plot(angles, vectors[:, d], color=color, lw=1.8)
            axes.plot(angles, np.polyval(np.polyfit(angles, vectors[:, d], 1), angles), ":", color=color, lw=1.2)
        axes.set(xlim=(angles[0], angles[-1]), ylim=(-reach, reach), xticks=(angles[0], 0, angles[-1]))
        axes.set_xlabel("turned, degrees" if n == 0 else "")
        axes.tick_params(axis="y", labelleft=n == 0)
        explained = "still" if example["fit"] is None else f"R² {example['fit']:.2f}"
        name = style.cut(measured["class_names"][example["class"]], 9)
        axes.set_title(f"{name}: {explained}", pad=0.72 * (_SIDE + 9))
        for place, image in enumerate(images[n]):
            at = left + place * (wide - _SIDE) / 2
            panel = style.panel(figure, f"image {n}.{place}", at, _CURVES[0] - _SIDE - 4, _SIDE, _SIDE)
            style.show_image(panel, image)


def _draw_classes(axes: Axes, measured: dict, kind: str) -> None:
    """Draw R^2 of each class and parameter, at 0 if it is below. Fits also show the standard deviation over images."""
    names = [style.cut(name, 6) for name in measured["class_names"]]
    for n, (parameter, (marker, color)) in enumerate(_LOOKS.items()):
        by_class = [part[kind] for part in measured["parameters"][parameter]["per_class"]]
        at = np.arange(len(names)) + (n - 1) * 0.22
        means = np.clip(np.array([part["mean"] if kind == "fit" else part for part in by_class], float), 0, 1)
        if kind == "fit":
            spread = np.array([part["sd"] for part in by_class], float)
            low, high = np.clip([means - spread, means + spread], 0, 1)
            axes.vlines(at, low, high, color=color, lw=1, alpha=0.6)
        axes.plot(at, means, marker, color=color, ms=5, label=parameter)
    axes.set_xticks(range(len(names)), names)
    if max(map(len, names)) > 4:
        style.turn_names(axes)
    axes.set(ylim=(-0.03, 1.03), xlim=(-0.6, len(names) - 0.4))
    axes.axhline(0, color=style.FAINT, lw=0.8, zorder=0)
    axes.tick_params(axis="x", length=0)
