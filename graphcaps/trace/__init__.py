"""What routed layers did: recorded while a network runs, kept in one file, drawn with no model behind it.

Names are imported when first used: ``watch`` and ``recording`` need torch, ``RoutingTrace`` doesn't.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._lazy import attach

__all__ = ["RoutingTrace", "Watched", "random_trace", "watch"]

if TYPE_CHECKING:
    from .routing_trace import RoutingTrace
    from .watched import Watched, random_trace, watch


if not TYPE_CHECKING:  # so that a checker knows a misspelt name
    __getattr__, __dir__ = attach(__name__, {"routing_trace": "RoutingTrace", "watched": "Watched random_trace watch"})
