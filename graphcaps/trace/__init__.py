"""Recording of routing traces, while any network runs or during training."""

from ..viz.routing_trace import RoutingTrace
from .watched import Watched, random_trace, watch

__all__ = ["RoutingTrace", "Watched", "random_trace", "watch"]
