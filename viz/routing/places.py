"""Votes painted onto the image: the credit of the children of each place, by parent.

An edge's credit is c <u_hat, v>, its child's part of the parent's length; `graphcaps.analysis.parse_tree` lists the
routings for which this holds. The credits of the children that see one place are added up for each parent. If the sum
is below 0, the place votes against the parent and isn't painted.
"""

from __future__ import annotations

import numpy as np
from matplotlib.image import AxesImage
from matplotlib.text import Text

from graphcaps.errors import required
from graphcaps.viz import style
from graphcaps.viz.routing.entropy import choice_in_words
from graphcaps.viz.routing.picture import Picture
from graphcaps.viz.routing.timeline import between, series
from graphcaps.viz.routing_trace import RoutingTrace

SHARPNESS = 4  # a place's weight is a cosine to this power; it is 0 at the border
FADE = 0.1  # share of the largest total weight that is added to each pixel's, so that pixels few children see are faint
DIM = 0.3  # brightness of the image where nothing is painted

_MAX_PARENTS = 10  # parents with a panel of their own at most
_MAP_SIDE = 120  # pixels of a map's longer side, about


def places_of(trace: RoutingTrace) -> tuple[np.ndarray, np.ndarray]:
    """The different fields of a trace's children, (F, 4) as in the trace, and each child's index into them, (I,)."""
    places, place_of = np.unique(np.asarray(trace.fields), axis=0, return_inverse=True)
    return places, place_of.ravel()


def credit_by_place(trace: RoutingTrace, place_of: np.ndarray, credit: np.ndarray) -> np.ndarray:
    """(S, J, F): add up the credits (S, E) of edges by parent and by the child's place, ``place_of`` (I,)."""
    places, parents = int(place_of.max()) + 1, trace.num_parents
    cells = trace.dst * places + place_of[trace.src]
    sums = [np.bincount(cells, state, parents * places) for state in credit]
    return np.stack(sums).reshape(len(credit), parents, places)


def windows(fields: np.ndarray, height: int, width: int, fine: int = 1) -> np.ndarray:
    """(F, fine * H, fine * W) weights of each place at the points of an image. They sum to at most 1 over places.

    A place's weight falls to 0 at the border of its field. A point that hardly any child sees has small weights.
    """
    sides = []
    for axis, size in ((0, height), (1, width)):
        points = (np.arange(fine * size) + 0.5) / fine
        start, side = fields[:, axis, None], fields[:, axis + 2, None]
        angle = np.pi * (points - start - side / 2) / (side + 1)
        sides.append(np.where((points > start) & (points < start + side), np.cos(angle), 0) ** SHARPNESS)
    kernel = sides[0][:, :, None] * sides[1][:, None, :]
    seen = kernel.sum(axis=0)
    return kernel / (seen + FADE * seen.max())


def painted(image: np.ndarray, maps: np.ndarray, colors: np.ndarray, most: float) -> np.ndarray:
    """The dimmed image, lit in each map's colour; (H, W, 3) in [0, 1].

    Args:
        image: (H, W, 3) in [0, 1], under the maps.
        maps: (N, H, W) >= 0.
        colors: (N, 3) in [0, 1].
        most: the sum of maps at which a pixel has the full colour.
    """
    weight, tint = maps.sum(axis=0), np.tensordot(maps, colors, axes=(0, 0))
    alpha = np.sqrt(np.minimum(weight / max(most, 1e-9), 1))[..., None]  # the root makes weak parts visible
    tint /= np.maximum(weight, 1e-9)[..., None]
    return np.clip(DIM * image * (1 - alpha) + alpha * tint * (0.5 + 0.5 * image), 0, 1)


