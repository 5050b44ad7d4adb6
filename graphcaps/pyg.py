"""CapsuleConv and CapsuleReadout for PyTorch Geometric, in its manner; for DGL they are in ``graphcaps.nn``.

Parameters have the same names and shapes there, and the same weights give the same numbers. Needs
``pip install -e ".[pyg]"``; nothing else in graphcaps imports this module.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.utils.weak import WeakIdKeyDictionary

from ._dgl import DGLGraph, has_cuda
from .errors import InputError, MissingError, expect, required
from .graph import bipartite_graph
from .nn.node_caps import NodeCapsules
from .nn.words import pointing

try:
    import torch_geometric  # noqa: F401
except ModuleNotFoundError as error:
    raise MissingError(
        f'graphcaps.pyg: expected torch_geometric, got no {error.name}. Run: pip install -e ".[pyg]"'
    ) from error

from torch_geometric.edge_index import EdgeIndex
from torch_geometric.nn import Aggregation, MessagePassing
from torch_geometric.typing import Adj, OptPairTensor, OptTensor, Size
from torch_geometric.utils import add_self_loops as with_self_loops
from torch_geometric.utils import is_sparse, remove_self_loops, to_edge_index


class CapsuleConv(MessagePassing):
    """Graph convolution by routing; ``graphcaps.nn.CapsuleConv`` has the formula.

    A ``MessagePassing`` layer to all that look for one (explainers, ``summary``, ``HeteroConv``), but routing reads
    messages several times and its engines need not build them, so that ``propagate`` and its hooks are not called. An
    explainer's edge mask multiplies the edge weights, which is what it does to messages elsewhere.

    Args:
        in_channels: features of a node, or of each of its capsules where ``in_caps`` > 1. A pair (source, target) for
            bipartite graphs, as other layers take it; only the first is used.
        out_channels: D, numbers per capsule.
        num_caps: K, capsules of each node in the result.
        iterations: R >= 1.
        squash_output: whether capsules are squashed to length < 1; False for logits.
        dropout: dropout probability of votes, as ``GATConv`` has it of attention.
        competition: ``"capsules"`` or ``"neighbours"``.
        in_caps: capsules of each node in the input.
        add_self_loops: whether each node gets one self-loop, of weight 1, in the place of those it has; not where x is
            a pair.
        bias: whether a bias is learned.
        routing: ``"spherical"``, ``"dynamic"`` or ``"uniform"``.
        concentration: kappa before training, > 0: how much is routed at first. Start it larger, at 4 or so, where
            votes are expected to be of several kinds.
        normalise: whether capsules to be squashed are first divided by the root mean square of the features.
        unit_votes: whether a vote is a direction alone, divided by its length. Worth a try where votes are of several
            kinds, with a concentration of 4 or so.
        engine: as in ``graphcaps.route``.

    Shapes:
        x (N, *, in_channels), or (N, *, in_caps, in_channels) for in_caps > 1; edge_index (2, E)
        -> (N, *, num_caps, out_channels); a node without in-edges gives squash(bias)

    >>> edge_index = torch.tensor([[0, 1, 2], [1, 2, 3]])
    >>> conv = CapsuleConv(10, 2, num_caps=3)
    >>> conv, conv(torch.ones(4, 10), edge_index).shape
    (CapsuleConv(10, 2, num_caps=3), torch.Size([4, 3, 2]))
    """

    @pointing
    def __init__(
        self,
        in_channels: int | tuple[int, int],
        out_channels: int,
        num_caps: int,
        iterations: int = 3,
        squash_output: bool = True,
        dropout: float = 0.0,
        competition: str = "capsules",
        in_caps: int = 1,
        add_self_loops: bool = True,
        bias: bool = True,
        routing: str = "spherical",
        concentration: float = 0.5,
        normalise: bool = True,
        unit_votes: bool = False,
        engine: str = "auto",
    ):
        super().__init__(aggr=None, node_dim=0)
        self.in_channels, self.out_channels, self.num_caps = in_channels, out_channels, num_caps
        self.add_self_loops = add_self_loops
        source = in_channels[0] if isinstance(in_channels, tuple) else in_channels
        expect(source != -1, "in_channels", "the number of features", -1, "It is not found out from the first input")
        self.capsules = NodeCapsules(
            source,
            out_channels,
            num_caps,
            in_caps,
            iterations,
            competition,
            squash_output,
            dropout,
            bias,
            routing,
            concentration,
            normalise,
            unit_votes,
            engine,
        )

    def reset_parameters(self) -> None:
        """Draw the weights as DGL's ``GATConv`` does (Glorot, normal, gain of ReLU); the bias is zero."""
        self.capsules.reset_parameters()

    @pointing
    def forward(
        self,
        x: torch.Tensor | OptPairTensor,
        edge_index: Adj,
        edge_weight: OptTensor = None,
        size: Size = None,
        return_coupling: bool = False,
    ) -> torch.Tensor | tuple[torch.Tensor, tuple[torch.Tensor, torch.Tensor]]:
        """Route along the edges, from ``edge_index[0]`` to ``edge_index[1]``.

        Args:
            x: (N, *, in_channels), or a pair of the source and target nodes' features; the latter may be None.
            edge_index: (2, E) integers, an ``EdgeIndex``, or the transposed adjacency matrix as a sparse tensor of
                torch or torch_sparse, whose values are edge weights.
            edge_weight: (E,), how much each edge's votes count; default 1.
            size: numbers of source and target nodes, where x does not say.
            return_coupling: also give the edges that were routed on and their couplings.

        Returns:
            (N, *, num_caps, out_channels) of the (target) nodes; with ``return_coupling`` a pair, the second being
            (edge_index (2, E'), c (E', *, in_caps, num_caps) detached), with self-loops where they were added.

        Raises:
            ValueError: shapes or indices that don't fit.
        """
        pair = not isinstance(x, torch.Tensor)
        x, target = x if pair else (x, x)
        sizes = self._check_input(edge_index, size)
        for end, nodes in enumerate((x, target)):
            if nodes is not None:
                self._set_size(sizes, end, nodes)
        num_sources, num_targets = sizes[0], sizes[0] if sizes[1] is None else sizes[1]

        edges, edge_weight = _plain(edge_index, edge_weight)
        if edge_weight is not None:
            shape = tuple(edge_weight.shape)
            expect(shape[:1] == (edges.size(1),), "edge_weight", f"(E={edges.size(1)},)", shape)
        if self.add_self_loops and not pair:
            edges, edge_weight = remove_self_loops(edges, edge_weight)
            edges, edge_weight = with_self_loops(edges, edge_weight, fill_value=1.0, num_nodes=num_targets)
        if self.explain:
            whole = x.new_ones(edges.size(1)) if edge_weight is None else edge_weight
            edge_weight = self.explain_message(whole, num_targets)
        graph = _graph_along("edge_index", edge_index, edges, num_sources, num_targets)
        found = self.capsules(graph, x, edge_weight, return_coupling)
        return (found[0], (edges, found[1])) if return_coupling else found

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.in_channels}, {self.out_channels}, num_caps={self.num_caps})"


