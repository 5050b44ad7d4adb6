"""Routing by torch's index_select and index_add, on any graph and device. The graph may be on the CPU."""

from __future__ import annotations

import torch
from torch import Tensor

from ..._dgl import DGLGraph
from ...graph import Links, links
from ..routing import Routing
from ..votes import Votes
from .edges import Edges, largest_of_group


class ScatterEdges(Edges):
    """Edge numbers (E, *) and edge vectors (E, *, D) in edge order."""

    engine = "torch"

    @classmethod
    def supports(cls, graph: DGLGraph, votes: Votes, routing: Routing) -> str:
        return ""

    def __init__(self, graph: DGLGraph | Links, votes: Votes):
        self.ends = graph if isinstance(graph, Links) else links(graph, votes.device)

    def child_sum(self, x: Tensor) -> Tensor:
        total = x.new_zeros(self.ends.num_children, *x.shape[1:]).index_add(0, self.ends.src, x)  # (I, *)
        return total.index_select(0, self.ends.src)

    def child_max(self, x: Tensor) -> Tensor:
        src = self.ends.src
        child = src.view(-1, *[1] * (x.dim() - 1)).expand_as(x)
        top = x.detach().new_zeros(self.ends.num_children, *x.shape[1:])
        return top.scatter_reduce(0, child, x.detach(), "amax", include_self=False).index_select(0, src)

    def child_topk(self, x: Tensor, k: int) -> Tensor:
        return largest_of_group(x.detach(), self.ends.src, self.ends.num_children, k)

    def sum_to_parents(self, x: Tensor) -> Tensor:
        return x.new_zeros(self.ends.num_parents, *x.shape[1:]).index_add(0, self.ends.dst, x)

    def from_children(self, x: Tensor) -> Tensor:
        return x.index_select(0, self.ends.src)

    def from_parents(self, x: Tensor) -> Tensor:
        return x.index_select(0, self.ends.dst)

    def has_votes(self) -> Tensor:
        fed = torch.zeros(self.ends.num_parents, dtype=torch.bool, device=self.ends.dst.device)
        return fed.index_fill(0, self.ends.dst, True)  # counting would wait for a GPU; this doesn't
