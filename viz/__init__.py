"""Pictures of routing, drawn from a trace alone: no model, no data set, no torch.

Names are imported when first used, so that the command line doesn't wait for matplotlib.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

_HOME = {
    "draw": "drawing",
    "confusion": "results.confusion",
    "explorer_page": "explorer.html",
    "segmentation": "results.segmentation",
    "sheet": "results.training_sheet",
    "EntropyPicture": "routing.entropy",
    "GraphPicture": "routing.bipartite",
    "MoleculePicture": "routing.molecule",
    "HistogramPicture": "routing.histogram",
    "PlacesPicture": "routing.places",
    "parts": "results.parse_tree",
    "robustness": "results.robustness",
    "equivariance": "results.equivariance",
    "color": "style",
    "save": "style",
}

__all__ = [
    "EntropyPicture",
    "GraphPicture",
    "HistogramPicture",
    "MoleculePicture",
    "PlacesPicture",
    "color",
    "confusion",
    "draw",
    "equivariance",
    "explorer_page",
    "parts",
    "robustness",
    "save",
    "segmentation",
    "sheet",
]

if TYPE_CHECKING:
    from graphcaps.viz.drawing import draw
    from graphcaps.viz.explorer.html import explorer_page
    from graphcaps.viz.results.confusion import confusion
    from graphcaps.viz.results.equivariance import equivariance
    from graphcaps.viz.results.parse_tree import parts
    from graphcaps.viz.results.robustness import robustness
    from graphcaps.viz.results.segmentation import segmentation
    from graphcaps.viz.results.training_sheet import sheet
    from graphcaps.viz.routing.bipartite import GraphPicture
    from graphcaps.viz.routing.entropy import EntropyPicture
    from graphcaps.viz.routing.histogram import HistogramPicture
    from graphcaps.viz.routing.molecule import MoleculePicture
    from graphcaps.viz.routing.places import PlacesPicture
    from graphcaps.viz.style import color, save


if not TYPE_CHECKING:  # so that a checker knows a misspelt name

    def __getattr__(name: str):
        if name not in _HOME:
            raise AttributeError(f"module 'graphcaps.viz' has no attribute '{name}'")
        return getattr(importlib.import_module(f"graphcaps.viz.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return __all__
