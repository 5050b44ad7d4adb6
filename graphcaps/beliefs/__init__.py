"""``BeliefConv``: a graph layer that exchanges beliefs along edges."""

from .fitting import fit_rates
from .layer import BeliefConv
from .node_beliefs import NodeBeliefs
from .smoothing import Smoothed, smooth

__all__ = ["BeliefConv", "NodeBeliefs", "Smoothed", "fit_rates", "smooth"]
