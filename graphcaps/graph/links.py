"""A graph inside graphcaps: the ends of its edges as index tensors, and the orders of edges that engines read.

``links_of_graph`` makes them from a graph of DGL, ``graphcaps.pyg`` from an ``edge_index``. Engines, kernels and the
layers' computations receive ``Links`` alone.
"""

import functools
import weakref
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor

from .._dgl import DGLGraph
from ..errors import check_tensor, expect
from ..tracing import is_tracing, run_untraced

T = TypeVar("T")
BOTH_WAYS = (
    "Add them: dgl.to_bidirected(graph), or to keep features dgl.add_reverse_edges(graph, copy_edata=True); "
    "in PyG torch_geometric.utils.to_undirected, in networkx graph.to_undirected()"
)


class ByChild(NamedTuple):
    """Edges sorted by child. k is an edge's place in this order."""

    indptr: Tensor  # (I + 1,) int64: the edges of child i are at indptr[i]:indptr[i + 1]
    eid: Tensor  # (E,): the id of edge k in the graph; int32 if E < 2^31, else int64, as in all orders
    dst: Tensor  # (E,): the parent of edge k
    most: int  # the largest number of edges of a child, at least 1
    sorted: bool  # whether the graph's own edges are in this order

    def in_this_order(self, values: Tensor) -> Tensor:
        """Sort values (E, ...), which are in the graph's order, by child."""
        return values.contiguous() if self.sorted else values[self.eid]

    def in_edge_order(self, values: Tensor) -> Tensor:
        """Bring values (E, ...) that are sorted by child into the graph's order."""
        if self.sorted:
            return values
        ordered = torch.empty_like(values)
        ordered[self.eid] = values
        return ordered


class ByParent(NamedTuple):
    """Edges sorted by parent. k is an edge's place in this order."""

    indptr: Tensor  # (J + 1,) int64: the edges of parent j are at indptr[j]:indptr[j + 1]
    src: Tensor  # (E,): the child of edge k
    eid: Tensor  # (E,): the id of edge k in the graph
    reverse: Tensor  # (E,): the place of edge k's reverse, or empty if the order was computed without reverses


def kept(compute: Callable[..., T]) -> Callable[..., T]:
    """Make a method of ``Links`` compute its result once for the same arguments: see ``Links.cached``."""
    name = compute.__name__

    @functools.wraps(compute)
    def compute_once(links: "Links", *arguments: Hashable) -> T:
        return links.cached((name, *arguments) if arguments else name, lambda: compute(links, *arguments))

    return compute_once


