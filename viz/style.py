"""The look of every picture: one colour per class everywhere, readable type, white paper.

The ten colours have a contrast of at least 3 : 1 with white paper, as WCAG 2.2 demands for graphics. A search from ten
familiar hues made the nearest two as different as possible, in full colour and in three kinds of colour blindness
(Machado et al. 2009): in Oklab by 0.126, and by 0.077 under protanopia, 0.080 under deuteranopia, 0.052 under
tritanopia. Petroff's cycle (arXiv 2107.02270) has 0.090, 0.061 and 0.084 in the first three; four are below 3 : 1.
"""

from __future__ import annotations

import colorsys
import io
import os
import re
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import matplotlib.style
import numpy as np
from matplotlib import font_manager
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_hex, to_rgb
from matplotlib.figure import Figure

from graphcaps.files import replacing

PALETTE = ("#4779f0", "#e16600", "#a0011f", "#259959", "#7a2cbe", "#a25910", "#ff3ea1", "#2b3f8b", "#5f726b", "#009cb9")
INK = "#22262b"
MUTED = "#5f6670"
FAINT = "#c3c9d2"
SHADE = "#eff1f4"
GLOW = "#ffc845"
ANSWERS = ("#1f5fc9", "#b84e00", "#009cb9", "#2b3f8b", "#ff3ea1", "#a0011f", "#5f726b", "#259959")
ANSWERS_ON_DARK = ("#6fa3ff", "#ff9a4a", "#fde415", "#f416a9", "#088933", "#a519f4", "#b4f9ec", "#beb6c1")
"""Colours of the parents that a picture names, the first two blue and orange; the others are FAINT.

Blue, orange and grey differ in Oklab by 0.25 or more under each kind of colour blindness, all of them by 0.05.
"""

# Fonts of operating systems for characters that DejaVu Sans lacks, such as Chinese or emoji in the name of a class.
FALLBACK_FONTS = re.compile("CJK|Hiragino|YaHei|Yu Gothic|Malgun|WenQuanYi|Noto Emoji|Segoe UI Emoji|Symbola")
TITLE = 13
TEXT = 10
SMALL = 9


@dataclass(frozen=True)
class Medium:
    """A screen or a column of a paper.

    The width is in pixels of 1/100 inch. Sizes of text and small text are in points, dpi is that of a saved bitmap.
    ``line`` is a factor for all line widths. Only with ``heading``, there is text above the picture.
    """

    width: int
    text: float
    small: float
    line: float
    heading: bool
    dpi: int
    paper: str = "white"
    ink: str = INK
    muted: str = MUTED
    faint: str = FAINT
    answers: tuple[str, ...] = ANSWERS


SCREEN = Medium(720, TEXT, SMALL, 1.0, True, 200)
COLUMN = Medium(340, 8, 7, 0.6, False, 300)
"""A column of a paper: 3.4 inches."""
WIDE = replace(SCREEN, width=830)
PAGE = replace(COLUMN, width=690)
"""The width of a paper: 6.9 inches."""


def dark(medium: Medium) -> Medium:
    """The medium for a dark page, in GitHub's colours."""
    return replace(medium, paper="#0d1117", ink="#e6edf3", muted="#9198a1", faint="#4a525f", answers=ANSWERS_ON_DARK)


