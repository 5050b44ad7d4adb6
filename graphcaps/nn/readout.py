"""From the nodes of each graph in a batch to class capsules of the graph, by routing."""

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

    ``graphcaps.nn.CapsuleConv`` has the formula, and the meaning of the arguments that aren't listed here: each node
    has one edge, to its graph, along which the C classes compete. Uniform couplings give the mean over the nodes, so
    results don't depend on a graph's size. It replaces ``GlobalAttentionPooling``; the lengths are class scores for
    ``graphcaps.margin_loss``.

    With dynamic routing a capsule is a sum over all nodes, so that its first choice is a random one unless votes are
    very short, and the layer learns nothing.

    Args:
        in_feats: features of a node, or of each of its capsules for ``in_caps`` > 1.
        out_feats: D, numbers per capsule.
        num_caps: C, capsules of each graph, one per class.

    Shapes:
        graph of B graphs with N nodes in all, feat (N, *, in_feats), or (N, *, in_caps, in_feats) for in_caps > 1
        -> (B, *, num_caps, out_feats); a graph without nodes gives squash(bias)

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
            graph: one graph or several from ``dgl.batch``, homogeneous; only the graph of each node matters.
            feat: (N, *, in_feats).
            get_coupling: also give c (N, *, in_caps, num_caps), detached: which class each node supports.
        """
        check_tensor("feat", feat, floating=False, sparse=True)
        return self.capsules(membership(graph), feat, None, get_coupling)
