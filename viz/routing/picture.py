"""The base class of moving pictures. ``viz/__init__.py`` explains how to add one."""

from collections.abc import Callable
from typing import Any

from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

from graphcaps.viz import style
from graphcaps.viz.routing.selection import choice_by_name, none_named, shown_parents
from graphcaps.viz.routing.timeline import Frame, Timeline, caption
from graphcaps.viz.routing_trace import RoutingTrace


class Picture:
    """A picture of one image's routing that moves over iterations or epochs and ends on the network's answer.

    A subclass makes its figure with everything that stays the same in ``draw``, and moves it to a step in ``show``.

    Args:
        over: iterations (of the last epoch) or epochs (each after the iterations of training).
        image: index of an image of the trace.
        medium: what the picture is drawn for, a screen or a column of a paper; None: the screen of its films.
        options: those of the subclass's ``draw``.

    Raises:
        InputError, GraphcapsError: as ``Timeline``.
    """

    figure: Figure
    film, still = style.SCREEN, style.COLUMN
    """The media that films and stills of this picture are drawn for."""
    colors = 255
    """Number of colours of a GIF."""
    draw: Callable[..., None]
    show: Callable[[float], None]
    """Move the figure to a position, counted in steps from 0; fractions lie between two steps."""

    def __init__(
        self,
        trace: RoutingTrace,
        over: str = "iterations",
        image: int = 0,
        *,
        medium: style.Medium | None = None,
        **options: Any,
    ):
        self.trace, self.image, self.medium = trace, image, medium or self.film
        self.timeline = Timeline(trace, over, image)
        self.named = shown_parents(trace, self.timeline.lengths[-1])  # (P,), with names and colours of their own
        self.source = caption(trace, over, image)
        self.names = [style.cut(name, 14 if self.medium.heading else 8) for name in trace.parent_names]
        child = str(trace.about.get("child", "part" if trace.images is not None else "child"))
        self.words = (child, "children" if child == "child" else f"{child}s")
        with style.applied(self.medium):
            self.draw(**options)
        self.show(self.timeline.end)

    def color(self, parent: int) -> tuple[float, float, float]:
        """The colour of a parent on this medium's paper: grey if it isn't ``named``."""
        colors = dict(zip(self.named.tolist(), self.medium.answers, strict=False))
        return to_rgb(colors.get(int(parent), self.medium.faint))

    def frames(self) -> list[Frame]:
        """The moments of the film."""
        return self.timeline.frames()

    def choice(self, position: float) -> str:
        """How many children choose which parents, for the title; or that no class is named."""
        if self.trace.has_classes and not len(self.named):
            return none_named(self.trace).capitalize()
        return choice_by_name(self.trace, self.timeline.at(position)[0], self.names, *self.words, self.named)