class CapsuleAggregation(Aggregation):
    """Graph-level capsules: every node divides its vote among the C class capsules of its graph.

    ``graphcaps.nn.CapsuleReadout`` has the formula. Called as any ``Aggregation`` is, ``readout(x, batch)``, but with
    a dim for capsules in what it gives, which a convolution that aggregates its messages so doesn't expect. The lengths
    are class scores for ``graphcaps.margin_loss``.

    Args:
        in_channels: features of a node, or of each of its capsules where ``in_caps`` > 1.
        out_channels: D, numbers per capsule.
        num_caps: C, capsules of each graph, one per class.
        iterations: R >= 1.
        squash_output: whether capsules are squashed to length < 1.
        dropout: dropout probability of votes: each node supports some classes with nothing.
        in_caps: capsules of each node.
        bias: whether a bias is learned.
        routing: ``"spherical"``, ``"dynamic"`` or ``"uniform"``.
        concentration: kappa before training, > 0: how much is routed at first. Start it larger, at 4 or so, where
            votes are expected to be of several kinds.
        normalise: whether capsules to be squashed are first divided by the root mean square of the features.
        unit_votes: whether a vote is a direction alone, divided by its length. Worth a try where votes are of several
            kinds, with a concentration of 4 or so.
        engine: as in ``graphcaps.route``.

    Shapes:
        x (N, *, in_channels), or (N, *, in_caps, in_channels) for in_caps > 1; index (N,)
        -> (B, *, num_caps, out_channels); a graph without nodes gives squash(bias)

    >>> readout = CapsuleReadout(10, 16, num_caps=2)
    >>> readout, readout(torch.ones(5, 10), torch.tensor([0, 0, 1, 1, 1])).shape
    (CapsuleAggregation(10, 16, num_caps=2), torch.Size([2, 2, 16]))
    """

    @pointing
    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        num_caps: int,
        iterations: int = 3,
        squash_output: bool = True,
        dropout: float = 0.0,
        in_caps: int = 1,
        bias: bool = True,
        routing: str = "spherical",
        concentration: float = 0.5,
        normalise: bool = True,
        unit_votes: bool = False,
        engine: str = "auto",
    ):
        super().__init__()
        self.in_channels, self.out_channels, self.num_caps = in_channels, out_channels, num_caps
        self.capsules = NodeCapsules(
            in_channels,
            out_channels,
            num_caps,
            in_caps,
            iterations,
            "capsules",
            squash_output,
            dropout,
            bias,
            routing,
            concentration,
            normalise,
            unit_votes,
            engine,
        )

    def reset_parameters(self) -> None:
        """Draw the weights as ``CapsuleConv`` does; the bias is zero."""
        self.capsules.reset_parameters()

    def __call__(
        self,
        x: torch.Tensor,
        index: OptTensor = None,
        ptr: OptTensor = None,
        dim_size: int | None = None,
        dim: int = 0,
        **options: Any,
    ) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
        # Other aggregations count from the back, where a node's features may here be two dims.
        return super().__call__(x, index, ptr, dim_size, dim, **options)

    @pointing
    def forward(
        self,
        x: torch.Tensor,
        index: OptTensor = None,
        ptr: OptTensor = None,
        dim_size: int | None = None,
        dim: int = 0,
        max_num_elements: int | None = None,
        return_coupling: bool = False,
    ) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
        """Route nodes to their graphs.

        Args:
            x: (N, *, in_channels).
            index: (N,), the graph of each node, in any order; default: all are of one graph.
            ptr: (B + 1,), where each graph's nodes begin, in the place of index.
            dim_size: B; default: one more than the largest index.
            dim: which of x's dims is N.
            max_num_elements: as other aggregations take it; not used.
            return_coupling: also give c (N, *, in_caps, num_caps), detached: which class each node supports.

        Returns:
            (B, *, num_caps, out_channels), B in the place of N; with ``return_coupling`` a pair.
        """
        dim_size = required(dim_size, "dim_size", "the number of graphs")
        name, held = ("ptr", ptr) if index is None else ("index", index)
        if index is None:
            index = torch.arange(dim_size, device=ptr.device).repeat_interleave(ptr.diff())
        members = torch.stack((torch.arange(len(index), dtype=index.dtype, device=index.device), index))
        graph = _graph_along(name, held, members, len(index), dim_size)
        dim = dim % x.dim()
        found = self.capsules(graph, x.movedim(dim, 0), None, return_coupling)
        return tuple(part.movedim(0, dim) for part in found) if return_coupling else found.movedim(0, dim)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.in_channels}, {self.out_channels}, num_caps={self.num_caps})"


