"""Which part of an image votes for which parent: the credit of the children of each place, painted onto the image.

An edge's credit is c <u_hat, v>, what its child gives to its parent's length (`graphcaps.analysis.parse_tree` says
when). The credits of the children that see one place are added up for each parent. A sum below 0 is a place that votes
against it, and isn't painted.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from matplotlib.artist import Artist
from matplotlib.image import AxesImage
from matplotlib.text import Text

from graphcaps.errors import required
from graphcaps.routing_trace import RoutingTrace
from graphcaps.viz import style
from graphcaps.viz.routing.entropy import choice_in_words
from graphcaps.viz.routing.timeline import Timeline, between, caption, series, true_parent

SHARP = 4  # power of the cosine that a place fades by
LITTLE = 0.1  # of the largest total weight of a pixel, added to each: fades pixels that hardly any child sees
DIM = 0.3  # of the image where nothing is painted

_MOST = 10  # parents shown one by one
_FINE = 120  # pixels per side that a map is drawn with, about


class Places(NamedTuple):
    """Where children look; children of a convolution share their places."""

    fields: np.ndarray
    """(F, 4): top, left, height, width in pixels."""
    of: np.ndarray
    """(I,): the place of each child."""


def has_places(trace: RoutingTrace) -> bool:
    """Whether a picture of places says something: the trace holds images, and children that see different parts."""
    return trace.images is not None and trace.fields is not None and len(places_of(trace).fields) > 1


def places_of(trace: RoutingTrace) -> Places:
    """The different fields of a trace's children; the trace has some."""
    places, of = np.unique(np.asarray(trace.fields), axis=0, return_inverse=True)
    return Places(places, of.ravel())


def credit_by_place(trace: RoutingTrace, of: np.ndarray, credit: np.ndarray) -> np.ndarray:
    """(S, J, F): credits (S, E) of edges, added up by parent and by the place of the child, ``of`` (I,)."""
    places, parents = int(of.max()) + 1, trace.num_parents
    cells = trace.dst * places + of[trace.src]
    sums = [np.bincount(cells, state, parents * places) for state in credit]
    return np.stack(sums).reshape(len(credit), parents, places)


def windows(fields: np.ndarray, height: int, width: int, fine: int = 1) -> np.ndarray:
    """(F, fine * H, fine * W): how strongly each point of an image belongs to a place; at most 1 over all places.

    A place falls to 0 at the border of its field, and a point that hardly any child sees belongs to no place.
    """
    sides = []
    for axis, size in ((0, height), (1, width)):
        points = (np.arange(fine * size) + 0.5) / fine
        start, side = fields[:, axis, None], fields[:, axis + 2, None]
        angle = np.pi * (points - start - side / 2) / (side + 1)
        sides.append(np.where((points > start) & (points < start + side), np.cos(angle), 0) ** SHARP)
    kernel = sides[0][:, :, None] * sides[1][:, None, :]
    seen = kernel.sum(axis=0)
    return kernel / (seen + LITTLE * seen.max())


def painted(image: np.ndarray, maps: np.ndarray, colors: np.ndarray, most: float) -> np.ndarray:
    """The image (H, W, 3) in [0, 1], dim, and lit in each map's colour; (H, W, 3) in [0, 1].

    Args:
        image: what the maps lie over.
        maps: (N, H, W) >= 0.
        colors: (N, 3) in [0, 1].
        most: the sum of maps that is painted fully.
    """
    weight, tint = maps.sum(axis=0), np.tensordot(maps, colors, axes=(0, 0))
    alpha = np.sqrt(np.minimum(weight / max(most, 1e-9), 1))[..., None]  # the root: weak parts show beside strong ones
    tint /= np.maximum(weight, 1e-9)[..., None]
    return np.clip(DIM * image * (1 - alpha) + alpha * tint * (0.5 + 0.5 * image), 0, 1)


