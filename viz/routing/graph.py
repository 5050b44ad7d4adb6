"""The ribbons between the children and the parents over the rounds of routing, beside the image."""

from typing import Any

import numpy as np

from graphcaps.viz import style
from graphcaps.viz.routing.panel import Box, Panel
from graphcaps.viz.routing.picture import Picture
from graphcaps.viz.routing.ribbons import MOST_STRIPS
from graphcaps.viz.routing.selection import decisions
from graphcaps.viz.routing.tint import tinted


class GraphPicture(Picture):
    """Children at the left, each a strip cut into its couplings, which flow as ribbons to the parents at the right.

    A film shows one round after the other. A still shows the first round, the last, and the one between them in which
    the children have decided half of what they decide. The image's strokes have the colours of the parents that get
    them. If the trace has decoded images, each child has its vote for the parent that it goes to most, and each parent
    is drawn as it is in this round. Classes below the network's threshold share a grey bar.

    Args:
        shown_edges: (K,) edges whose ribbons are strong; the others are pale. None: all ribbons are strong.

    Attributes:
        panels: one ``Panel`` for a film, one per round for a still.
        votes, parents: the decoded images of the children and of the parents in each round, or None.
        tint: gives the image (H, W, 3) for couplings (E,) at a position; None if the trace has no image.
        truth: the true label and the answer, for below the image of a film.
    """

    film, still = style.WIDE, style.PAGE
    votes: Any
    parents: Any

    def draw(self, shown_edges: np.ndarray | None = None) -> None:
        self.shown_edges = shown_edges
        trace, time, medium = self.trace, self.timeline, self.medium
        # Decoded images are those of the last epoch's iterations, so a picture over epochs has none.
        self.votes, self.parents = (
            None if images is None or time.over == "epochs" else images[self.image]
            for images in (trace.decoded_votes, trace.decoded_parents)
        )
        self.tint = tinted(trace, self.image, time.c[-1], self.parents, self.named, [self.color(j) for j in self.named])
        longest, label = int(time.lengths[-1].argmax()), -1 if trace.labels is None else int(trace.labels[self.image])
        self.truth = ""
        if label >= 0 and medium.heading:
            answer = self.names[longest] if longest in self.named else "none"
            self.truth = f"true label: {self.names[label]}, answer: {answer}"
        rows = max(min(MOST_STRIPS, len(np.unique(trace.src))), 3 * len(self.named))
        tall = np.clip(23 * rows, 230, 560) if medium.heading else np.clip(14 * rows, 130, 400)
        places = self._places(float(tall))
        self._height = round(max(top + high for *_, (_, top, _, high) in places) + (38 if medium.heading else 17))
        self.figure = style.blank(medium.width, self._height, medium.paper)
        self._heading = style.Heading(self.figure, medium)
        canvas = self.figure.add_axes((0, 0, 1, 1), xlim=(0, medium.width), ylim=(self._height, 0))
        canvas.set_axis_off()
        self.panels = [Panel(self, canvas, square, box) for _, square, box in places]
        if medium.heading:
            looks = {"size": medium.small, "color": medium.muted}
            style.write(self.figure, 25, self._height - 20, self.source, **looks)
        for panel, (step, square, _) in zip(self.panels, places, strict=True) if not medium.heading else ():
            style.write(self.figure, square[0], 4, time.title(step).split(" of ")[0], size=medium.text, weight="bold")
            panel.show(step)

    def _places(self, tall: float) -> list[tuple[float, Box, Box]]:
        """For each panel its step, the place of the image and that of the graph."""
        wide, end, c = self.medium.width, self.timeline.end, self.timeline.c
        if self.medium.heading:  # the image is at the left of the graph
            side = 0.27 * wide if self.tint else 0.0
            left = 25 + (side + 30 if side else 0)
            return [(end, (25.0, 112.0, side, side), (left, 112.0, wide - left - 25, tall))]
        squares = np.square(c).sum(axis=1)
        half = 1 + np.abs(squares - (squares[0] + squares[-1]) / 2)[1:-1].argmin() if len(c) > 2 else 0
        column, side = wide / 3, wide / 6 if self.tint else 0.0
        top = 22 + (side + 28 if side else 0)  # the image is above the graph
        lefts = [(step, k * column + 6) for k, step in enumerate(sorted({0.0, float(half), end}))]
        return [(step, (left, 22.0, side, side), (left, top, column - 18, tall)) for step, left in lefts]

    def show(self, position: float) -> None:
        if self.medium.heading:
            self.panels[0].show(position)
        line, decided = self.timeline.title(position), decisions(self.trace, self.timeline.at(position)[0])
        if self.trace.agreement is None:
            dead = self.trace.dead()[round(position) if self.timeline.over == "epochs" else -1].sum()
            line += f". Each {self.words[0]} divides itself among {self.trace.parent_word[1]}; "
            line += f"dead (under a tenth of an equal load): {dead} of {len(self.names):,}"
        elif len(decided.child):
            line = f"routing {line}" if self.timeline.over == "iterations" else line
            line += f". {decided.gives_most.sum():,} of {len(decided.child):,} give most of themselves to one "
            line += f"{self.trace.parent_word[0]}; undecided: {(decided.word == 'undecided').sum():,}"
        self._heading.say(self.choice(position), line[0].upper() + line[1:])
