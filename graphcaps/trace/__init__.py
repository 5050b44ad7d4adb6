"""What pictures are made of: a routing's numbers, per image, iteration and epoch, with no model behind them.

Names are imported when first used: ``recording``, which makes a trace of a network, needs torch, the others don't.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

_HOME = {
    "RoutingTrace": "image_trace",
    "observe": "image_trace",
    "GraphTrace": "graph_trace",
    "TracedGraph": "graph_trace",
}

__all__ = ["GraphTrace", "RoutingTrace", "TracedGraph", "observe"]

if TYPE_CHECKING:
    from .graph_trace import GraphTrace, TracedGraph
    from .image_trace import RoutingTrace, observe


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    return getattr(importlib.import_module(f".{_HOME[name]}", __name__), name)