class PlacesPicture(Picture):
    """The image with all votes on it, each in its parent's colour, and a panel of votes for each longest parent.

    Attributes:
        shown: the parents that are longest in the answer, ascending; each has a panel of its own.
        maps: (S, J, F) credit >= 0 of each place.
        panels: matplotlib images: one of all votes, then one for each parent of ``shown``.

    Raises:
        InputError: the trace has no images, or no fields of its children.
    """

    @staticmethod
    def suits(trace: RoutingTrace) -> bool:
        return trace.images is not None and trace.fields is not None and len(places_of(trace)[0]) > 1

    def draw(self) -> None:
        trace, then = self.trace, "Traces of training runs have them"
        pixels = required(trace.images, "trace", "images to paint votes on", then=then)[self.image]
        required(trace.fields, "trace", "fields of its children", then=then)
        fields, place_of = places_of(trace)
        credit = self.timeline.c * series(trace, "agreement", self.timeline.over, self.image)  # (S, E)
        self.maps = np.maximum(credit_by_place(trace, place_of, credit), 0)
        self.shown = np.sort(np.argsort(-self.timeline.lengths[-1], kind="stable")[:_MAX_PARENTS])
        self._colors = np.array([style.color(j) for j in range(trace.num_parents)])
        fine = max(1, _MAP_SIDE // max(pixels.shape[1:]))
        self._windows = windows(fields, pixels.shape[1], pixels.shape[2], fine)
        self._pixels = style.rgb(pixels).repeat(fine, axis=0).repeat(fine, axis=1)
        self._most = float(self._spread(self.maps[-1]).sum(axis=0).max())
        self._lay_out()

    def _lay_out(self) -> None:
        """Place a large panel for all votes, and next to it rows of up to four small ones."""
        medium, number = self.medium, len(self.shown)
        wide, edge, gap = medium.width, round(0.03 * medium.width), round(0.012 * medium.width)
        top = 82 if medium.heading else 6
        columns = min(4, number)
        rows = -(-number // columns)
        line = medium.small * 100 / 72 * 1.5  # pixels of a line of a title
        right, most = wide - 2 * edge - gap, 0.44 * wide
        # Make it as high as the rows: big = rows small + (rows - 1) line, small = (right - big) / columns - gap.
        big = min(most, (rows * (right / columns - gap) + (rows - 1) * line) / (1 + rows / columns))
        small = (right - big) / columns - gap
        fit = int(small / (0.66 * medium.small * 100 / 72))  # letters over a small panel
        self._two_lines = max(len(self.names[j]) for j in self.shown) + len(": 0.93 ✗") > fit
        self.names = [style.cut(name, fit) for name in self.names]
        title = line * (2 if self._two_lines else 1)
        high = max(big, rows * small + (rows - 1) * title)
        self.figure = style.blank(wide, round(top + title + high + edge))
        self._heading = style.Heading.on(self.figure, medium)
        self.panels: list[AxesImage] = []
        self._titles: list[Text] = []
        self._add_panel(edge, top + title, big, "all votes")
        for n, j in enumerate(self.shown):
            row, column = divmod(n, columns)
            left = edge + big + 2 * gap + column * (small + gap)
            self._add_panel(left, top + title + row * (small + title), small, f"parent {j}")
        self._titles[0].set_text("all votes")

    def _add_panel(self, left: float, top: float, side: float, label: str) -> None:
        axes = style.panel(self.figure, label, left, top, side, side)
        self.panels.append(axes.imshow(self._pixels, interpolation="bilinear"))
        style.bare(axes)
        title = style.write(self.figure, left, top - 4, "", size=self.medium.small, va="bottom", linespacing=1.05)
        self._titles.append(title)

    def _spread(self, maps: np.ndarray) -> np.ndarray:
        """Spread credits (J, F) over the image, to (J, H, W)."""
        return np.tensordot(maps, self._windows, axes=1)

    def show(self, position: float) -> None:
        maps = self._spread(between(self.maps, position))
        c, lengths = self.timeline.at(position)
        self.panels[0].set_data(painted(self._pixels, maps, self._colors, self._most))
        longest, separator = int(lengths.argmax()), "\n" if self._two_lines else ": "
        for panel, title, j in zip(self.panels[1:], self._titles[1:], self.shown, strict=True):
            panel.set_data(painted(self._pixels, maps[[j]], self._colors[[j]], self._most))
            is_longest = j == longest and not self.timeline.untrained(position)
            wrong = bool(is_longest and self.true is not None and j != self.true)
            text = f"{self.names[j]}{separator}{lengths[j]:.2f}" + " ✗" * wrong
            title.set(text=text, fontweight="bold" if is_longest else "normal")
        line = f"credit c <û, v> by place, {self.timeline.title(position)}"
        self._heading.say(choice_in_words(self.trace, c), line, self.source)
