"""Beliefs that the nodes of a graph exchange, for PyTorch Geometric."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch_geometric.typing import Adj, OptTensor

from ..errors import check_tensor, expect
from ..graph import bipartite_graph
from ..nn.beliefs import NodeBeliefs
from ..nn.node_caps import dropped
from ..routing.api import uncompiled
from .edges import coalesced, pairs


class BeliefConv(nn.Module):
    """Graph layer of capsules that are beliefs over states, which all nodes exchange along the edges and renew.

    ``graphcaps.nn.BeliefConv`` has the formula, and the meaning of the arguments. Its ``in_feats``, ``out_feats`` and
    ``feat_drop`` are ``in_channels``, ``out_channels`` and ``dropout`` here. Nodes without in-edges are allowed.

    Shapes:
        x (N, in_channels), or logits (N, num_caps, out_channels) for in_channels=None; edge_index (2, E)
        -> (N, num_caps, out_channels), each capsule's numbers sum to 1

    >>> edge_index = torch.tensor([[0, 1, 2], [1, 2, 3]])
    >>> BeliefConv(10, 2, num_caps=3)(torch.ones(4, 10), edge_index).shape
    torch.Size([4, 3, 2])
    """

    def __init__(
        self, in_channels: int | None, out_channels: int, num_caps: int, iterations: int = 8, dropout: float = 0.0
    ):
        super().__init__()
        self.feat_drop = nn.Dropout(dropout)
        names = ("in_channels", "out_channels", "x")
        self.beliefs = NodeBeliefs(in_channels, out_channels, num_caps, iterations, names)

    def reset_parameters(self) -> None:
        """Draw the weights as ``GATConv`` does (Glorot, normal, gain of ReLU); the bias is zero."""
        self.beliefs.reset_parameters()

    @uncompiled
    def forward(
        self,
        x: Tensor,
        edge_index: Adj,
        edge_weight: OptTensor = None,
        batch: OptTensor = None,
        return_coupling: bool = False,
    ) -> Tensor | tuple[Tensor, Tensor]:
        """Exchange beliefs along the edges.

        Args:
            x: (N, in_channels), or logits (N, num_caps, out_channels) for in_channels=None.
            edge_index: (2, E) integers, or an adjacency matrix in PyG's other forms, whose values are not used.
            edge_weight: (E,), how much each edge counts; default 1.
            batch: (N,), the graph of each node, ascending; default: all are of one.
            return_coupling: also give c (E, 1, num_caps), detached.
        """
        check_tensor("x", x, floating=False, sparse=True)
        src, dst = pairs(coalesced(edge_index))
        graph = bipartite_graph(src, dst, len(x), len(x))
        if batch is None:
            sizes = torch.tensor([len(x)], device=x.device)
        else:
            expect(batch.shape == (len(x),), "batch", f"(N={len(x)},)", tuple(batch.shape))
            expect(bool((batch.diff() >= 0).all()), "batch", "graphs in ascending order", "others")
            sizes = batch.bincount()
        found = self.beliefs(graph, dropped(self.feat_drop, x), edge_weight, sizes)
        return found if return_coupling else found[0]
