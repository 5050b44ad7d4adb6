"""The explorer's page inside a notebook."""

import html
from pathlib import Path
from typing import NamedTuple

from ..images.training.run_folder import Run
from ..viz import explorer_page
from ..viz.routing_trace import RoutingTrace
from .network import page_parts


class Page(NamedTuple):
    """The text of an HTML page, which a notebook displays in a frame."""

    text: str

    def _repr_html_(self) -> str:
        looks = "width: 100%; height: 820px; border: 0"
        return f'<iframe title="Routing explorer" style="{looks}" srcdoc="{html.escape(self.text)}"></iframe>'


def show(run: str | Path | Run | RoutingTrace = "mnist", image: int | None = None) -> Page:
    """Show the page of ``graphcaps explore`` in a notebook, if this call ends a cell.

    Args:
        run: a run, as for ``graphcaps.load``; or a trace of ``graphcaps.watch``, whose page can't route drawings.
        image: the image of the trace that is shown first; default: that on which two parents contend most.

    Raises:
        GraphcapsError: there is no such run, image or routing.
    """
    if isinstance(run, RoutingTrace):
        return Page(explorer_page(run, image))
    trace, network, without = page_parts(run if isinstance(run, Run) else Run.open(run))
    return Page(explorer_page(trace, image, network, without))