@dataclass(frozen=True, eq=False)
class Links:
    """The edges of a graph, from children to parents. They never change, so what is computed from them is kept.

    Kernels trust that all ends exist. ``Links.of`` checks them; the constructor doesn't.

    Args:
        src, dst: (E,) int64 on one device, the child and the parent of each edge.
        num_children, num_parents: I, J >= 0.
        one_kind: whether children and parents are the same nodes, or the parents are the first of the children.
        traced: whether torch traces ``src`` and ``dst`` as inputs of a program, which then computes the orders.

    >>> links = Links(torch.tensor([0, 0, 1]), torch.tensor([1, 0, 1]), num_children=2, num_parents=2)
    >>> links.in_degrees, links.complete
    (tensor([1, 2]), False)
    """

    src: Tensor
    dst: Tensor
    num_children: int
    num_parents: int
    one_kind: bool = False
    traced: bool = False
    cache: dict[Hashable, Any] = field(default_factory=dict, repr=False)

    @classmethod
    def of(
        cls,
        src: Tensor,
        dst: Tensor,
        num_children: int,
        num_parents: int,
        one_kind: bool = False,
        names: tuple[str, str] = ("src", "dst"),
    ) -> "Links":
        """Check the ends of edges, and make their links. On a GPU, this waits for the device once.

        ``names`` are what errors call the two ends.

        Raises:
            InputError: an end isn't an integer, or isn't a child or a parent; not checked where torch traces the call.

        >>> Links.of(torch.tensor([0, 3]), torch.tensor([1, 0]), 3, 2)
        Traceback (most recent call last):
        graphcaps.errors.InputError: src: expected indices in [0, 3), got 0 to 3
        """
        for name, end in zip(names, (src, dst), strict=True):
            whole = check_tensor(name, end, floating=False).dtype in (torch.int32, torch.int64)
            expect(whole and end.dim() == 1, name, "integers (E,)", f"{end.dtype} {tuple(end.shape)}")
        expect(src.shape == dst.shape, names[1], f"(E={src.shape[0]},) as src", tuple(dst.shape))
        links = cls(src.long(), dst.long(), num_children, num_parents, one_kind, is_tracing() or src.is_meta)
        if src.numel() and not links.traced:
            bounds = torch.stack([torch.stack(end.aminmax()) for end in (links.src, links.dst)]).tolist()
            for name, count, (low, high) in zip(names, (num_children, num_parents), bounds, strict=True):
                expect(low >= 0 and high < count, name, f"indices in [0, {count})", f"{low} to {high}")
        return links

    @property
    def num_edges(self) -> int:
        return self.src.shape[0]

    @property
    def device(self) -> torch.device:
        return self.src.device

    def cached(self, name: Hashable, compute: Callable[[], T]) -> T:
        """Return ``compute()``, computed at the first call of this name. A program that torch traces computes it."""
        if self.traced:
            return compute()
        if name not in self.cache:
            with torch.inference_mode(False):  # training can't use inference tensors
                self.cache[name] = run_untraced(compute) if is_tracing() else compute()
        return self.cache[name]

    @property
    @kept
    def complete(self) -> bool:
        """Whether each child has one edge to each parent, sorted by child, then by parent. It is False in a trace."""
        if self.traced or self.num_edges != self.num_children * self.num_parents:
            return False
        in_order = torch.arange(self.num_edges, device=self.device)
        return bool((self.src * self.num_parents + self.dst == in_order).all())

    @property
    @kept
    def in_degrees(self) -> Tensor:
        """(J,) int64, the number of each parent's edges."""
        return _counts(self.dst, self.num_parents)

    @property
    @kept
    def by_child(self) -> ByChild:
        eid = torch.argsort(self.src, stable=True)
        counts = _counts(self.src, self.num_children)
        most, in_order = max(1, int(counts.max())) if len(counts) else 1, bool((self.src[1:] >= self.src[:-1]).all())
        return ByChild(_starts(counts), self._index(eid), self._index(self.dst[eid]), most, in_order)

    @kept
    def by_parent(self, with_reverse: bool) -> ByParent:
        """Sort edges by parent. With reverses, each edge must have one."""
        eid = torch.argsort(self.dst, stable=True)
        reverse = torch.argsort(eid)[self.reverse[eid]] if with_reverse else eid[:0]
        return ByParent(_starts(self.in_degrees), *map(self._index, (self.src[eid], eid, reverse)))

    @property
    @kept
    def reverse(self) -> Tensor:
        """(E,) int64, the id of each edge's reverse: (v, u) for (u, v). A self-loop is its own reverse.

        Sources and destinations must be the same nodes. If two nodes have several edges, the first in one direction is
        paired with the first in the other, and so on.

        Raises:
            InputError: some edges have no reverse. A program that torch traces can't report this.

        >>> Links(torch.tensor([0, 1, 2]), torch.tensor([1, 0, 2]), 3, 3).reverse
        tensor([1, 0, 2])
        """
        # In a trace, an edge may lead to a node that doesn't exist; it counts as a self-loop.
        far = torch.where(self.dst < self.num_children, self.dst, self.src) if self.traced else self.dst
        there, back = self.src * self.num_children + far, far * self.num_children + self.src
        order, other = torch.argsort(there, stable=True), torch.argsort(back, stable=True)
        if not self.traced and not bool((there[order] == back[other]).all()):
            alone = torch.cat([(~torch.isin(back, there)).nonzero().flatten(), order[there[order] != back[other]]])[0]
            edge = f"the edge {int(self.src[alone])} -> {int(self.dst[alone])} without one"
            expect(False, "graph", "a reverse for each edge", edge, BOTH_WAYS)
        return torch.empty_like(order).index_copy(0, order, other)

    @kept
    def expand(self, num_caps: int) -> "Links":
        """Link each edge to each of K capsules of its parent: edge e * K + k links child e to parent j * K + k."""
        child = torch.arange(self.num_edges, device=self.device).repeat_interleave(num_caps)
        parent = (self.dst.unsqueeze(1) * num_caps + torch.arange(num_caps, device=self.device)).flatten()
        return Links(child, parent, self.num_edges, self.num_parents * num_caps, traced=self.traced)

    def _index(self, values: Tensor) -> Tensor:
        return values.to(torch.int32 if self.num_edges < 2**31 else torch.int64)


