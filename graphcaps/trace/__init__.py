"""Recording of routing traces, while any network runs or during training."""

from ..viz.routing_trace import RoutingTrace
from .watched import Watched, watch

__all__ = ["RoutingTrace", "Watched", "watch"]
