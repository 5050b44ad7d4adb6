"""What routed layers did, recorded as routing traces: while a network of your own runs, and while one is trained.

Names are imported when first used: ``watch`` and ``recording`` need torch, ``RoutingTrace`` doesn't.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._lazy import attach
from ..routing_trace import RoutingTrace

__all__ = ["RoutingTrace", "Watched", "random_trace", "watch"]

if TYPE_CHECKING:
    from .watched import Watched, random_trace, watch


if not TYPE_CHECKING:  # so that a checker knows a misspelt name
    __getattr__, __dir__ = attach(__name__, {"watched": "Watched random_trace watch"})
