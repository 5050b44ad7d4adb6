"""``BeliefConv``: a graph layer that exchanges beliefs along edges, from rates that are counted or learned."""

from .layer import BeliefConv, NodeBeliefs

__all__ = ["BeliefConv", "NodeBeliefs"]
