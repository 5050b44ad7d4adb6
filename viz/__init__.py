"""Pictures of routing, drawn from a trace alone: no model, no data set, no torch.

Names are imported when first used, so that the command line doesn't wait for matplotlib.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

_HOME = {
    "draw": "drawing",
    "draw_graph": "drawing",
    "confusion": "matrices",
    "explorer_page": "explorer",
    "segmentation": "layers",
    "sheet": "sheets",
    "EntropyPicture": "entropy",
    "GraphPicture": "network",
    "MoleculePicture": "molecule",
    "HistogramPicture": "histogram",
    "parts": "credit",
    "accuracy_by_edges": "pruned",
    "bars": "speed",
    "compared": "comparison",
    "robustness": "robust",
    "equivariance": "poses",
    "color": "style",
}

__all__ = [
    "EntropyPicture",
    "GraphPicture",
    "HistogramPicture",
    "MoleculePicture",
    "accuracy_by_edges",
    "bars",
    "color",
    "compared",
    "confusion",
    "draw",
    "draw_graph",
    "equivariance",
    "explorer_page",
    "parts",
    "robustness",
    "segmentation",
    "sheet",
]

if TYPE_CHECKING:
    from graphcaps.viz.comparison import compared
    from graphcaps.viz.credit import parts
    from graphcaps.viz.drawing import draw, draw_graph
    from graphcaps.viz.entropy import EntropyPicture
    from graphcaps.viz.explorer import explorer_page
    from graphcaps.viz.histogram import HistogramPicture
    from graphcaps.viz.layers import segmentation
    from graphcaps.viz.matrices import confusion
    from graphcaps.viz.molecule import MoleculePicture
    from graphcaps.viz.network import GraphPicture
    from graphcaps.viz.poses import equivariance
    from graphcaps.viz.pruned import accuracy_by_edges
    from graphcaps.viz.robust import robustness
    from graphcaps.viz.sheets import sheet
    from graphcaps.viz.speed import bars
    from graphcaps.viz.style import color


def __getattr__(name: str):
    if name not in _HOME:
        raise AttributeError(f"module 'graphcaps.viz' has no attribute '{name}'")
    return getattr(importlib.import_module(f"graphcaps.viz.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return __all__
