"""Readout: the nodes of each graph in a batch are routed to the graph's class capsules."""

from __future__ import annotations

from torch import Tensor, nn

from .._dgl import DGLGraph
from ..errors import check_tensor
from ..graph import membership
from ..routing import Routing
from ..routing.api import uncompiled
from .node_caps import NodeCapsules


class CapsuleReadout(nn.Module):
    """Graph-level capsules: every node divides its vote among the C class capsules of its graph.

    The docstring of ``graphcaps.nn.CapsuleConv`` has the formula and the other arguments. Each node has one edge, to
    its graph, and the C classes compete along it. At uniform couplings the result is the mean over the nodes. The layer
    replaces ``GlobalAttentionPooling``; the lengths of the capsules are class scores for ``graphcaps.margin_loss``.

    Dynamic routing sums over all nodes. Unless the votes are very short, its first iteration makes a random choice,
    and the layer learns nothing.

    Args:
        in_feats: number of features of a node, or of each of its capsules if ``in_caps`` > 1.
        out_feats: D, numbers per capsule.
        num_caps: C, number of capsules of each graph, one per class.

    Shapes:
        batch of B graphs with N nodes in all, feat (N, *, in_feats), or (N, *, in_caps, in_feats) for in_caps > 1
        -> (B, *, num_caps, out_feats); the result of a graph without nodes is squash(bias)

    >>> import torch
    >>> from graphcaps import dgl
    >>> batch = dgl.batch([dgl.rand_graph(3, 4), dgl.rand_graph(5, 9)])
    >>> CapsuleReadout(10, 16, num_caps=2)(batch, torch.ones(8, 10)).shape
    torch.Size([2, 2, 16])
    """

    def __init__(
        self,
        in_feats: int,
        out_feats: int,
        num_caps: int,
        routing: Routing | str = "spherical",
        squash_output: bool = True,
        vote_drop: float = 0.0,
        in_caps: int = 1,
        bias: bool = True,
        normalise: bool = True,
        unit_votes: bool = False,
    ):
        super().__init__()
        options = squash_output, vote_drop, in_caps, bias, normalise, unit_votes
        self.capsules = NodeCapsules(in_feats, out_feats, num_caps, routing, *options)

    def reset_parameters(self) -> None:
        """Draw the weights as ``CapsuleConv`` does; the bias is zero."""
        self.capsules.reset_parameters()

    @uncompiled
    def forward(self, graph: DGLGraph, feat: Tensor, get_coupling: bool = False) -> Tensor | tuple[Tensor, Tensor]:
        """Route nodes to their graphs.

        Args:
            graph: one homogeneous graph, or several from ``dgl.batch``. Its edges aren't used.
            feat: (N, *, in_feats).
            get_coupling: also return c (N, *, in_caps, num_caps), detached: the classes that each node supports.
        """
        check_tensor("feat", feat, floating=False, sparse=True)
        return self.capsules(membership(graph), feat, None, get_coupling)
