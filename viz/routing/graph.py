"""The ribbons between the children and the parents over the rounds of routing, beside the image, and their story.

The story is eight seconds for a README: ink, equal shares, shares that flow, and the ink tinted by the answers.
"""

from dataclasses import replace
from typing import Any

import numpy as np

from graphcaps.errors import expect
from graphcaps.viz import style
from graphcaps.viz.routing.panel import Box, Panel
from graphcaps.viz.routing.picture import Picture
from graphcaps.viz.routing.ribbons import MOST_STRIPS
from graphcaps.viz.routing.selection import decisions
from graphcaps.viz.routing.timeline import Frame
from graphcaps.viz.routing.tint import tinted

_MOVING = 18  # frames of a story in which shares flow


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
        tint: a function from couplings (E,) and a position to the image (H, W, 3); None if the trace has no image.
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
            between = "\n" if len(self.names[label] + answer) > 16 else " "
            self.truth = f"true label: {self.names[label]},{between}answer: {answer}"
        rows = max(min(MOST_STRIPS, len(np.unique(trace.src))), 3 * len(self.named))
        tall = np.clip(23 * rows, 230, 560) if medium.heading else np.clip(14 * rows, 130, 400)
        places = self._places(float(tall))
        self._height = round(max(top + high for *_, (_, top, _, high) in places) + (38 if medium.heading else 17))
        self.figure = style.blank(medium.width, self._height, medium.paper)
        self._heading = style.Heading(self.figure, medium)
        canvas = style.canvas(self.figure)
        self.panels = [Panel(self, canvas, square, box) for _, square, box in places]
        if medium.heading:
            canvas.text(25, self._height - 20, self.source, va="top", size=medium.small, color=medium.muted)
        for panel, (step, square, _) in zip(self.panels, places, strict=True) if not medium.heading else ():
            canvas.text(square[0], 4, time.title(step).split(" of ")[0], va="top", size=medium.text, weight="bold")
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
            choose, lean, undecided = ((decided.word == word).sum() for word in ("chooses", "leans", "undecided"))
            line += f". Of {len(decided.child):,}, {choose:,} choose, {lean:,} lean, {undecided:,} are undecided"
        self._heading.say(self.choice(position), line[0].upper() + line[1:])


class StoryPicture(GraphPicture):
    """A ``GraphPicture`` whose film begins and ends with the image alone. Its still is that of ``GraphPicture``.

    Positions from -1 to 0, and from the last step to one more, show the image alone.
    """

    film, still, colors = style.SCREEN, replace(style.PAGE, dpi=160), 48

    def draw(self, shown_edges: np.ndarray | None = None) -> None:
        self.source = ""  # a story has no footer
        super().draw(shown_edges)
        has_both = self.tint is not None and self.parents is not None
        expect(has_both, "trace", "images and decoded parents, for a story over iterations", "none")
        self._place = self.panels[0].image.get_extent()

    def frames(self) -> list[Frame]:
        """Steps in which couplings change more last longer, since the first rounds of many hardly change them."""
        c, end = self.timeline.c, self.timeline.end
        changes = np.abs(np.diff(c, axis=0)).sum(axis=1)
        spent = np.append(0, np.cumsum(changes / (changes.sum() or 1) + 0.5 / max(1, len(changes))))
        flow = np.interp(np.linspace(0, spent[-1], _MOVING), spent, np.arange(len(c)))[1:-1]
        zoom = np.array([0.25, 0.5, 0.75])
        moving = [Frame(float(position), 0.12) for position in (*(zoom - 1), *flow, *(end + zoom))]
        return sorted([Frame(-1.0, 1.2), Frame(0.0, 1.2), *moving, Frame(end, 1.3), Frame(end + 1.0, 1.6)])

    def show(self, position: float) -> None:
        step = float(np.clip(position, 0, self.timeline.end))
        super().show(step)
        if not self.medium.heading:
            return
        (digit, digits), parts, title = self.trace.parent_word, self.words[1], "Whose is this ink?"
        if position < 0 and len(self.named) == 2:
            title = f"Two {digits} share this ink. How does a network tell them apart?"
        elif position >= self.timeline.end:
            title = self.choice(step)
        elif position > 0:
            title = f"{parts.capitalize()} side with the {digit} that their votes agree with"
        elif position == 0:
            title = f"At first, all {parts} divide themselves equally among {len(self.names)} {digits}"
        self._heading.say(title, f"Round {round(step) + 1} of {len(self.timeline)}" if position >= 0 else "")
        rule = f"Colours: each {digit}'s picture\nby the decoder, the stronger\n"
        self.panels[0].below.set_text(f"{rule}the more it has won of the\n{parts}. Mixed: both.")
        panel, share = self.panels[0], (1 - np.cos(np.pi * (position - step))) / 2
        left, right, bottom, top = self._place
        size = min((self._height - 130) / (bottom - top), 1.8)
        wide, tall, middle = size * (right - left) / 2, size * (bottom - top), self.medium.width / 2
        large = np.array((middle - wide, middle + wide, 90 + tall, 90))
        panel.image.set_extent(tuple(np.array(self._place) * (1 - share) + large * share))
        for artist in panel.graph:
            artist.set_visible(position == step)
