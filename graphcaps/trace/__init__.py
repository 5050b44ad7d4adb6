"""Recording: a routing trace of a network of your own while it runs, and of one while it is trained.

Names are imported when first used: ``watch`` and ``recording`` need torch, ``RoutingTrace`` doesn't.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..viz.routing_trace import RoutingTrace

__all__ = ["RoutingTrace", "Watched", "random_trace", "watch"]

if TYPE_CHECKING:
    from .watched import Watched, random_trace, watch


if not TYPE_CHECKING:  # so that a type checker reports a misspelt name

    def __getattr__(name: str):
        if name not in ("Watched", "random_trace", "watch"):
            raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
        from . import watched

        return getattr(watched, name)
