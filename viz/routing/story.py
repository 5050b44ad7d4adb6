"""Eight seconds for a README: ink, equal shares, shares that flow, and the ink tinted by the answers."""

from dataclasses import replace

import numpy as np

from graphcaps.errors import expect
from graphcaps.viz import style
from graphcaps.viz.routing.graph import GraphPicture
from graphcaps.viz.routing.timeline import Frame
from graphcaps.viz.routing_trace import RoutingTrace

_MOVING = 18  # frames in which shares flow


class StoryPicture(GraphPicture):
    """A ``GraphPicture`` whose film begins and ends with the image alone. Its still is that of ``GraphPicture``.

    Positions from -1 to 0, and from the last step to one more, show the image alone.
    """

    film, still, colors = style.SCREEN, replace(style.PAGE, dpi=160), 48
    options = ()

    @staticmethod
    def suits(trace: RoutingTrace) -> bool:
        return False  # it shows what GraphPicture shows, so that it is drawn only if it is named

    def draw(self) -> None:
        self.source = ""  # a story has no footer
        super().draw()
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
