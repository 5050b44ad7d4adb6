"""The explorer's page inside a notebook."""

import html
from pathlib import Path

from ..images.training.run_folder import Run
from ..viz import explorer_page
from ..viz.routing_trace import RoutingTrace
from .network import page_parts


class Page:
    """An HTML page that a notebook displays in a frame of ``height`` pixels. ``text`` is the page."""

    def __init__(self, text: str, height: int = 820):
        self.text, self.height = text, height

    def _repr_html_(self) -> str:
        looks = f"width: 100%; height: {self.height}px; border: 0"
        return f'<iframe title="Routing explorer" style="{looks}" srcdoc="{html.escape(self.text)}"></iframe>'


def show(run: str | Path | Run | RoutingTrace = "mnist", image: int = 0) -> Page:
    """Show the page of ``graphcaps explore`` at the end of a notebook's cell.

    Args:
        run: a run folder, a network that comes with graphcaps, or a trace of ``graphcaps.watch``, whose page can't
            route drawings.
        image: the image of the trace that is shown first.

    Raises:
        GraphcapsError: there is no such run, image or routing.

    >>> show("mnist").text[:15]
    '<!DOCTYPE html>'
    """
    if isinstance(run, RoutingTrace):
        return Page(explorer_page(run, image))
    trace, network, without = page_parts(run if isinstance(run, Run) else Run.open(run))
    return Page(explorer_page(trace, image, network, without))