def color(index: int) -> tuple[float, float, float]:
    """RGB in [0, 1] of class ``index``: ten colours, then the same ten darker, then even darker, then from the start.

    >>> color(0) == color(30) and color(0) != color(10)
    True
    """
    red, green, blue = to_rgb(PALETTE[index % 10])
    hue, light, saturation = colorsys.rgb_to_hls(red, green, blue)
    return colorsys.hls_to_rgb(hue, light * (1, 0.62, 0.36)[index // 10 % 3], saturation)


def hex_color(index: int) -> str:
    """Return ``color(index)`` as ``#rrggbb``."""
    return to_hex(color(index))


def applied(medium: Medium = SCREEN) -> AbstractContextManager[None]:
    """A context that draws in this style, whatever matplotlib settings the caller has."""
    installed = {font.name for font in font_manager.fontManager.ttflist}
    look = {
        "font.family": ["DejaVu Sans", *sorted(filter(FALLBACK_FONTS.search, installed))],
        "font.size": medium.text,
        **dict.fromkeys(("xtick.labelsize", "ytick.labelsize"), medium.small),
        "text.parse_math": False,  # a class may be called $x$
        **dict.fromkeys(("text.color", "axes.labelcolor", "xtick.labelcolor", "ytick.labelcolor"), medium.ink),
        **dict.fromkeys(("axes.edgecolor", "xtick.color", "ytick.color"), medium.muted),
        **dict.fromkeys(("axes.spines.top", "axes.spines.right"), False),
        "image.interpolation": "nearest",
        "savefig.facecolor": medium.paper,
        "pdf.fonttype": 42,  # TrueType, so that text can be selected and edited
        "svg.fonttype": "none",
        "svg.hashsalt": "graphcaps",  # so that the same picture gives the same file
    }
    return matplotlib.style.context(["default", look])


class _Figure(Figure):
    """A figure that a notebook displays without pyplot."""

    def _repr_png_(self) -> bytes:
        file = io.BytesIO()
        with applied():
            self.savefig(file, format="png")
        return file.getvalue()


def blank(width: int, height: int, paper: str = "white") -> Figure:
    """An empty figure of ``width`` x ``height`` pixels, without a window and unknown to pyplot."""
    figure = _Figure(figsize=(width / 100, height / 100), dpi=100, facecolor=paper)
    FigureCanvasAgg(figure)
    return figure


class Heading:
    """The text above a picture: a title, and a line below it."""

    def __init__(self, figure: Figure, medium: Medium = SCREEN):
        height = figure.get_figheight()
        looks: dict[str, Any] = {"va": "top", "visible": medium.heading}
        self._title = figure.text(0.03, 1 - 0.16 / height, "", size=TITLE, weight="bold", **looks)
        self._line = figure.text(0.03, 1 - 0.46 / height, "", size=TEXT, color=medium.muted, **looks)

    def say(self, title: str, line: str) -> None:
        self._title.set_text(title)
        self._line.set_text(line)


def save(figure: Figure, path: str | os.PathLike, medium: Medium = SCREEN) -> None:
    """Write a figure, whole or not at all, in the format of the file's suffix. Equal figures give equal files.

    Args:
        figure: any figure of this package.
        path: ends in .png, .svg or .pdf; the folder is made if it is missing.
        medium: the medium that the figure was drawn for.

    Raises:
        GraphcapsError: the file can't be written. An older file stays unchanged.
    """
    path = Path(path)
    undated = {".pdf": {"CreationDate": None}, ".svg": {"Date": None}}.get(path.suffix)
    with applied(medium), replacing(path) as temporary:
        figure.savefig(temporary, dpi=medium.dpi, metadata=undated)


def displayed(image: np.ndarray) -> np.ndarray:
    """A (C, H, W) image in the layout of imshow: (H, W, 3) for three channels, else the first channel (H, W)."""
    return np.moveaxis(image, 0, -1) if len(image) == 3 else image[0]


def canvas(figure: Figure) -> Axes:
    """Bare axes over the whole figure, in pixels from its top left."""
    wide, tall = figure.get_size_inches() * figure.dpi
    axes = figure.add_axes((0, 0, 1, 1), xlim=(0, wide), ylim=(tall, 0))
    axes.set_axis_off()
    return axes


def cut(name: str, most: int = 14) -> str:
    """Shorten ``name`` to at most ``most`` characters, with its end, because names of classes may begin alike."""
    return name if len(name) <= most else f"{name[: most // 2]}…{name[1 - most + most // 2 :]}"
