"""CapsuleConv and CapsuleReadout for PyTorch Geometric, in its manner; for DGL they are in ``graphcaps.nn``.

Parameters have the same names and shapes there, and the same weights give the same numbers. Needs
``pip install -e ".[pyg]"``; nothing else in graphcaps imports this module.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

import torch
from torch.utils.weak import WeakIdKeyDictionary

from ._dgl import DGLGraph, has_cuda
from .errors import InputError, MissingError, check_whole, expect, required
from .graph import bipartite_graph
from .nn.node_caps import NodeCapsules, check_iterations, ends_of_features, warn_unused
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
from torch_geometric.utils import (
    is_sparse,
    is_torch_sparse_tensor,
    scatter,
    to_edge_index,
    to_torch_sparse_tensor,
)

Made = TypeVar("Made")


class CapsuleConv(MessagePassing):
    """Graph convolution by routing; ``graphcaps.nn.CapsuleConv`` has the formula.

    Features a_e of an edge (``edge_dim``) vote as if they were further features of its source, along this edge alone:
    x_u W_l + a_e U_l is what e = (u, v) says to capsule l of v.

    A ``MessagePassing`` layer to all that look for one (explainers, ``summary``, ``HeteroConv``), but routing reads
    messages several times and its engines need not build them, so that ``propagate`` and its hooks are not called. An
    explainer's edge mask multiplies the edge weights, which is what it does to messages elsewhere. Hooks on messages
    are called with the couplings as ``alpha`` (E, in_caps * num_caps), which is what ``AttentionExplainer`` looks for.
    Where capsules compete, those of an edge sum to 1: the largest says how decided it is, and the mean says nothing.

    Args:
        in_channels: features of a node, or of each of its capsules where ``in_caps`` > 1. A pair (source, target) for
            bipartite graphs, as other layers take it; the second is used by ``residual`` alone, and None says that
            there is no use for it. -1: found out from the first input.
        out_channels: D, numbers per capsule.
        num_caps: K, capsules of each node in the result.
        iterations: R >= 1.
        squash_output: whether capsules are squashed to length < 1; False for logits.
        dropout: dropout probability of votes, as ``GATConv`` has it of attention.
        competition: ``"capsules"`` or ``"neighbours"``.
        in_caps: capsules of each node in the input.
        add_self_loops: whether each node gets one self-loop, of weight 1 and with the mean features of its other
            in-edges, in the place of those it has; not where x is a pair. None is True, and lets ``to_hetero`` pass.
        bias: whether a bias is learned.
        routing: ``"spherical"``, ``"dynamic"`` or ``"uniform"``.
        concentration: kappa before training, > 0: how much is routed at first. Start it larger, at 4 or so, where
            votes are expected to be of several kinds.
        normalise: whether capsules to be squashed are first divided by the root mean square of the features.
        unit_votes: whether a vote is a direction alone, divided by its length. Worth a try where votes are of several
            kinds, with a concentration of 4 or so.
        engine: as in ``graphcaps.route``.
        edge_dim: features of an edge; None: edges have none. -1: found out from the first input.
        residual: whether a node's own features are added.
        concat: True: a node's capsules one after another, (N, *, num_caps * out_channels), as ``GATConv`` gives its
            heads. False keeps them apart; it is no mean over them, as they stand for different things.

    Shapes:
        x (N, *, in_channels), or (N, *, in_caps, in_channels) for in_caps > 1; edge_index (2, E)
        -> (N, *, num_caps, out_channels), or with ``concat`` (N, *, num_caps * out_channels); a node without in-edges
        gives squash(bias)

    >>> edge_index = torch.tensor([[0, 1, 2], [1, 2, 3]])
    >>> conv = CapsuleConv(10, 2, num_caps=3)
    >>> conv, conv(torch.ones(4, 10), edge_index).shape
    (CapsuleConv(10, 2, num_caps=3), torch.Size([4, 3, 2]))
    """

    @pointing
    def __init__(
        self,
        in_channels: int | Sequence[int | None],
        out_channels: int,
        num_caps: int,
        iterations: int = 3,
        squash_output: bool = True,
        dropout: float = 0.0,
        competition: str = "capsules",
        in_caps: int = 1,
        add_self_loops: bool | None = None,
        bias: bool = True,
        routing: str = "spherical",
        concentration: float = 0.5,
        normalise: bool = True,
        unit_votes: bool = False,
        engine: str = "auto",
        edge_dim: int | None = None,
        residual: bool = False,
        concat: bool = False,
    ):
        super().__init__(aggr=None, node_dim=0)
        check_iterations(iterations)
        source, own = ends_of_features("in_channels", in_channels, residual)
        _check_channels(in_channels=source, out_channels=out_channels, edge_dim=1 if edge_dim is None else edge_dim)
        self.in_channels, self.out_channels, self.num_caps = in_channels, out_channels, num_caps
        self.add_self_loops, self.edge_dim, self.residual, self.concat = add_self_loops, edge_dim, residual, concat
        self.told = own is None  # whether nobody expects a target's features to be used
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
            edge_dim,
            own if residual else None,
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
        edge_attr: OptTensor = None,
        return_attention_weights: bool | None = None,
    ) -> torch.Tensor | tuple[torch.Tensor, tuple[Adj, torch.Tensor]]:
        """Route along the edges, from ``edge_index[0]`` to ``edge_index[1]``.

        Args:
            x: (N, *, in_channels), or a pair of the source and target nodes' features; the latter may be None.
            edge_index: (2, E) integers, an ``EdgeIndex``, or the transposed adjacency matrix as a sparse tensor of
                torch or torch_sparse, whose values are edge weights; with ``edge_dim`` they are edge features.
            edge_weight: (E,), how much each edge's votes count; default 1. With ``edge_dim``, edge features of two dims
                may stand here, where ``GATConv`` has them.
            size: numbers of source and target nodes, where x does not say.
            return_coupling: also give the edges that were routed on and their couplings.
            edge_attr: (E, edge_dim), or (E,) for one, where edges have features.
            return_attention_weights: as ``return_coupling``, and where ``in_caps`` is 1 the couplings have no dim for
                it: (E', *, num_caps), as ``GATConv`` gives them.

        Returns:
            (N, *, num_caps, out_channels) of the (target) nodes; with ``return_coupling`` a pair, the second being
            (edges, c (E', *, in_caps, num_caps) detached), with self-loops where they were added. The edges have the
            form of edge_index; c stands in a torch sparse tensor too, and is in the order of its values.

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
        if pair and target is not None and not (self.residual or self.told):
            warn_unused("x", "in_channels")
            self.told = True
        then = "residual=True adds them"
        expect(target is not None or not self.residual, "x", "a pair with the target nodes' features", "none", then)

        edge_weight, edge_attr = self._attributes(edge_index, edge_weight, edge_attr)
        loops = self.add_self_loops is not False and not pair
        name, how = "edge_index", (loops, num_sources, num_targets)
        routed = _once(edge_index, how, lambda: _plain(edge_index), lambda edges: _routed(name, edges, *how))
        for what, given in (("edge_weight", edge_weight), ("edge_attr", edge_attr)):
            fits = given is None or len(given) == routed.num_given
            expect(fits, what, f"(E={routed.num_given}, ...)", given if given is None else tuple(given.shape))
        if routed.stayed is not None:
            edge_weight, edge_attr = _with_loops(routed, num_targets, edge_weight, edge_attr)
        if self.explain:
            whole = x.new_ones(routed.edges.size(1)) if edge_weight is None else edge_weight
            edge_weight = self.explain_message(whole, num_targets)
        wanted = bool(return_coupling or return_attention_weights or self._message_forward_hooks)
        own = target if self.residual else None
        found = self.capsules(routed.graph, x, edge_weight, wanted, edge_attr, own)
        out = found[0] if wanted else found
        out = out.flatten(-2) if self.concat else out
        if not wanted:
            return out
        c = found[1]
        for hook in self._message_forward_hooks.values():
            hook(self, ({"alpha": c.flatten(1)},), out)
        if not (return_coupling or return_attention_weights):
            return out
        if not return_coupling and c.size(-2) == 1:
            c = c.squeeze(-2)
        return out, _in_form_of(edge_index, routed, c, (num_sources, num_targets))

    def _attributes(self, edge_index: Adj, edge_weight: OptTensor, edge_attr: OptTensor) -> tuple[OptTensor, OptTensor]:
        """Weights and features of the edges, wherever they stand."""
        values = _values(edge_index) if edge_weight is None and edge_attr is None and is_sparse(edge_index) else None
        if self.edge_dim is None:
            expect(edge_attr is None, "edge_attr", "none, as the layer has no edge_dim", "some", "Give it edge_dim=")
            edge_weight = values if edge_weight is None else edge_weight
            narrow = edge_weight is None or len(edge_weight) == edge_weight.numel()
            then = "Edge features want a layer with edge_dim="
            expect(narrow, "edge_weight", "(E,)", edge_weight if narrow else tuple(edge_weight.shape), then)
            return edge_weight, None
        if edge_attr is None and edge_weight is not None and edge_weight.dim() > 1:
            edge_weight, edge_attr = None, edge_weight
        edge_attr = values if edge_attr is None else edge_attr
        return edge_weight, required(edge_attr, "edge_attr", f"(E, {self.edge_dim}), as the layer has edge_dim")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.in_channels}, {self.out_channels}, num_caps={self.num_caps})"


class CapsuleAggregation(Aggregation):
    """Graph-level capsules: every node divides its vote among the C class capsules of its graph.

    ``graphcaps.nn.CapsuleReadout`` has the formula. Called as any ``Aggregation`` is, ``readout(x, batch)``, but with
    a dim for capsules in what it gives. ``concat`` takes it away, for ``MultiAggregation`` and for convolutions that
    aggregate their messages so: ``SAGEConv(16, 32, aggr=CapsuleReadout(16, 4, num_caps=4, concat=True))``. The lengths
    are class scores for ``graphcaps.margin_loss``.

    Args:
        in_channels: features of a node, or of each of its capsules where ``in_caps`` > 1. -1: found out from the first
            input.
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
        concat: True: a graph's capsules one after another, (B, *, num_caps * out_channels).

    Shapes:
        x (N, *, in_channels), or (N, *, in_caps, in_channels) for in_caps > 1; index (N,)
        -> (B, *, num_caps, out_channels), or with ``concat`` (B, *, num_caps * out_channels); a graph without nodes
        gives squash(bias)

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
        concat: bool = False,
    ):
        super().__init__()
        check_iterations(iterations)
        _check_channels(in_channels=in_channels, out_channels=out_channels)
        self.in_channels, self.out_channels, self.num_caps = in_channels, out_channels, num_caps
        self.concat = concat
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
        if index is None and ptr is None and -x.dim() <= dim < x.dim():
            index, dim_size = _zeros(x.size(dim), x.device), min(1, x.size(dim)) if dim_size is None else dim_size
        elif ptr is None and index is not None and dim_size is None:
            dim_size = _once(index, "groups", lambda: index, _num_groups)
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
        num_groups = required(dim_size, "dim_size", "the number of graphs")
        name, held = ("ptr", ptr) if index is None else ("index", index)
        graph = _once(held, (name, num_groups), lambda: held, lambda own: _members(name, own, num_groups))
        dim = dim % x.dim()
        found = self.capsules(graph, x.movedim(dim, 0), None, return_coupling)
        out = found[0] if return_coupling else found
        out = (out.flatten(-2) if self.concat else out).movedim(0, dim)
        return (out, found[1].movedim(0, dim)) if return_coupling else out

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.in_channels}, {self.out_channels}, num_caps={self.num_caps})"


CapsuleReadout = CapsuleAggregation  # its name in graphcaps.nn


class _Routed(NamedTuple):
    """Edges as they are routed on."""

    edges: torch.Tensor  # (2, E'), after self-loops
    stayed: OptTensor  # which of the given edges are their first; None: all, and there are no others
    num_given: int  # E
    graph: DGLGraph


def _routed(name: str, edges: torch.Tensor, loops: bool, num_sources: int, num_targets: int) -> _Routed:
    """Edges (2, E), with ``loops`` each node's one self-loop last."""
    num_given, stayed = edges.size(1), None
    if loops:
        stayed = (edges[0] != edges[1]).nonzero()[:, 0]
        nodes = torch.arange(num_targets, dtype=edges.dtype, device=edges.device)
        edges = torch.cat((edges[:, stayed], nodes.expand(2, -1)), dim=1)
    return _Routed(edges, stayed, num_given, _graph(name, edges, num_sources, num_targets))


def _with_loops(
    routed: _Routed, num_nodes: int, edge_weight: OptTensor, edge_attr: OptTensor
) -> tuple[OptTensor, OptTensor]:
    """What the given edges have, for those that stayed, and what self-loops have."""
    if edge_weight is not None:
        edge_weight = edge_weight.flatten()[routed.stayed]
        edge_weight = torch.cat((edge_weight, edge_weight.new_ones(num_nodes)))
    if edge_attr is not None:
        edge_attr = edge_attr[routed.stayed]
        heads = routed.edges[1, : len(edge_attr)].long()
        edge_attr = torch.cat((edge_attr, scatter(edge_attr, heads, 0, num_nodes, reduce="mean")))
    return edge_weight, edge_attr


def _members(name: str, numbers: torch.Tensor, num_groups: int) -> DGLGraph:
    """Nodes linked to their groups, from ``index`` (N,) or ``ptr`` (B + 1,)."""
    groups = numbers
    if name == "ptr":
        groups = torch.arange(num_groups, device=numbers.device).repeat_interleave(numbers.diff())
    nodes = torch.arange(len(groups), dtype=groups.dtype, device=groups.device)
    return _graph(name, torch.stack((nodes, groups)), len(groups), num_groups)


def _graph(name: str, edges: torch.Tensor, num_sources: int, num_targets: int) -> DGLGraph:
    ends = edges if edges.is_cuda and has_cuda() else edges.cpu()
    try:
        return bipartite_graph(ends[0], ends[1], num_sources, num_targets)
    except InputError as error:
        raise InputError(f"{name}: {error}") from error


def _num_groups(index: torch.Tensor) -> int:
    return int(index.max()) + 1 if len(index) else 0


@functools.lru_cache(maxsize=32)
def _zeros(count: int, device: torch.device) -> torch.Tensor:
    return torch.zeros(count, dtype=torch.int64, device=device)


def _plain(edge_index: Adj) -> torch.Tensor:
    """Any form of edges as (2, E)."""
    if is_sparse(edge_index):
        transposed, _ = to_edge_index(edge_index)
        return transposed.flip(0)
    return edge_index.as_tensor() if isinstance(edge_index, EdgeIndex) else edge_index


def _values(matrix: Adj) -> OptTensor:
    """The values of a sparse matrix, in the order of its edges."""
    if not isinstance(matrix, torch.Tensor):
        return to_edge_index(matrix)[1]
    return (matrix.coalesce() if matrix.layout == torch.sparse_coo else matrix).values()


def _in_form_of(edge_index: Adj, routed: _Routed, c: torch.Tensor, sizes: tuple[int, int]) -> tuple[Adj, torch.Tensor]:
    """The edges that were routed on, in the form that they came in, and their couplings."""
    if is_torch_sparse_tensor(edge_index):
        layout = edge_index.layout
        matrix = to_torch_sparse_tensor(routed.edges.long().flip(0), c, size=sizes[::-1], layout=layout)
        return matrix, matrix.values()
    if isinstance(edge_index, EdgeIndex):
        return (edge_index if routed.stayed is None else EdgeIndex(routed.edges.clone(), sparse_size=sizes)), c
    return (edge_index if routed.stayed is None and not is_sparse(edge_index) else routed.edges.clone()), c


_kept = WeakIdKeyDictionary()  # {what the caller holds: {how: (changes, numbers, what was made of them)}}


def _once(held: Any, how: Any, read: Callable[[], torch.Tensor], make: Callable[[torch.Tensor], Made]) -> Made:
    """``make(read())``, made once per ``how`` as long as the argument ``held`` is there and its numbers are the same.

    Engines keep per graph what they sort; a full-batch training loop gives the same ``held`` in every step. On the CPU
    the numbers are compared: a tensor changes in place, and not each way of changing it leaves a mark on the tensor.
    Elsewhere that would wait for the device in each step, and the tensor's own count of changes must do: what NumPy
    can't reach, ``.data`` still changes unseen.
    """
    if isinstance(held, torch.Tensor) and held._is_view() and held._base is not None:
        how = how, held.storage_offset(), held.shape, held.stride()
        held = held._base  # a view, such as edge_index[1], is a new object each time
    made = _kept.setdefault(held, {})
    changes = _changes(held)
    if how in made:
        before, numbers, found = made[how]
        if before == changes if changes is not None else torch.equal(numbers, read()):
            return found
    own = read().clone(memory_format=torch.contiguous_format)
    made[how] = changes, own, make(own)
    return made[how][2]


def _changes(held: Any) -> int | None:
    """How often a tensor on a device was changed; None where its numbers are to be compared."""
    if not isinstance(held, torch.Tensor) or held.device.type == "cpu" or held.is_inference():
        return None
    return (held.as_tensor() if isinstance(held, EdgeIndex) else held)._version


def _check_channels(**sizes: int | None) -> None:
    """Raise ``InputError`` unless sizes are integers >= 1, or -1 where they are found out."""
    for name, size in sizes.items():
        if name == "out_channels" or size != -1:
            check_whole(name, size)