def _counts(ends: Tensor, count: int) -> Tensor:
    # torch can't trace bincount, but it can trace this.
    return ends.new_zeros(count).index_add(0, ends, torch.ones_like(ends))


def _starts(counts: Tensor) -> Tensor:
    return torch.cat([counts.new_zeros(1), counts.cumsum(0)])


_of_structures: dict[tuple[int, torch.device], Links] = {}
"""A key contains the id of the graph's structure object. A graph that gains an edge has a new structure."""


def links_of_graph(graph: DGLGraph, device: torch.device | str = "cpu") -> Links:
    """Return a DGL graph's edges in edge order on ``device``. They are read once and kept as long as the graph exists.

    Raises:
        InputError: ``graph`` isn't a DGLGraph, or its formats don't keep the order of its edges.
    """
    expect(hasattr(graph, "_graph"), "graph", "a DGLGraph", type(graph).__name__)
    structure, device = graph._graph, torch.device(device)
    key = id(structure), device
    if key not in _of_structures:
        with torch.inference_mode(False):
            made = run_untraced(lambda: _read(graph, device))
        weakref.finalize(structure, _of_structures.pop, key, None)
        _of_structures[key] = made
    return _of_structures[key]


def _read(graph: DGLGraph, device: torch.device) -> Links:
    formats = [name for some in graph.formats().values() for name in some]
    advice = 'Only coo keeps the order of edges: graph.formats(["coo", "csr", "csc"])'
    expect("coo" in formats, "graph", "a graph whose formats include coo", ", ".join(formats), advice)
    src, dst = (end.to(device, torch.int64) for end in graph.edges(order="eid"))
    one_kind = len({*graph.srctypes, *graph.dsttypes}) == 1
    if device.type == "cpu" and graph.is_block and len(dst):
        expect(int(dst.max()) < graph.num_dst_nodes(), "graph", "a block with all ends of its edges", "one without")
    # Computed on the CPU, because other devices would have to be waited for, and meta has no numbers.
    cache: dict[Hashable, Any] = {} if device.type == "cpu" else {"complete": links_of_graph(graph).complete}
    return Links(src, dst, graph.num_src_nodes(), graph.num_dst_nodes(), one_kind, cache=cache)


def members_of(graph: DGLGraph, device: torch.device) -> Links:
    """Link each node of a homogeneous graph or of a ``dgl.batch`` to its graph; edge i starts at node i.

    >>> from graphcaps import dgl
    >>> members_of(dgl.batch([dgl.rand_graph(3, 4), dgl.rand_graph(2, 1)]), torch.device("cpu")).dst
    tensor([0, 0, 0, 1, 1])
    """
    expect(len(graph.ntypes) == 1, "graph", "one node type", graph.ntypes)
    sizes = tuple(run_untraced(graph.batch_num_nodes).tolist())
    return links_of_graph(graph, device).cached(("members", sizes), lambda: members_of_sizes(sizes, device))


def members_of_sizes(sizes: tuple[int, ...], device: torch.device) -> Links:
    """The same for graphs of these numbers of nodes, which follow each other."""
    graphs = torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes))
    return Links(torch.arange(len(graphs), device=device), graphs.to(device), len(graphs), len(sizes))
