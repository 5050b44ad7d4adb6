"""Routing along the edges of a graph, as a ``MessagePassing`` layer."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor
from torch_geometric.nn import MessagePassing
from torch_geometric.typing import Adj, OptPairTensor, OptTensor
from torch_geometric.typing import Size as GraphSizes
from torch_geometric.utils import is_sparse

from ..errors import check_tensor, expect, required
from ..graph.links import run_untraced
from ..layers import PYG
from ..nn.node_caps import NodeCapsules
from ..routing import Routing
from ..tracing import uncompiled
from ..typed import Share, Size, typed
from .edges import RoutedEdges, coalesced, in_form_of, is_exported, pairs, routed_edges, values_of


class CapsuleConv(MessagePassing):
    """Graph convolution by routing.

    The docstring of ``graphcaps.nn.CapsuleConv`` gives the formula and the other arguments. Its ``in_feats``,
    ``out_feats``, ``vote_drop`` and ``edge_feats`` are ``in_channels``, ``out_channels``, ``dropout`` and ``edge_dim``.

    ``message`` returns the weights (E, 1) of the votes, and ``aggregate`` does the routing, which doesn't store votes.
    So an explainer's edge mask multiplies the weights. Hooks get the couplings as ``alpha`` (E, in_caps * num_caps),
    for ``AttentionExplainer``. An edge's couplings sum to 1, so their mean is constant: use their maximum.

    Args:
        add_self_loops: whether each node gets one self-loop, which replaces those it has. Its weight is 1, its features
            are the mean over other in-edges. Ignored if x is a pair. None means True, but ``to_hetero`` accepts it.
        concat: True: a node's capsules are joined, (*, N, num_caps * out_channels), like the heads of ``GATConv``.
            False: capsules have their own dim, (*, N, num_caps, out_channels), while ``GATConv`` returns the mean.
        cached: whether all later calls reuse the sorted edges of the first call, as in ``GCNConv``. Use it for a graph
            whose edges never change. ``reset_parameters`` empties the cache.

    Shapes:
        x (*, N, in_channels), or (*, N, in_caps, in_channels) for in_caps > 1; edge_index (2, E)
        -> (*, N, num_caps, out_channels), or with ``concat`` (*, N, num_caps * out_channels); the result of a node
        without in-edges is squash(bias). ``*`` is a batch on one static graph; its entries are independent

    >>> import torch
    >>> edge_index = torch.tensor([[0, 1, 2], [1, 2, 3]])
    >>> conv = CapsuleConv(10, 2, num_caps=3)
    >>> conv, conv(torch.ones(4, 10), edge_index).shape
    (CapsuleConv(10, 2, num_caps=3), torch.Size([4, 3, 2]))
    """

    @typed
    def __init__(
        self,
        in_channels: int | Sequence[int | None],
        out_channels: Size,
        num_caps: Size,
        routing: Routing | str = "spherical",
        squash_output: bool = True,
        dropout: Share = 0.0,
        in_caps: Size = 1,
        add_self_loops: bool | None = None,
        bias: bool = True,
        normalise: bool = True,
        edge_dim: int | None = None,
        residual: bool = False,
        concat: bool = False,
        cached: bool = False,
        mutual: bool = False,
        unit_votes: bool = False,
    ):
        super().__init__(aggr=None, node_dim=-3 if in_caps != 1 else -2)
        self.in_channels, self.out_channels, self.num_caps = in_channels, out_channels, num_caps
        self.add_self_loops, self.edge_dim, self.residual, self.concat = add_self_loops, edge_dim, residual, concat
        self.cached = cached
        self._routed: RoutedEdges | None = None
        options = squash_output, dropout, in_caps, bias, normalise, unit_votes, mutual, edge_dim, residual, PYG
        self.capsules = NodeCapsules(in_channels, out_channels, num_caps, routing, *options)

    def reset_parameters(self) -> None:
        """Draw the weights like DGL's ``GATConv`` (Glorot normal, gain of ReLU), and set the bias to zero."""
        self._routed = None
        self.capsules.reset_parameters()

    @uncompiled
    @typed
    def forward(
        self,
        x: Tensor | OptPairTensor,
        edge_index: Adj,
        edge_weight: OptTensor = None,
        size: GraphSizes = None,
        return_coupling: bool = False,
        edge_attr: OptTensor = None,
        return_attention_weights: bool | None = None,
    ) -> Tensor | tuple[Tensor, tuple[Adj, Tensor]]:
        """Route along the edges, from ``edge_index[0]`` to ``edge_index[1]``.

        Args:
            x: (*, N, in_channels), or a pair of the source and target nodes' features; the latter may be None.
            edge_index: (2, E) integers, an ``EdgeIndex``, or the transposed adjacency matrix as a sparse tensor of
                torch or torch_sparse. The matrix's values are edge weights or, with ``edge_dim``, edge features.
            edge_weight: (E,), a factor for each edge's votes; default 1. With ``edge_dim``, this may be edge features,
                as in ``GATConv``, if they have two dims or ``edge_dim`` is 1.
            size: numbers of source and target nodes, if x does not determine them.
            return_coupling: also return (edges, c), with c (E', *, in_caps, num_caps) detached. The edges include added
                self-loops and have the form of edge_index; c is in the same order.
            edge_attr: (E, edge_dim), or (E,) for a single feature, if edges have features.
            return_attention_weights: like ``return_coupling``, but if ``in_caps`` is 1 that dim is dropped: the
                couplings are (E', *, num_caps), as in ``GATConv``.
        """
        pair = not isinstance(x, Tensor)
        x, target = self.capsules.source_and_target(x)
        expect(x.dim() >= -self.node_dim, "x", "(*, N, in_channels), or (*, N, in_caps, in_channels)", tuple(x.shape))
        both_ways = "one tensor of node features with mutual=True"
        expect(not (pair and self.capsules.mutual), "x", both_ways, "a pair", "Give it mutual=False")
        target = target if pair else x
        then = "residual=True adds them"
        expect(target is not None or not self.residual, "x", "a pair with the target nodes' features", "none", then)
        edge_index = coalesced(edge_index)
        sizes = self._check_input(edge_index, size)
        for end, nodes in enumerate((x, target)):
            if nodes is not None:
                self._set_size(sizes, end, nodes)
        num_nodes = sizes[0], sizes[0] if sizes[1] is None else sizes[1]

        edge_weight, edge_attr = self._attributes(edge_index, edge_weight, edge_attr)
        routed = self._routed or self._edges(edge_index, num_nodes, loops=self.add_self_loops is not False and not pair)
        self._routed = routed if self.cached else None
        edge_weight, edge_attr = routed.values("edge_weight", edge_weight), routed.values("edge_attr", edge_attr)
        x, target = self._nodes_first(x), None if target is None or not self.residual else self._nodes_first(target)
        coupled = bool(return_coupling or return_attention_weights)

        def route(edge_weight: OptTensor, coupled: bool = coupled) -> Any:
            return self.capsules(routed.graph, x, edge_weight, coupled, edge_attr, target)

        alpha = None
        if self.explain or self._message_forward_hooks:
            edge_weight = x.new_ones(routed.edges.size(1)) if edge_weight is None else edge_weight
            alpha = route(edge_weight, coupled=True)[1].flatten(1)
            edge_weight = edge_weight.view(-1, *[1] * (-self.node_dim - 1))
            then = "GraphMaskExplainer replaces messages, but routing builds none: use GNNExplainer"
            expect("explain_message" not in vars(self), "explain_message", "that of MessagePassing", "another", then)
        out, c = self.propagate(routed.edges, size=num_nodes, edge_weight=edge_weight, alpha=alpha, route=route)
        out = out.flatten(-2).movedim(0, -2) if self.concat else out.movedim(0, -3)
        if c is None:
            return out
        c = c.squeeze(-2) if not return_coupling and c.size(-2) == 1 else c
        return out, in_form_of(edge_index, routed, c, num_nodes)

    def message(self, edge_weight: OptTensor, alpha: OptTensor) -> OptTensor:
        """Return the weights of the votes, (E, 1). None: all are 1, and no hook or explainer needs messages."""
        return edge_weight

    def aggregate(self, inputs: OptTensor, route: Callable) -> Any:
        """Route the votes with these weights."""
        return route(None if inputs is None else inputs.flatten())

    def _nodes_first(self, x: Tensor) -> Tensor:
        return x if x.dim() == -self.node_dim else x.movedim(self.node_dim, 0)

    def _edges(self, edge_index: Adj, num_nodes: tuple[int, int], loops: bool) -> RoutedEdges:
        traced = is_exported()
        plain = self.capsules.in_caps == 1 and not self.capsules.mutual
        expect(plain or not traced, "torch.export", "in_caps=1 and mutual=False", repr(self.capsules))
        make = functools.partial(routed_edges, pairs(edge_index), num_nodes, loops, traced)
        return make() if traced else run_untraced(make)

    def _attributes(self, edge_index: Adj, edge_weight: OptTensor, edge_attr: OptTensor) -> tuple[OptTensor, OptTensor]:
        """Return the edges' weights and features, from whichever of the three arguments holds them."""
        if edge_weight is None and edge_attr is None and is_sparse(edge_index):
            edge_weight = values_of(edge_index)
        for name, given in (("edge_weight", edge_weight), ("edge_attr", edge_attr)):
            if given is not None:
                check_tensor(name, given, floating=False)
        if self.edge_dim is not None and edge_attr is None:
            wide = edge_weight is not None and (edge_weight.dim() > 1 or self.edge_dim == 1)
            wanted = f"(E, {self.edge_dim}), because the layer has edge_dim"
            return None, required(edge_weight if wide else None, "edge_attr", wanted)
        narrow = edge_weight is None or (edge_weight.dim() > 0 and edge_weight.shape[0] == edge_weight.numel())
        then = "Edge features need a layer with edge_dim="
        expect(narrow, "edge_weight", "(E,)", edge_weight if narrow else tuple(edge_weight.shape), then)
        return edge_weight, edge_attr

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.in_channels}, {self.out_channels}, num_caps={self.num_caps})"
