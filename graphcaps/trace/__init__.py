"""What routed layers did: recorded while a network runs, kept in one file, drawn with no model behind it.

Names are imported when first used: ``watch`` and ``recording`` need torch, ``RoutingTrace`` doesn't.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

_HOME = {"RoutingTrace": "routing_trace", "Watched": "watched", "random_trace": "watched", "watch": "watched"}

__all__ = ["RoutingTrace", "Watched", "random_trace", "watch"]

if TYPE_CHECKING:
    from .routing_trace import RoutingTrace
    from .watched import Watched, random_trace, watch


if not TYPE_CHECKING:  # so that a checker knows a misspelt name

    def __getattr__(name: str):
        if name not in _HOME:
            raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
        return getattr(importlib.import_module(f".{_HOME[name]}", __name__), name)
