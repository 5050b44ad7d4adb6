"""Routing between the capsules of nodes by torch, on any device. Each softmax is over the K_out votes along an edge."""

from dataclasses import replace

import torch
from torch import Tensor

from .._dgl import DGLGraph
from ..algorithms.base import Routing
from ..algorithms.observers import observer_on_nodes
from ..algorithms.votes import NodeVotes
from ..graph import Links, reverse_edges
from .scatter import AlignedEdges


class NodeEdges(AlignedEdges):
    """Edge numbers are (E, *, K_in, K_out), edge vectors (E, *, K_in, K_out, D), and parents (N_dst, *, K_out, D)."""

    child_dim = -1
    votes: NodeVotes

    def __init__(self, graph: DGLGraph | Links, votes: NodeVotes, mutual: bool = False):
        super().__init__(graph, votes)
        reverse = graph.reverse if isinstance(graph, Links) else reverse_edges(graph) if mutual else None
        self.reverse = reverse.to(votes.device) if mutual and reverse is not None else None
        self.vector_dims = votes.u.dim()
        if not isinstance(graph, Links):
            self.observer = observer_on_nodes(graph, *votes.z.shape[-3:-1])

    def sums(self, routing: Routing, get_coupling: bool) -> tuple[Tensor, Tensor | None]:
        """Route; return what ``route_nodes`` returns."""
        number = torch.promote_types(self.votes.dtype, torch.float32)  # sums of many votes overflow float16
        u_hat = replace(self.votes, u=self.votes.u.to(number)).build(self.ends)
        prior = u_hat.new_zeros(u_hat.shape[:-1]) if self.votes.prior is None else self.votes.prior.to(number)
        parents = self.run(routing, u_hat, prior)
        return parents.pose, parents.coupling.detach() if get_coupling and parents.coupling is not None else None

    def agreement(self, u_hat: Tensor, v: Tensor) -> Tensor:
        products = super().agreement(u_hat, v)
        return products if self.reverse is None else products + products.index_select(0, self.reverse)

    def sum_to_parents(self, x: Tensor) -> Tensor:
        return super().sum_to_parents(x).sum(-3 if x.dim() == self.vector_dims else -2)

    def from_parents(self, x: Tensor) -> Tensor:
        return super().from_parents(x).unsqueeze(-3 if x.dim() == self.vector_dims - 1 else -2)
