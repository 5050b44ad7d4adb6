"""Routing by torch's batched matrix products, on graphs in which every child votes once for every parent."""

import torch
from torch import Tensor

from ..algorithms.base import Routing
from ..algorithms.votes import Votes
from ..graph import Links
from .edges import AlignedEdges


class DenseEdges(AlignedEdges):
    """The engine for complete graphs. The I votes for one parent and image form the rows of one matrix.

    Edge vectors are (J, *, I, D), and edge numbers are (J, *, I). Children and parents are broadcast to edges, not
    copied. The votes are copied once, because reading scattered rows takes twice as long as contiguous ones.
    """

    engine = "torch"
    softmax_dim = 0

    @classmethod
    def needs(cls, links: Links, votes: Votes, routing: Routing) -> str:
        return "" if links.complete else "a complete graph"

    def __init__(self, links: Links, votes: Votes):
        super().__init__(links, votes)
        self.number_dims = len(votes.trailing) + 2

    def numbers_in(self, x: Tensor) -> Tensor:
        return x.unflatten(0, (self.links.num_children, self.links.num_parents)).movedim(0, -1)  # (J, *, I)

    def numbers_out(self, x: Tensor) -> Tensor:
        return x.movedim(-1, 0).flatten(0, 1)  # (E, *)

    def vectors_in(self, dtype: torch.dtype) -> Tensor:
        grid = self.precise(dtype).grid(self.links)
        return grid.to(dtype).movedim(0, -2).contiguous()  # (I, J, *, D) -> (J, *, I, D)

    def weighted_sum(self, c: Tensor, u_hat: Tensor) -> Tensor:
        c = c.to(u_hat.dtype).unsqueeze(-2)  # ``child_topk`` gives bool
        return torch.matmul(c, u_hat).squeeze(-2)  # (J, *, 1, I) (J, *, I, D) -> (J, *, D)

    def agreement(self, u_hat: Tensor, v: Tensor) -> Tensor:
        return torch.matmul(u_hat, v.unsqueeze(-1)).squeeze(-1)  # (J, *, I, D) (J, *, D, 1) -> (J, *, I)

    def sum_to_parents(self, x: Tensor) -> Tensor:
        return x.sum(-1 if x.dim() == self.number_dims else -2)

    def from_children(self, x: Tensor) -> Tensor:
        return x.movedim(0, -1).expand(self.links.num_parents, *x.shape[1:], len(x))  # (J, *, I), a view

    def from_parents(self, x: Tensor) -> Tensor:
        return x.unsqueeze(-2 if x.dim() == self.number_dims else -1)  # (J, *, 1, D) or (J, *, 1)
