"""Pictures of routing, drawn from a trace alone: no model, no data set, no torch.

Names are imported when first used, so that the command line doesn't wait for matplotlib.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

__all__ = [
    "EntropyPicture",
    "GraphPicture",
    "HistogramPicture",
    "MoleculePicture",
    "NodesPicture",
    "PlacesPicture",
    "animations",
    "color",
    "confusion",
    "draw",
    "equivariance",
    "explorer_page",
    "parts",
    "picture",
    "robustness",
    "save",
    "segmentation",
    "sheet",
]

if TYPE_CHECKING:
    from graphcaps.viz.drawing import animations, draw, picture
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
    from graphcaps.viz.routing.nodes import NodesPicture
    from graphcaps.viz.routing.places import PlacesPicture
    from graphcaps.viz.style import color, save


if not TYPE_CHECKING:  # so that a checker knows a misspelt name
    _MODULES = {
        "drawing": "animations draw picture",
        "explorer.html": "explorer_page",
        "results.confusion": "confusion",
        "results.equivariance": "equivariance",
        "results.parse_tree": "parts",
        "results.robustness": "robustness",
        "results.segmentation": "segmentation",
        "results.training_sheet": "sheet",
        "routing.bipartite": "GraphPicture",
        "routing.entropy": "EntropyPicture",
        "routing.histogram": "HistogramPicture",
        "routing.molecule": "MoleculePicture",
        "routing.nodes": "NodesPicture",
        "routing.places": "PlacesPicture",
        "style": "color save",
    }
    _MODULE_OF = {name: module for module, names in _MODULES.items() for name in names.split()}

    def __getattr__(name: str):
        if name not in _MODULE_OF:
            raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
        return getattr(importlib.import_module(f"{__name__}.{_MODULE_OF[name]}"), name)

    def __dir__() -> list[str]:
        return sorted(__all__)