CapsuleReadout = CapsuleAggregation  # its name in graphcaps.nn


def _plain(edge_index: Adj, edge_weight: OptTensor) -> tuple[torch.Tensor, OptTensor]:
    """Any form of edges as (2, E) and their weights, which a sparse matrix has itself."""
    if is_sparse(edge_index):
        transposed, values = to_edge_index(edge_index)
        return transposed.flip(0), values if edge_weight is None else edge_weight
    return edge_index.as_tensor() if isinstance(edge_index, EdgeIndex) else edge_index, edge_weight


_kept = WeakIdKeyDictionary()  # {what the caller holds: {(edges, sources, targets): (edges, graph)}}


def _graph_along(name: str, held: Any, edges: torch.Tensor, num_sources: int, num_targets: int) -> DGLGraph:
    """The graph of these edges (2, E), the same one as long as the argument ``held`` is there and they are the same.

    Engines keep per graph what they sort; a full-batch training loop gives the same ``held`` in every step. The edges
    are compared: a tensor changes in place, and not each way of changing it leaves a mark on the tensor.
    """
    graphs = _kept.setdefault(held, {})
    sizes = edges.size(1), num_sources, num_targets
    if sizes not in graphs or not torch.equal(graphs[sizes][0], edges):
        own = edges.clone(memory_format=torch.contiguous_format)
        ends = own if own.is_cuda and has_cuda() else own.cpu()
        try:
            graphs[sizes] = own, bipartite_graph(ends[0], ends[1], num_sources, num_targets)
        except InputError as error:
            raise InputError(f"{name}: {error}") from error
    return graphs[sizes][1]
