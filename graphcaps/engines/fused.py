"""Routing by kernels, which run whole iterations and contain a routing only as its ``Rule``."""

import torch
from torch import Tensor

from .. import kernels
from ..algorithms.base import Parents, Routing, rule_of, squashed
from ..algorithms.votes import Votes
from ..graph import Links
from .dense import DenseEdges
from .edges import Edges


class FusedEdges(Edges):
    """The engine that runs a routing by its rule, in kernels, instead of its ``forward``."""

    engine = "fused"

    @classmethod
    def needs(cls, links: Links, votes: Votes, routing: Routing) -> str:
        return kernels.needs(links, votes, rule_of(routing))

    def route(self, routing: Routing, prior: Tensor, activation: Tensor | None, coupling: bool) -> Parents:
        rule = rule_of(routing)
        assert rule is not None
        if self.observer is None:  # the kernels keep nothing that an observer could see
            s, c, v = kernels.sums(self.links, self.votes, rule, prior, coupling=coupling, half=self.half)
            return squashed(s, c) if v is None else Parents(s, v, torch.linalg.vector_norm(v, dim=-1), c)
        other = (DenseEdges if self.links.complete else Edges)(self.links, self.votes)
        other.observer = self.observer
        return other.route(routing, prior, activation, coupling)
