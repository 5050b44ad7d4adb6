"""Routing between the capsules of nodes by torch, on any device. Each softmax is over the K votes along an edge."""

from dataclasses import replace

from torch import Tensor

from ..algorithms.base import Routing
from ..algorithms.observers import observer_on_nodes
from ..algorithms.votes import NodeVotes
from ..functional import at_least_float32
from ..graph import Links
from ..kernels import Sums
from .edges import AlignedEdges


class NodeEdges(AlignedEdges):
    """Edge numbers are (E, *, K), edge vectors (E, *, K, D), and parents (N_dst, *, K, D)."""

    softmax_dim = -1
    votes: NodeVotes

    def __init__(self, links: Links, votes: NodeVotes, mutual: bool = False):
        super().__init__(links, votes)
        self.reverse = links.reverse if mutual else None
        self.observer = observer_on_nodes(links, votes.num_caps)

    def sums(self, routing: Routing, coupling: bool) -> Sums:
        """Route by the routing's ``forward``, as ``kernels.sums`` does by its rule."""
        u_hat = replace(self.votes, u=at_least_float32(self.votes.u)).build(self.links)
        prior = u_hat.new_zeros(u_hat.shape[:-1]) if self.votes.prior is None else self.votes.prior.to(u_hat.dtype)
        parents = self.run(routing, u_hat, prior)
        return Sums(parents.pose, parents.coupling.detach() if coupling and parents.coupling is not None else None)

    def agreement(self, u_hat: Tensor, v: Tensor) -> Tensor:
        products = super().agreement(u_hat, v)
        return products if self.reverse is None else products + products.index_select(0, self.reverse)