class PlacesPicture:
    """The image with all votes on it, each in its parent's colour, and the votes for each of the longest parents.

    Args:
        trace, over, image: as in ``Timeline.of``; the trace has ``images`` and ``fields``.
        medium: what it is made for.

    Attributes:
        figure: the matplotlib figure.
        timeline: the steps it moves through.
        shown: the parents that are longest in the answer, with a panel of their own each, in their order.
        maps: (S, J, F) credit >= 0 of each place.
        panels: matplotlib images: all votes, then those for each parent of ``shown``.
        moving: the artists that ``show`` changes.

    Raises:
        InputError: the trace holds no images, or not where its children look.
    """

    def __init__(
        self, trace: RoutingTrace, over: str = "iterations", image: int = 0, *, medium: style.Medium = style.SCREEN
    ):
        self._trace, self.timeline = trace, Timeline.of(trace, over, image)
        then = "Traces of training runs hold them"
        pixels = required(trace.images, "trace", "images to paint votes on", then=then)[image]
        required(trace.fields, "trace", "fields of its children", then=then)
        fields, of = places_of(trace)
        credit = self.timeline.c * series(trace, "agreement", over, image)  # (S, E)
        self.maps = np.maximum(credit_by_place(trace, of, credit), 0)
        self._true = true_parent(trace, image)
        self.shown = np.sort(np.argsort(-self.timeline.lengths[-1], kind="stable")[:_MOST])
        self._names = style.short(trace.parent_names)
        self._colors = np.array([style.color(j) for j in range(trace.num_parents)])
        fine = max(1, _FINE // max(pixels.shape[1:]))
        self._windows = windows(fields, pixels.shape[1], pixels.shape[2], fine)
        self._image = style.rgb(pixels).repeat(fine, axis=0).repeat(fine, axis=1)
        self._most = float(self._spread(self.maps[-1]).sum(axis=0).max())
        with style.applied(medium):
            self._lay_out(medium)
            self._source = ", ".join(caption(trace, over, image))
        self.moving: list[Artist] = [*self.panels, *self._titles, *self._heading.artists]
        self.show(self.timeline.end)

    def _lay_out(self, medium: style.Medium) -> None:
        wide, number = medium.width, len(self.shown)
        edge, gap, top = round(0.03 * wide), round(0.012 * wide), 82 if medium.heading else 6
        letters = max(len(self._names[j]) for j in self.shown) + 8  # of "name: 0.93 ✗"
        columns = min(4, number)
        rows = -(-number // columns)
        line = medium.small * 100 / 72 * 1.5  # of a title
        right, most = wide - 2 * edge - gap, 0.44 * wide
        # As high as the panels beside it: big = rows small + (rows - 1) line, small = (right - big) / columns - gap.
        big = min(most, (rows * (right / columns - gap) + (rows - 1) * line) / (1 + rows / columns))
        small = (right - big) / columns - gap
        fit = int(small / (0.66 * medium.small * 100 / 72))  # letters over a panel
        self._two_lines = letters > fit  # of a panel's title
        self._names = [style.cut(name, fit) for name in self._names]
        title = line * (2 if self._two_lines else 1)
        high = max(big, rows * small + (rows - 1) * title)
        self.figure = style.blank(wide, round(top + title + high + edge))
        self._heading = style.Heading.on(self.figure, medium)
        self.panels: list[AxesImage] = []
        self._titles: list[Text] = []
        self._panel(edge, top + title, big, "all votes", medium)
        for n, j in enumerate(self.shown):
            row, column = divmod(n, columns)
            left = edge + big + 2 * gap + column * (small + gap)
            self._panel(left, top + title + row * (small + title), small, f"parent {j}", medium)
        self._titles[0].set_text("all votes")

    def _panel(self, left: float, top: float, side: float, label: str, medium: style.Medium) -> None:
        axes = style.panel(self.figure, label, left, top, side, side)
        self.panels.append(axes.imshow(self._image, interpolation="bilinear"))
        style.bare(axes)
        title = style.write(self.figure, left, top - 4, "", size=medium.small, va="bottom", linespacing=1.05)
        self._titles.append(title)

    def _spread(self, maps: np.ndarray) -> np.ndarray:
        """(J, H, W) of credits (J, F)."""
        return np.tensordot(maps, self._windows, axes=1)

    def show(self, position: float) -> None:
        """Paint the votes at ``position``, in steps from 0."""
        maps = self._spread(between(self.maps, position))
        c, lengths = self.timeline.at(position)
        self.panels[0].set_data(painted(self._image, maps, self._colors, self._most))
        longest, separator = int(lengths.argmax()), "\n" if self._two_lines else ": "
        for panel, title, j in zip(self.panels[1:], self._titles[1:], self.shown, strict=True):
            panel.set_data(painted(self._image, maps[[j]], self._colors[[j]], self._most))
            text = f"{self._names[j]}{separator}{lengths[j]:.2f}"
            is_longest = j == longest and not self.timeline.untrained(position)
            wrong = is_longest and self._true is not None and j != self._true
            title.set(text=text + (" ✗" if wrong else ""), fontweight="bold" if is_longest else "normal")
        line = f"credit c <û, v> by place, {self.timeline.title(position)}"
        self._heading.say(choice_in_words(self._trace, c), line, self._source)
