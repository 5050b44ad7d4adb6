"""Routing on the CPU with one pass over the votes per iteration, by kernels that Numba compiles.

``cpu/README.md`` has the derivation, the notation and a reading order for the kernels.
"""

from __future__ import annotations

from torch import Tensor

from ..._dgl import DGLGraph
from ...graph.links import is_tracing
from ..routing import Parents, Routing, rule_of, squashed
from ..votes import GivenVotes, LinearVotes, Votes
from .edges import Edges

MAX_WIDTH = 256  # numbers in a row. A row is one vector, and the time to compile grows with its width


class FusedEdges(Edges):
    """Runs a routing by its rule. It has no operations for a routing's ``forward``."""

    engine = "fused"

    @classmethod
    def supports(cls, graph: DGLGraph, votes: Votes, routing: Routing) -> str:
        if is_tracing():
            return "a call that torch doesn't trace or transform"
        if votes.device.type != "cpu":
            return "votes on the CPU"
        if not isinstance(votes, (GivenVotes, LinearVotes)):
            return "a tensor of votes, or LinearVotes"
        if rule_of(routing) is None:
            return "a routing with a rule, as Dynamic, Uniform, Spherical and Attention have one"
        return "" if votes.widest <= MAX_WIDTH else f"capsules of at most {MAX_WIDTH} numbers"

    def __init__(self, graph: DGLGraph, votes: Votes):
        self.graph = graph

    def route(
        self, graph: DGLGraph, votes: Votes, routing: Routing, prior: Tensor, activation: Tensor | None, coupling: bool
    ) -> Parents:
        from .cpu.route import sums  # Numba takes half a second to import

        rule = rule_of(routing)
        assert rule is not None
        s, c = sums(graph, votes.to(prior.dtype), rule, prior, self.observer, coupling)
        return squashed(s, c)
