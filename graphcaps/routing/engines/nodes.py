"""Routing between the capsules of nodes by torch, on any device. A softmax is over the K_out votes along an edge."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..._dgl import DGLGraph
from ...graph import Links, links
from ..votes import Votes
from .chunks import products_along, sum_along
from .scatter import ScatterEdges


@dataclass(frozen=True)
class NodeVotes(Votes):
    """Votes along edges e = (u, v): capsule k of u gives capsule l of v the vote w_e z_ukl.

    Args:
        u: z (N_src, *, K_in, K_out, D), shared by all out-edges of a node; with ``per_edge`` (E, *, K_in, K_out, D).
        scale: w, a factor of the votes, broadcastable with (E, *, K_in, K_out); None for 1.
        per_edge: whether each edge has its own votes.
    """

    scale: Tensor | None = None
    per_edge: bool = False

    def build(self, graph: DGLGraph | Links) -> Tensor:
        """The votes (E, *, K_in, K_out, D) in edge order."""
        ends = graph if isinstance(graph, Links) else links(graph, self.device)
        votes = self.u if self.per_edge else self.u.index_select(0, ends.src)
        return votes if self.scale is None else votes * self.scale.to(votes.dtype).unsqueeze(-1)

    def detach(self) -> NodeVotes:
        return NodeVotes(self.u.detach(), None if self.scale is None else self.scale.detach(), self.per_edge)


class NodeEdges(ScatterEdges):
    """The operations for edge numbers (E, *, K_in, K_out) and parents (N_dst, *, K_out, D).

    Edge vectors are a tensor (E, *, K_in, K_out, D) or ``NodeVotes``. ``weighted_sum``, ``agreement`` and
    ``squared_lengths`` never build ``NodeVotes`` for all edges.

    Args:
        ends: E edges from N_src to N_dst nodes.
        votes: the votes to route.
        reverse: (E,), the reverse of each edge, for mutual logits: both get the sum of their agreements; or None.
    """

    def __init__(self, ends: Links, votes: NodeVotes, reverse: Tensor | None = None):
        super().__init__(ends, votes)
        self.reverse, self.vector_dims = reverse, votes.u.dim()

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
            own = super().agreement(u_hat, v)
        else:
            of_capsules = v.unsqueeze(-3).expand(*v.shape[:-2], *u_hat.u.shape[-3:])
            own = products_along(u_hat.u, of_capsules, self.ends)
            own = own if u_hat.scale is None else own * u_hat.scale
        return own if self.reverse is None else own + own.index_select(0, self.reverse)

    def squared_lengths(self, u_hat: Tensor | NodeVotes) -> Tensor:
        if isinstance(u_hat, Tensor):
            return super().squared_lengths(u_hat)
        squares = self.from_children(super().squared_lengths(u_hat.u))
        return squares if u_hat.scale is None else squares * u_hat.scale.square()

    def sum_to_parents(self, x: Tensor) -> Tensor:
        return super().sum_to_parents(x).sum(-3 if x.dim() == self.vector_dims else -2)

    def from_parents(self, x: Tensor) -> Tensor:
        return super().from_parents(x).unsqueeze(-3 if x.dim() == self.vector_dims - 1 else -2)
