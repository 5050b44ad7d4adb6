"""``BeliefConv``: a graph layer that exchanges beliefs along edges."""

from .layer import BeliefConv, NodeBeliefs

__all__ = ["BeliefConv", "NodeBeliefs"]
