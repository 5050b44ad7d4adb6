"""Routing along the edges of a graph, as a ``MessagePassing`` layer."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch_geometric.nn import MessagePassing
from torch_geometric.typing import Adj, OptPairTensor, OptTensor
from torch_geometric.typing import Size as GraphSizes

from ..errors import check_tensor, expect
from ..graph import Links
from ..layer_common import PYG, check_no_negative
from ..nn.node_caps import NodeCapsules, NodeOptions
from ..routing import Routing
from ..typed import Share, Size, typed
from .edges import EdgesWithLoops, in_form_of, links_of_edges, read_edges


class CapsuleConv(MessagePassing):
    """Graph convolution by routing.

    The docstring of ``graphcaps.nn.CapsuleConv`` gives the formula and the other arguments. Its ``in_feats``,
    ``out_feats``, ``vote_drop`` and ``edge_feats`` are ``in_channels``, ``out_channels``, ``dropout`` and ``edge_dim``.

    With hooks or an explainer, ``message`` returns the weights (E, 1) of the votes, and ``aggregate`` routes. So an
    explainer's edge mask multiplies the weights. Hooks get the couplings as ``alpha`` (E, num_caps),
    for ``AttentionExplainer``. An edge's couplings sum to 1, so their mean is constant: use their maximum.

    Args:
        add_self_loops: whether each node gets one self-loop, which replaces those it has. Its weight is 1, its features
            are the mean over other in-edges. Ignored if x is a pair. None means True, but ``to_hetero`` accepts it.
        concat: True: a node's capsules are joined, (*, N, num_caps * out_channels), like the heads of ``GATConv``.
            False: capsules have their own dim, (*, N, num_caps, out_channels), while ``GATConv`` returns the mean.
        cached: whether all later calls reuse the sorted edges of the first call, as in ``GCNConv``. Use it for a graph
            whose edges never change. ``reset_parameters`` empties the cache.

    Shapes:
        x (*, N, in_channels), edge_index (2, E) -> (*, N, num_caps, out_channels), or with ``concat``
        (*, N, num_caps * out_channels). The result of a node without in-edges is squash(bias). ``*`` is a batch on one
        static graph; its entries are independent

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
        super().__init__(aggr=None, node_dim=-2)
        self.in_channels, self.out_channels, self.num_caps = in_channels, out_channels, num_caps
        self.add_self_loops, self.edge_dim, self.residual, self.concat = add_self_loops, edge_dim, residual, concat
        self.cached = cached
        self._routed: EdgesWithLoops | None = None
        options = NodeOptions(routing, squash_output, dropout, bias, normalise, unit_votes, mutual, edge_dim, residual)
        self.capsules = NodeCapsules(in_channels, out_channels, num_caps, options, PYG)

    def reset_parameters(self) -> None:
        """Draw the weights like DGL's ``GATConv`` (Glorot normal, gain of ReLU), and set the bias to zero."""
        self._routed = None
        self.capsules.reset_parameters()

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
            edge_weight: (E,), a factor >= 0 for each edge's votes; default 1. With ``edge_dim``, this may be edge
                features, as in ``GATConv``, if they have two dims or ``edge_dim`` is 1.
            size: numbers of source and target nodes, if x does not determine them.
            return_coupling: also return (edges, c), with c (E', *, 1, num_caps) detached. The edges include added
                self-loops and have the form of edge_index; c is in the same order.
            edge_attr: (E, edge_dim), or (E,) for a single feature, if edges have features.
            return_attention_weights: like ``return_coupling``, but with couplings (E', *, num_caps), as in
                ``GATConv``.
        """
        pair = not isinstance(x, Tensor)
        x, target = self.capsules.source_and_target(x)
        expect(x.dim() >= 2, "x", "(*, N, in_channels)", tuple(x.shape))
        both_ways = "one tensor of node features with mutual=True"
        expect(not (pair and self.capsules.mutual), "x", both_ways, "a pair", "Give it mutual=False")
        edges, values = read_edges(edge_index)
        num_nodes = self._sizes(edge_index, size, x, target, pair)
        edge_weight, edge_attr = self._attributes(values, edge_weight, edge_attr)
        loops, one_kind = not pair and self.add_self_loops is not False, not pair and num_nodes[0] == num_nodes[1]
        routed = self._routed or links_of_edges(edges, num_nodes, loops, one_kind)
        self._routed = routed if self.cached and not torch.is_inference_mode_enabled() else None
        edge_weight, edge_attr = routed.values("edge_weight", edge_weight), routed.values("edge_attr", edge_attr)
        self.capsules.warn_of_target(target, routed.links)
        target = self._target(target if pair else x, routed.links) if self.residual else None
        x, coupling = x if x.dim() == 2 else x.movedim(-2, 0), bool(return_coupling or return_attention_weights)

        def route(edge_weight: OptTensor, coupling: bool = coupling) -> Any:
            return self.capsules(routed.links, x, edge_weight, coupling, edge_attr, target)

        if self.explain or self._message_forward_hooks or self._message_forward_pre_hooks:
            out, c = self._propagate_weights(route, routed, num_nodes, edge_weight, x)
        else:
            out, c = route(edge_weight)
        out = out[: num_nodes[1]]
        out = (out.flatten(-2).movedim(0, -2) if self.concat else out.movedim(0, -3)).contiguous()
        if c is None:
            return out
        return out, in_form_of(edge_index, routed, c if return_coupling else c.squeeze(-2), num_nodes)

    def _sizes(self, edge_index: Adj, size: GraphSizes, x: Tensor, target: OptTensor, pair: bool) -> tuple[int, int]:
        """Return the numbers of source and target nodes."""
        sizes = self._check_input(edge_index, size)
        for end, nodes in enumerate((x, target if pair else x)):
            if nodes is not None:
                self._set_size(sizes, end, nodes)
        return sizes[0], sizes[0] if sizes[1] is None else sizes[1]

    def _target(self, target: OptTensor, links: Links) -> OptTensor:
        """Return the targets' features with nodes first, and zeros for the node that a trace adds."""
        if target is None:
            return None
        target = target if target.dim() == 2 else target.movedim(-2, 0)
        more = links.num_parents - target.shape[0]
        return torch.cat((target, target.new_zeros(1, *target.shape[1:]))) if links.traced and more == 1 else target

    def _propagate_weights(
        self, route: Callable, routed: EdgesWithLoops, num_nodes: tuple[int, int], edge_weight: OptTensor, x: Tensor
    ) -> Any:
        """Route by ``propagate``, so that explainers and hooks see and change the weights of the votes."""
        edge_weight = x.new_ones(routed.links.num_edges) if edge_weight is None else edge_weight
        alpha = route(edge_weight, coupling=True)[1].flatten(1)
        advice = "GraphMaskExplainer replaces messages, but routing builds none: use GNNExplainer"
        expect("explain_message" not in vars(self), "explain_message", "that of MessagePassing", "another", advice)
        weights = edge_weight.view(-1, 1)
        return self.propagate(routed.edges, size=num_nodes, edge_weight=weights, alpha=alpha, route=route)

    def message(self, edge_weight: Tensor, alpha: Tensor) -> Tensor:
        """Return the weights of the votes, (E, 1)."""
        return edge_weight

    def aggregate(self, inputs: Tensor, route: Callable) -> Any:
        """Route the votes with these weights."""
        return route(inputs.flatten())

    def _attributes(
        self, values: OptTensor, edge_weight: OptTensor, edge_attr: OptTensor
    ) -> tuple[OptTensor, OptTensor]:
        """Return the edges' weights and features, from whichever of the three arguments holds them."""
        if edge_weight is None and edge_attr is None:
            edge_weight = values
        for name, of_edges in (("edge_weight", edge_weight), ("edge_attr", edge_attr)):
            if of_edges is not None:
                check_tensor(name, of_edges, floating=False)
        if self.edge_dim is not None and edge_attr is None:
            wide = edge_weight is not None and (edge_weight.dim() > 1 or self.edge_dim == 1)
            return None, edge_weight if wide else None
        narrow = edge_weight is None or (edge_weight.dim() > 0 and edge_weight.shape[0] == edge_weight.numel())
        advice = "Edge features need a layer with edge_dim="
        expect(narrow, "edge_weight", "(E,)", edge_weight if narrow else tuple(edge_weight.shape), advice)
        if edge_weight is not None:
            check_no_negative(edge_weight)  # before the edges change their order
        return edge_weight, edge_attr

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.in_channels}, {self.out_channels}, num_caps={self.num_caps})"
