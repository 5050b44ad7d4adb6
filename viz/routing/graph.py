"""The graph between the children and the parents that they choose, over the rounds of routing, and their entropy."""

from typing import Any

import numpy as np

from graphcaps.viz import style
from graphcaps.viz.routing.entropy import EntropyCurves
from graphcaps.viz.routing.panel import Panel
from graphcaps.viz.routing.picture import Picture
from graphcaps.viz.routing.selection import ends_of, selected
from graphcaps.viz.routing.tint import tinted

_MAX_PANELS = 5  # rounds side by side in a still

_Places = list[tuple[float, tuple[float, float, float], tuple[float, float, float, float]]]
"""For each panel: its step; left, top and side of the square for its image; left, top, width, height of its graph."""


class GraphPicture(Picture):
    """Children at the left, parents at the right; width and opacity of a line show its coupling, from 0 to 1.

    A film shows one round after the other, a still shows them side by side. The image's strokes have the colours of the
    parents that get them. If the trace has decoded images, each child is drawn as its vote for the parent that it goes
    to most, the stronger the more it counts, and each parent as it is in this round. Children that stay undecided are
    folded away, with their number, and so are parents that no child chooses. The curves show how undecided all are.

    Args:
        show_all: fold nothing away. Of a graph with more than 320 edges, a random sample of children is shown.

        shown_edges: (K,) the only edges drawn, the most important first: those of up to twelve children and four
            parents. None: all edges between the children and parents that are shown.

    Attributes:
        chosen: what is shown, a ``Selection``.
        panels: one ``Panel`` for a film, one per round for a still.
        curves: the ``EntropyCurves``.
        votes, parents: the decoded images of the children and of the parents in each round, or None.
        tint: gives the image (H, W, 3) for couplings (E,) at a position; None if the trace has no image.
    """

    film, still, options = style.WIDE, style.PAGE, ("show_all", "shown_edges")

    def draw(self) -> None:
        trace, time, medium = self.trace, self.timeline, self.medium
        if self.shown_edges is not None and len(self.shown_edges):
            self.chosen = ends_of(trace, self.shown_edges)
        else:
            self.chosen = selected(trace, time.c[-1], time.lengths[-1], self.show_all)
        # Decoded images are those of the last epoch's iterations, so a picture over epochs has none.
        self.votes, self.parents = (
            None if images is None or time.over == "epochs" else images[self.image]
            for images in (trace.decoded_votes, trace.decoded_parents)
        )
        self.tint = tinted(trace, self.image, time.c[-1], self.parents)
        rows = max(len(self.chosen.children), 3 * len(self.chosen.parents))  # a parent is as high as three children
        places = self._film(rows) if medium.heading else self._still(rows)
        (_, top, _, tall), strip = places[0][2], 14 * medium.small + 16  # the strip is that of the curves
        height = round(top + tall + 4.5 * medium.small + strip)
        self.figure = style.blank(medium.width, height, medium.paper)
        self._heading = style.Heading(self.figure, medium)
        canvas = self.figure.add_axes((0, 0, 1, 1), xlim=(0, medium.width), ylim=(height, 0))
        canvas.set_axis_off()
        self.panels = [Panel(self, canvas, square, box) for _, square, box in places]
        if not medium.heading:
            for panel, (step, _, (left, *_)) in zip(self.panels, places, strict=True):
                style.write(self.figure, left, 4, time.title(step).split(" of ")[0], size=medium.text, weight="bold")
                panel.show(step)
        top, wide = height - strip + 1.5 * medium.small, medium.width
        looks: dict[str, Any] = {"size": medium.small, "color": medium.muted}
        style.write(self.figure, 0.025 * wide, top, "how\nundecided\n(entropy, nat)", **looks)
        box = (0.165 * wide, top, 0.715 * wide, strip - 5.5 * medium.small - 8)
        self.curves = EntropyCurves(self, style.panel(self.figure, "entropy", *box), self.chosen)

    def _film(self, rows: int) -> _Places:
        """One panel with the image at its left."""
        top, edge, wide = 118.0, self.medium.width / 30, self.medium.width * 14 / 15
        side = 0.29 * self.medium.width if self.tint else 0.0
        tall = float(np.clip(32 * rows, max(side, 150), 560))
        taken = side + 0.05 * wide if side else 0.0
        return [(self.timeline.end, (edge, top + (tall - side) / 2, side), (edge + taken, top, wide - taken, tall))]

    def _still(self, rows: int) -> _Places:
        """A panel for each of up to five rounds, with the image above the graph, or up to three without an image."""
        time = self.timeline
        steps = np.unique(np.linspace(0, time.end, min(_MAX_PANELS if self.tint else 3, len(time))).round()).tolist()
        column = self.medium.width / max(3, len(steps))
        side, top = (0.7 * column, 28 + 0.7 * column) if self.tint else (0.0, 20.0)
        tall = float(np.clip(15 * rows, 100, 420))
        places: _Places = []
        for k, step in enumerate(steps):
            left, wide = k * column + 4, column - 24
            places.append((step, (left + (wide - side) / 2, 20.0, side), (left, top, wide, tall)))
        return places

    def show(self, position: float) -> None:
        if self.medium.heading:
            self.panels[0].show(position)
        self.curves.show(position)
        line = self.timeline.title(position)
        if self.trace.agreement is None:
            dead = self.trace.dead()[round(position) if self.timeline.over == "epochs" else -1].sum()
            line += f". Each {self.words[0]} divides itself among {self.trace.about.get('parent', 'parent')}s; "
            line += f"dead (under a tenth of an equal load): {dead} of {len(self.names):,}"
        elif self.timeline.over == "iterations":
            votes = f"Each {self.words[0]} votes for the look of the whole; votes that agree count more next time"
            end = position == self.timeline.end
            line = f"routing {line}" + (": the answer. From iteration 1 on: how it came about" if end else f". {votes}")
        self._heading.say(self.choice(position), line[0].upper() + line[1:])
