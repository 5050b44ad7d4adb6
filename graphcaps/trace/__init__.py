"""Recording of routing traces, while any network runs or during training.

Names are imported on first use, because ``watch`` needs torch and ``RoutingTrace`` doesn't.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..viz.routing_trace import RoutingTrace

__all__ = ["RoutingTrace", "Watched", "random_trace", "watch"]

if TYPE_CHECKING:
    from .watched import Watched, random_trace, watch


if not TYPE_CHECKING:  # hidden from type checkers, so that they report misspelt names

    def __getattr__(name: str):
        if name not in ("Watched", "random_trace", "watch"):
            raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
        from . import watched

        return getattr(watched, name)
