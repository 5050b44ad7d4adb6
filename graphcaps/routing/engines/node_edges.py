"""Routing between the capsules of nodes by torch, on any device. Each softmax is over the K_out votes along an edge."""

from dataclasses import replace

import torch
from torch import Tensor

from ..._dgl import DGLGraph
from ...graph import Links, reverse_edges
from ...torch_tracing import is_tracing
from ..base import Routing, rule_of
from ..observers import observer_on_nodes
from ..votes import NodeVotes
from .chunks import products_along, sum_along
from .edges import Edges


class NodeEdges(Edges):
    """The operations of ``Edges`` for scalars on edges (E, *, K_in, K_out) and parents (N_dst, *, K_out, D).

    Edge vectors are a tensor (E, *, K_in, K_out, D) or ``NodeVotes``. ``weighted_sum``, ``agreement`` and
    ``squared_lengths`` never expand ``NodeVotes`` into a tensor of the votes on all edges.
    """

    votes: NodeVotes

    def __init__(self, graph: DGLGraph | Links, votes: NodeVotes, mutual: bool = False):
        super().__init__(graph, replace(votes, u=votes.z))
        reverse = graph.reverse if isinstance(graph, Links) else reverse_edges(graph) if mutual else None
        self.reverse = reverse.to(votes.device) if mutual and reverse is not None else None
        self.vector_dims = votes.u.dim()
        if not isinstance(graph, Links):
            self.observer = observer_on_nodes(graph, *votes.z.shape[-3:-1])

    def sums(self, routing: Routing, get_coupling: bool) -> tuple[Tensor, Tensor | None]:
        """Route; return what ``route_nodes`` returns."""
        number = torch.promote_types(self.votes.dtype, torch.float32)  # sums of many votes overflow float16
        votes, rule = replace(self.votes, u=self.votes.u.to(number)), rule_of(routing)
        zeros = votes.u.new_zeros(self.ends.src.shape[0], *votes.u.shape[1:-1])
        prior = zeros if votes.prior is None else votes.prior.to(number)
        # Attention adds unweighted votes, and a routing without a `Rule` may use votes in any way: expand them.
        in_chunks = not (votes.per_edge or rule is None or rule.kind == "sums" or is_tracing())
        parents = self.run(routing, votes if in_chunks else votes.build(self.ends), prior)
        return parents.pose, parents.coupling.detach() if get_coupling and parents.coupling is not None else None

    def child_softmax(self, b: Tensor) -> Tensor:
        return b.softmax(dim=-1)

    def child_sum(self, x: Tensor) -> Tensor:
        return x.sum(dim=-1, keepdim=True).expand_as(x)

    def child_max(self, x: Tensor) -> Tensor:
        return x.detach().amax(dim=-1, keepdim=True).expand_as(x)

    def child_topk(self, x: Tensor, k: int) -> Tensor:
        top = x.detach().topk(min(k, x.shape[-1]), dim=-1).indices
        return torch.zeros_like(x, dtype=torch.bool).scatter(-1, top, True)

    def weighted_sum(self, c: Tensor, u_hat: Tensor | NodeVotes) -> Tensor:
        if isinstance(u_hat, Tensor):
            return super().weighted_sum(c, u_hat)
        weight = c if u_hat.scale is None else c * u_hat.scale
        return sum_along(u_hat.u, weight, self.ends).sum(-3)  # (N_dst, *, K_in, K_out, D) -> (N_dst, *, K_out, D)

    def agreement(self, u_hat: Tensor | NodeVotes, v: Tensor) -> Tensor:
        if isinstance(u_hat, Tensor):
            products = super().agreement(u_hat, v)
        else:
            products = products_along(u_hat.u, v.unsqueeze(-3).expand(*v.shape[:-2], *u_hat.u.shape[-3:]), self.ends)
            products = products if u_hat.scale is None else products * u_hat.scale
        return products if self.reverse is None else products + products.index_select(0, self.reverse)

    def squared_lengths(self, u_hat: Tensor | NodeVotes) -> Tensor:
        if isinstance(u_hat, Tensor):
            return super().squared_lengths(u_hat)
        squares = self.from_children(super().squared_lengths(u_hat.u))
        return squares if u_hat.scale is None else squares * u_hat.scale.square()

    def sum_to_parents(self, x: Tensor) -> Tensor:
        return super().sum_to_parents(x).sum(-3 if x.dim() == self.vector_dims else -2)

    def from_parents(self, x: Tensor) -> Tensor:
        return super().from_parents(x).unsqueeze(-3 if x.dim() == self.vector_dims - 1 else -2)
