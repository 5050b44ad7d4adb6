"""Pictures of routing, drawn from a trace alone: they need no model, no data set and no torch.

Names are imported on first use, since matplotlib is slow to import.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

PICTURES = {
    "entropy": "how undecided the children are",
    "graph": "the image in the colours of the parents, and the children's couplings, flowing to the parents",
    "story": "the same in eight seconds, from the image alone to the image divided, with a still of three rounds",
    "nodes": "the graph of a CapsuleConv, with edges in the colours of the capsules that they are coupled with",
}
"""The moving pictures, each with what it shows."""

__all__ = ["PICTURES", "EntropyPicture", "GraphPicture", "NodesPicture", "StoryPicture"]
__all__ += ["animations", "color", "confusion", "draw", "explorer_page", "picture", "save"]

if TYPE_CHECKING:
    from graphcaps.viz.drawing import animations, draw, picture
    from graphcaps.viz.explorer.html import explorer_page
    from graphcaps.viz.results import confusion
    from graphcaps.viz.routing.entropy import EntropyPicture
    from graphcaps.viz.routing.graph import GraphPicture, StoryPicture
    from graphcaps.viz.routing.nodes import NodesPicture
    from graphcaps.viz.style import color, save


if not TYPE_CHECKING:  # with __getattr__, a type checker accepts any name
    _MODULES = {
        "drawing": "animations draw picture",
        "explorer.html": "explorer_page",
        "results": "confusion",
        "routing.entropy": "EntropyPicture",
        "routing.graph": "GraphPicture StoryPicture",
        "routing.nodes": "NodesPicture",
        "style": "color save",
    }
    _MODULE_OF = {name: module for module, names in _MODULES.items() for name in names.split()}

    def __getattr__(name: str):
        if name not in _MODULE_OF:
            raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
        return getattr(importlib.import_module(f"{__name__}.{_MODULE_OF[name]}"), name)

    def __dir__() -> list[str]:
        return sorted(__all__)
