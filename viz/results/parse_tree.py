"""Draw which parts of an image led to the answer: each link of the parse tree colours the pixels its child depends on.

With saliency, a part is one child with one parent. With receptive fields, many children share a field (32 at each
position in the 2017 paper's network), and those with the same parent form one part.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from graphcaps.errors import expect, required
from graphcaps.viz import style
from graphcaps.viz.routing.timeline import caption, count
from graphcaps.viz.routing.tint import smooth
from graphcaps.viz.routing_trace import RoutingTrace

if TYPE_CHECKING:
    from graphcaps.images.analysis.parse_tree import ParseTree

_WIDTH, _HEIGHT = 900, 420  # pixels at 100 dpi
_TOP, _LEFT, _GAP = 92, 27, 18  # place of the first panel, and the space between panels
_BIG, _SMALL = 232, 72  # sides of the panels in pixels
_COLUMNS, _MAX_PARTS = 4, 12  # columns of small panels, and their largest number
_MAX_NAMED = 5  # at most this many parents are named under the parts
_DIM = 0.3  # brightness of the image where nothing is painted

Field = tuple[int, int, int, int]
"""Top, left, height and width in pixels."""


@dataclass(frozen=True)
class _Part:
    parent: int
    share: float
    """Share of all positive credit."""
    look: np.ndarray
    """(H, W) in [0, 1]: where its child looks."""
    field: Field | None
    """The receptive field, if ``look`` was made from it."""


def parts(trace: RoutingTrace, tree: ParseTree) -> Figure:
    """Draw the image, all parts over it, and the strongest parts one by one with their share of all positive credit.

    Args:
        trace: a trace with ``images``, and with ``saliency`` or ``fields``.
        tree: the trace's tree from ``graphcaps.images.analysis.parse_tree.parse_tree``.

    Returns:
        A figure without a window, 900 pixels wide at 100 dpi. Its axes have the labels ``input``, ``parts`` and
        ``part n``; n counts from 0, the strongest part first.

    Raises:
        InputError: the trace has no images, or neither saliency nor fields of its children.
    """
    then = "Traces of training runs have them"
    images = required(trace.images, "trace", "images to draw parts on", then=then)
    seen = trace.saliency is not None or trace.fields is not None
    expect(seen, "trace", "saliency or fields of its children", "neither", then)
    shown = _parts(trace, tree, images.shape[2:])
    image = style.rgb(images[tree.image])
    names = [style.cut(name) for name in trace.parent_names]
    with style.applied():
        figure = style.blank(_WIDTH, _HEIGHT)
        links = f"{len(tree.edges):,} of {trace.num_edges:,} links make up {100 * tree.keep:g}% of"
        source = ", ".join(caption(trace, "iterations", tree.image))
        style.Heading(figure).say("Parts that made the answer", f"{links} all credit c <û, v>", source)
        label = "" if trace.labels is None else f": {style.cut(trace.parent_names[trace.labels[tree.image]], 20)}"
        style.show_image(_panel(figure, "input", f"input{label}", _LEFT, _TOP, _BIG), images[tree.image])
        second = _LEFT + _BIG + _GAP
        children = len(np.unique(trace.src[tree.edges]))
        places = {part.field for part in shown if part.field}
        title = count(children, "child", "children") + (f" at {count(len(places), 'place')}" if places else "")
        _draw(_panel(figure, "parts", title, second, _TOP, _BIG), image, shown)
        _name_parents(figure, second, shown, names)
        _draw_one_by_one(figure, second + _BIG + _GAP + 4, image, shown, names)
    return figure


def _parts(trace: RoutingTrace, tree: ParseTree, size: tuple[int, ...]) -> list[_Part]:
    """The parts of the tree of an image (H, W), sorted by credit, the largest first."""
    fields = trace.fields if trace.saliency is None else None
    credit: dict[tuple[int, Field | int], float] = defaultdict(float)
    for e in tree.edges.tolist():
        i, j = int(trace.src[e]), int(trace.dst[e])
        credit[j, i if fields is None else tuple(fields[i].tolist())] += float(tree.credit[e])
    total, made = tree.total, []
    for (parent, seen), value in sorted(credit.items(), key=lambda item: -item[1]):
        if isinstance(seen, tuple):
            (top, left, height, width), look = seen, np.zeros(size)
            look[max(top, 0) : top + height, max(left, 0) : left + width] = 1  # fields may cross the border
            made.append(_Part(parent, value / total, look, seen))
        else:
            assert trace.saliency is not None, "children are listed one by one only if there is saliency"
            made.append(_Part(parent, value / total, smooth(trace.saliency[tree.image, seen]), None))
    return made


def _draw(axes: Axes, image: np.ndarray, shown: list[_Part]) -> None:
    """Draw the image (H, W, 3) in [0, 1] dimmed, and tint each part's pixels in its parent's colour, by its share.

    If there is only one part, draw a box around its field.
    """
    maps = np.array([part.share * part.look for part in shown]).reshape(-1, *image.shape[:2])
    colors = np.array([style.color(part.parent) for part in shown]).reshape(-1, 3)
    axes.imshow(_painted(image, maps, colors))
    style.bare(axes)
    if len(shown) == 1 and shown[0].field:
        top, left, height, width = shown[0].field
        box = Rectangle((left - 0.5, top - 0.5), width, height, fill=False, lw=1.2)
        box.set_edgecolor(style.color(shown[0].parent))
        axes.add_patch(box)


def _painted(image: np.ndarray, maps: np.ndarray, colors: np.ndarray) -> np.ndarray:
    """The image (H, W, 3), dimmed, and lit by maps (N, H, W) >= 0 in their colours (N, 3)."""
    weight, tint = maps.sum(axis=0), np.tensordot(maps, colors, axes=(0, 0))
    alpha = np.sqrt(np.minimum(weight / max(weight.max(), 1e-9), 1))[..., None]  # the root makes weak parts visible
    tint /= np.maximum(weight, 1e-9)[..., None]
    return np.clip(_DIM * image * (1 - alpha) + alpha * tint * (0.5 + 0.5 * image), 0, 1)


def _draw_one_by_one(figure: Figure, left: float, image: np.ndarray, shown: list[_Part], names: list[str]) -> None:
    """Draw small panels of the strongest parts, with one note below all of them."""
    short_names = max(map(len, names)) <= 2  # there is no room for long names; the colour shows the parent
    for n, part in enumerate(shown[:_MAX_PARTS]):
        row, column = divmod(n, _COLUMNS)
        title = f"{part.share:.1%}" + (f" to {names[part.parent]}" if short_names else "")
        place = (left + column * (_SMALL + 13), _TOP + row * (_SMALL + 20), _SMALL)
        axes = _panel(figure, f"part {n}", title, *place)
        axes.title.set_fontsize(style.SMALL)
        _draw(axes, image, [part])
    if shown:
        who, its = ("a child", "its") if shown[0].field is None else ("the children of one place", "their")
        more = f"; {len(shown) - _MAX_PARTS:,} weaker left out" if len(shown) > _MAX_PARTS else ""
        words = f"each panel: {who} with one\nparent, and {its} share of all credit{more}"
        style.write(figure, left, _TOP + 3 * (_SMALL + 20), words, color=style.MUTED, linespacing=1.4)


def _name_parents(figure: Figure, left: float, shown: list[_Part], names: list[str]) -> None:
    """Name the parents whose parts have the most credit, with their shares of all credit."""
    shares: dict[int, float] = defaultdict(float)
    for part in shown:
        shares[part.parent] += part.share
    largest = sorted(shares.items(), key=lambda item: -item[1])
    for row, (parent, share) in enumerate(largest[:_MAX_NAMED]):
        top = _TOP + _BIG + 10 + 17 * row
        style.write(figure, left, top, "■", color=style.color(parent))
        style.write(figure, left + 16, top, f"{share:.1%} of all credit to {names[parent]}")


def _panel(figure: Figure, label: str, title: str, left: float, top: float, side: float) -> Axes:
    """Square axes with a title; positions are in pixels."""
    axes = style.panel(figure, label, left, top, side, side)
    axes.set_title(title, size=style.TEXT, pad=3)
    return axes
