"""Routing along the edges of a graph, as a ``MessagePassing`` layer."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch_geometric.nn import MessagePassing
from torch_geometric.typing import Adj, OptPairTensor, OptTensor, Size
from torch_geometric.utils import is_sparse

from ..errors import check_flag, check_tensor, expect, required
from ..graph.links import run_untraced
from ..nn.node_caps import PYG, NodeCapsules
from ..routing import Routing
from ..routing.api import uncompiled
from .edges import RoutedEdges, coalesced, in_form_of, is_exported, pairs, routed_edges, values_of, with_loops


class CapsuleConv(MessagePassing):
    """Graph convolution by routing.

    ``graphcaps.nn.CapsuleConv`` has the formula, and the meaning of the arguments that aren't listed here. Its
    ``in_feats``, ``out_feats``, ``vote_drop`` and ``edge_feats`` are ``in_channels``, ``out_channels``, ``dropout`` and
    ``edge_dim`` here.

    Routing reads each vote several times, and may never build it. So a ``message`` is not a vote but its weight
    (E, 1), and ``aggregate`` routes: an explainer's edge mask multiplies the weights, and so does a message hook that
    returns something. Hooks get the couplings as ``alpha`` (E, in_caps * num_caps), as ``AttentionExplainer`` expects.
    Those of an edge sum to 1: use their maximum, the mean is constant.

    Args:
        add_self_loops: whether each node gets one self-loop, of weight 1 and with the mean features of its other
            in-edges, which replaces those it has; not if x is a pair. None is True, and lets ``to_hetero`` pass.
        concat: True: a node's capsules one after another, (*, N, num_caps * out_channels), as ``GATConv`` gives its
            heads. False: a dim for capsules, (*, N, num_caps, out_channels); unlike in ``GATConv`` not their mean.
        cached: whether the edges of the first call are cached, with their sorting, and used by all later calls, as in
            ``GCNConv``: for a graph whose edges never change. ``reset_parameters`` empties the cache.

    Shapes:
        x (*, N, in_channels), or (*, N, in_caps, in_channels) for in_caps > 1; edge_index (2, E)
        -> (*, N, num_caps, out_channels), or with ``concat`` (*, N, num_caps * out_channels); a node without in-edges
        gives squash(bias). The graphs of ``*``, such as the batch of a static graph, share nothing

    >>> edge_index = torch.tensor([[0, 1, 2], [1, 2, 3]])
    >>> conv = CapsuleConv(10, 2, num_caps=3)
    >>> conv, conv(torch.ones(4, 10), edge_index).shape
    (CapsuleConv(10, 2, num_caps=3), torch.Size([4, 3, 2]))
    """

    def __init__(
        self,
        in_channels: int | Sequence[int | None],
        out_channels: int,
        num_caps: int,
        routing: Routing | str = "spherical",
        squash_output: bool = True,
        dropout: float = 0.0,
        in_caps: int = 1,
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
        for name, flag in (("concat", concat), ("cached", cached), ("add_self_loops", add_self_loops or False)):
            check_flag(name, flag)
        self.in_channels, self.out_channels, self.num_caps = in_channels, out_channels, num_caps
        self.add_self_loops, self.edge_dim, self.residual, self.concat = add_self_loops, edge_dim, residual, concat
        self.cached = cached
        self._routed: RoutedEdges | None = None
        options = squash_output, dropout, in_caps, bias, normalise, unit_votes, mutual, edge_dim, residual, PYG
        self.capsules = NodeCapsules(in_channels, out_channels, num_caps, routing, *options)

    def reset_parameters(self) -> None:
        """Draw the weights as DGL's ``GATConv`` does (Glorot, normal, gain of ReLU); the bias is zero."""
        self._routed = None
        self.capsules.reset_parameters()

    @uncompiled
    def forward(
        self,
        x: torch.Tensor | OptPairTensor,
        edge_index: Adj,
        edge_weight: OptTensor = None,
        size: Size = None,
        return_coupling: bool = False,
        edge_attr: OptTensor = None,
        return_attention_weights: bool | None = None,
    ) -> torch.Tensor | tuple[torch.Tensor, tuple[Adj, torch.Tensor]]:
        """Route along the edges, from ``edge_index[0]`` to ``edge_index[1]``.

        Args:
            x: (*, N, in_channels), or a pair of the source and target nodes' features; the latter may be None.
            edge_index: (2, E) integers, an ``EdgeIndex``, or the transposed adjacency matrix as a sparse tensor of
                torch or torch_sparse, whose values are edge weights; with ``edge_dim`` they are edge features.
            edge_weight: (E,), how much each edge's votes count; default 1. With ``edge_dim``, edge features may be
                given here, as in ``GATConv``: with two dims, or those of ``edge_dim=1``.
            size: numbers of source and target nodes, if x does not give them.
            return_coupling: also give (edges, c (E', *, in_caps, num_caps) detached): the edges that were routed on,
                with self-loops if they were added, in the form of edge_index. c stands in a torch sparse tensor too,
                and is in the order of its values.
            edge_attr: (E, edge_dim), or (E,) for one, if edges have features.
            return_attention_weights: as ``return_coupling``, and if ``in_caps`` is 1 the couplings have no dim for
                it: (E', *, num_caps), as ``GATConv`` gives them.
        """
        pair = not isinstance(x, torch.Tensor)
        x, target = self.capsules.source_and_target(x)
        both_ways = "the features of nodes that are sources and targets, with mutual=True"
        expect(not (pair and self.capsules.mutual), "x", both_ways, "a pair", "Give it mutual=False")
        target = target if pair else x
        then = "residual=True adds them"
        expect(target is not None or not self.residual, "x", "a pair with the target nodes' features", "none", then)
        sizes = self._check_input(edge_index, size)
        for end, nodes in enumerate((x, target)):
            if nodes is not None:
                self._set_size(sizes, end, nodes)
        num_nodes = sizes[0], sizes[0] if sizes[1] is None else sizes[1]

        edge_index = coalesced(edge_index)
        edge_weight, edge_attr = self._attributes(edge_index, edge_weight, edge_attr)
        routed = self._routed or self._edges(edge_index, num_nodes, loops=self.add_self_loops is not False and not pair)
        self._routed = routed if self.cached else None
        edge_weight, edge_attr = with_loops(routed, num_nodes[1], edge_weight, edge_attr)
        x, target = self._nodes_first(x), None if target is None or not self.residual else self._nodes_first(target)
        coupled = bool(return_coupling or return_attention_weights)

        def route(edge_weight: OptTensor, coupled: bool = coupled) -> Any:
            return self.capsules(routed.graph, x, edge_weight, coupled, edge_attr, target)

        alpha = None
        if self.explain or self._message_forward_hooks:
            edge_weight = x.new_ones(routed.edges.size(1)) if edge_weight is None else edge_weight
            alpha = route(edge_weight, coupled=True)[1].flatten(1)
            edge_weight = edge_weight.view(-1, *[1] * (-self.node_dim - 1))
            then = "GraphMaskExplainer puts messages of its own there, and routing builds none: take GNNExplainer"
            expect("explain_message" not in vars(self), "explain_message", "that of MessagePassing", "another", then)
        out = self.propagate(routed.edges, size=num_nodes, edge_weight=edge_weight, alpha=alpha, route=route)
        out, c = out if coupled else (out, None)
        out = out.flatten(-2).movedim(0, -2) if self.concat else out.movedim(0, -3)
        if c is None:
            return out
        c = c.squeeze(-2) if not return_coupling and c.size(-2) == 1 else c
        return out, in_form_of(edge_index, routed, c, num_nodes)

    def message(self, edge_weight: OptTensor, alpha: OptTensor) -> OptTensor:
        """The weights of the votes, (E, 1); None: all are 1, and nobody looks at messages."""
        return edge_weight

    def aggregate(self, inputs: OptTensor, route: Callable) -> Any:
        """Route votes of these weights."""
        return route(None if inputs is None else inputs.flatten())

    def _nodes_first(self, x: torch.Tensor) -> torch.Tensor:
        return x if x.dim() == -self.node_dim else x.movedim(self.node_dim, 0)

    def _edges(self, edge_index: Adj, num_nodes: tuple[int, int], loops: bool) -> RoutedEdges:
        traced = is_exported()
        plain = self.capsules.in_caps == 1 and not self.capsules.mutual
        expect(plain or not traced, "torch.export", "in_caps=1 and mutual=False", repr(self.capsules))
        make = functools.partial(routed_edges, "edge_index", pairs(edge_index), num_nodes, loops, traced)
        return make() if traced else run_untraced(make)

    def _attributes(self, edge_index: Adj, edge_weight: OptTensor, edge_attr: OptTensor) -> tuple[OptTensor, OptTensor]:
        """Weights and features of the edges, from the argument that holds them."""
        for name, given in (("edge_weight", edge_weight), ("edge_attr", edge_attr)):
            if given is not None:
                check_tensor(name, given, floating=False)
        values = values_of(edge_index) if edge_weight is None and edge_attr is None and is_sparse(edge_index) else None
        if self.edge_dim is None:
            expect(edge_attr is None, "edge_attr", "none, as the layer has no edge_dim", "some", "Give it edge_dim=")
            edge_weight = values if edge_weight is None else edge_weight
            narrow = edge_weight is None or edge_weight.shape[0] == edge_weight.numel()
            then = "Edge features want a layer with edge_dim="
            expect(narrow, "edge_weight", "(E,)", edge_weight if narrow else tuple(edge_weight.shape), then)
            return edge_weight, None
        if edge_attr is None and edge_weight is not None and (edge_weight.dim() > 1 or self.edge_dim == 1):
            edge_weight, edge_attr = None, edge_weight
        edge_attr = values if edge_attr is None else edge_attr
        return edge_weight, required(edge_attr, "edge_attr", f"(E, {self.edge_dim}), as the layer has edge_dim")

    def __repr__(self) -> str:
        sizes = f"{self.in_channels}, {self.out_channels}, num_caps={self.num_caps}"
        sizes += f", edge_dim={self.edge_dim}" * (self.edge_dim is not None) + ", residual=True" * self.residual
        return f"{type(self).__name__}({sizes}{', concat=True' * self.concat})"
