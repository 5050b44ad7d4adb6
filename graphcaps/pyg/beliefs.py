"""``BeliefConv`` for PyTorch Geometric: the nodes of a graph exchange beliefs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.typing import Adj, OptTensor

from ..beliefs.node_beliefs import NodeBeliefs
from ..beliefs.rates import layer_of_labels
from ..errors import check_tensor, expect
from ..graph import Links, read_graph
from ..layer_common import PYG, dropped
from ..tracing import is_tracing
from ..typed import Share, Size, typed
from .edges import links_of_edges, read_edges


class BeliefConv(nn.Module):
    """Graph layer with K beliefs per node as its capsules; nodes update them from their neighbours' beliefs.

    The docstring of ``graphcaps.nn.BeliefConv`` gives the formula and the arguments. Its ``in_feats``, ``out_feats``
    and ``feat_drop`` are ``in_channels``, ``out_channels`` and ``dropout`` here. Nodes without in-edges are allowed.

    Shapes:
        x (N, in_channels), or for in_channels=None labels (N, num_caps) or logits (N, num_caps, out_channels);
        edge_index (2, E) -> (N, num_caps, out_channels), where each capsule's numbers sum to 1

    >>> edge_index = torch.tensor([[0, 1, 1, 2, 2, 3], [1, 0, 2, 1, 3, 2]])
    >>> BeliefConv(10, 2, num_caps=3)(torch.ones(4, 10), edge_index).shape
    torch.Size([4, 3, 2])
    """

    @typed
    def __init__(
        self,
        in_channels: Size | None,
        out_channels: Size | Sequence[int],
        num_caps: Size,
        iterations: Size = 8,
        dropout: Share = 0.0,
    ):
        super().__init__()
        expect(in_channels is not None or not dropout, "dropout", "0 for labels or logits", dropout)
        self.feat_drop = nn.Dropout(dropout)
        self.beliefs = NodeBeliefs(in_channels, out_channels, num_caps, iterations, PYG)

    @classmethod
    @typed
    def from_labels(cls, labels: Any, edge_index: Adj, iterations: Size = 16) -> BeliefConv:
        """Make a layer for labels (N, K), and count its rates: see ``graphcaps.nn.BeliefConv.from_labels``."""
        edges, values = read_edges(edge_index)
        expect(values is None, "edge_index", "edges without weights", "weights", "They aren't counted: pass the edges")
        named = read_graph(edges, num_nodes=None if isinstance(labels, Mapping) else len(labels))
        classes = named.labels(labels)
        return layer_of_labels(cls, named.links(classes.device), classes, iterations)

    def reset_parameters(self) -> None:
        """Draw the weights like ``GATConv`` (Glorot normal, gain of ReLU), and set the bias to zero."""
        self.beliefs.reset_parameters()

    @typed
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
            edge_index: (2, E) integers, or an adjacency matrix of edge weights in one of PyG's other forms.
            edge_weight: (E,), weight of each edge; default 1.
            batch: (N,), the graph of each node, ascending; default: all nodes are in one graph.
            return_coupling: also return c (E, 1, num_caps), detached.
        """
        dims = check_tensor("x", x, floating=False, sparse=True).dim()
        expect(dims > 0, "x", "(N, ...)", "no dims")
        num_nodes, (edges, values) = int(x.size(0)), read_edges(edge_index)
        links = links_of_edges(edges, (num_nodes, num_nodes), one_kind=True).links
        edge_weight = values if edge_weight is None else edge_weight
        h, c = self.beliefs(links, dropped(self.feat_drop, x), edge_weight, self._members(batch, x, num_nodes))
        return (h, c) if return_coupling else h

    def _members(self, batch: OptTensor, x: Tensor, num_nodes: int) -> Links:
        """Link each node to its graph. In a trace, the number of graphs is unknown, and N is its bound."""
        nodes = torch.arange(num_nodes, device=x.device)
        if batch is None:
            return Links(nodes, torch.zeros_like(nodes), num_nodes, 1, traced=is_tracing())
        check_tensor("batch", batch, floating=False)
        fits = batch.shape == (num_nodes,) and batch.dtype == torch.int64
        expect(fits, "batch", f"int64 (N={num_nodes},)", f"{batch.dtype} {tuple(batch.shape)}")
        if is_tracing():
            return Links(nodes, batch, num_nodes, num_nodes, traced=True)
        ascending = bool((batch.diff() >= 0).all()) and bool((batch[:1] >= 0).all())
        expect(ascending, "batch", "graph numbers from 0 in ascending order", "others")
        return Links(nodes, batch, num_nodes, int(batch[-1]) + 1 if num_nodes else 0)
