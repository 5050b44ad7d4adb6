"""Reading of any library's graph of nodes: its edges, names of nodes, weights and direction."""

from __future__ import annotations

import functools
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import networkx
import numpy as np
import torch
from torch import Tensor

from .. import _dgl
from .._dgl import DGLGraph
from ..errors import did_you_mean, expect, reading, required
from ..typed import Count, typed
from .labels import read_classes
from .links import Links

Order = Literal["inserted", "sorted"]
KINDS = "a graph of networkx, DGL or PyG, an edge_index (2, E), or a sparse matrix (N, N) of SciPy or torch"
BOTH_ORDERS = 'Pass a dict by name, or choose: read_graph(graph, order="inserted"), or order="sorted" as DGL has it'


@dataclass(frozen=True, eq=False)
class NamedGraph:
    """A graph of N nodes and E edges, as ``read_graph`` returns it. Rows of arrays are in the order of ``names``."""

    src: Tensor
    """(E,) int64, the node that each edge leaves. An undirected edge is two, one for each direction."""
    dst: Tensor
    """(E,) int64, the node at which each edge arrives."""
    names: list
    """N names of nodes, as the graph has them, in the order of rows."""
    weight: Tensor | None = None
    """(E,) float32 >= 0, or None if there are none, or all are 1."""
    attributes: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """For each attribute of nodes, N values, None where a node has none."""
    doubt: str = ""
    """Why the order of rows is ambiguous, with both readings; "" if it isn't."""
    given: DGLGraph | None = field(default=None, repr=False)

    @functools.cached_property
    def one_way(self) -> bool:
        """Whether an edge has no reverse."""
        count = len(self.names)
        there, back = self.src * count + self.dst, self.dst * count + self.src
        return not torch.equal(there.sort().values, back.sort().values)

    @functools.cached_property
    def dgl(self) -> DGLGraph:
        """The graph for a layer. Its edges and nodes are in this order."""
        return _dgl.dgl.graph((self.src, self.dst), num_nodes=len(self.names)) if self.given is None else self.given

    def links(self, device: torch.device | str = "cpu") -> Links:
        """The edges on a device, for computations without DGL."""
        count = len(self.names)
        return Links.of(self.src.to(device), self.dst.to(device), count, count, one_kind=True)

    @property
    def edge_index(self) -> Tensor:
        """(2, E): the edges for a layer of PyG."""
        return torch.stack([self.src, self.dst])

    @functools.cached_property
    def texts(self) -> list[str]:
        """The names as texts."""
        return [text_of(name) for name in self.names]

    def rows(self, name: str, values: Any, complete: bool = True) -> Any:
        """Return one value for each node, in order: of N values, a dict by name, or the name of an attribute.

        A Series or table of pandas is read by its index, as a dict.

        Args:
            name: what errors call the values.
            complete: whether a dict must have all nodes; otherwise, missing ones are None.

        Raises:
            InputError: a value or a name is missing, or the order of N values is ambiguous.
        """
        count, others = len(self.names), ""
        if hasattr(values, "iloc"):
            others = f"Leave other rows out. If row k is of node k, pass {name}.to_numpy()"
            values = self._by_index(name, values)
        if isinstance(values, str):
            near = did_you_mean(values, self.attributes)
            has = ", ".join(map(str, self.attributes)) or "none"
            expect(values in self.attributes, name, f"values, or an attribute of nodes ({has})", repr(values), near)
            values = dict(zip(self.names, self.attributes[values], strict=True))
            absent = next((node for node, value in values.items() if value is None), None)
            expect(not complete or absent is None, name, "the attribute at each node", f"none at {absent!r}")
        if isinstance(values, Mapping):
            strange = next((key for key in values if key not in self.places), None)
            twin = f"The graph's name is {self.alike[str(strange)]!r}" if str(strange) in self.alike else ""
            near = twin or ("" if strange is None else did_you_mean(str(strange), self.texts).strip()) or others
            expect(strange is None, name, "names of nodes", repr(strange), near)
            absent = next((node for node in self.names if complete and node not in values), None)
            expect(absent is None, name, "a value for each node", f"none for {absent!r}")
            return [values.get(node) for node in self.names]
        with reading(name, f"one for each of {count} nodes"):
            length = len(values)
        from_one = self.names == list(range(1, count + 1)) and length == count + 1
        advice = f"Row k for node k needs {name}[1:]; else, row 0 is node 1" if from_one else ""
        if length > count and self.names == list(range(count)):
            advice = f"If the last nodes have no edges: read_graph(graph, num_nodes={length})"
        expect(length == count, name, f"one for each of {count} nodes", length, advice)
        expect(not self.doubt, name, "rows in an order that is certain", self.doubt, BOTH_ORDERS)
        return values

    def _by_index(self, name: str, table: Any) -> dict:
        """The rows of a pandas ``table`` by its index."""
        index, numbers = table.index.tolist(), {*range(len(table))}
        certain = index == self.names or table.index.name is not None or {*index} != numbers
        both = f"an index {_first(index)} that either names nodes or numbers rows"
        advice = f"Pass {name}.rename_axis('node') if it names nodes, {name}.to_numpy() if row k is of node k"
        expect(certain, name, "an index of names", both, f"{advice}, or table.set_index(COLUMN) with the names")
        expect(table.index.is_unique, name, "one row for each node", "an index with names more than once")
        return dict(zip(index, table.to_numpy().tolist(), strict=True))

    def features(self, values: Any, name: str = "feat") -> Tensor:
        """Return features (N, F) of numbers or vectors for each node, given as ``rows`` reads them."""
        values = self.rows(name, values)
        if not isinstance(values, Tensor):
            with reading(name, "numbers or vectors of one length for each node"):
                values = torch.as_tensor(np.array([np.asarray(row, dtype=np.float32) for row in values]))
        return values.unsqueeze(1) if values.dim() == 1 else values

    def labels(self, values: Any) -> Tensor:
        """Return classes (N, K) for layers, -1 if unknown: see ``graphcaps.graph.labels.read_labels``."""
        return read_classes("labels", self.rows("labels", values, complete=False), len(self.names)).classes

    def place(self, node: Any) -> int:
        """Return the number of a node, given by its name, or by its name as text."""
        place = self.places.get(node, self.places.get(self.alike.get(node)) if isinstance(node, str) else None)
        near = did_you_mean(str(node), self.texts) if place is None else ""
        return required(place, "center", "a node's name", repr(node), near)

    @functools.cached_property
    def places(self) -> dict[Hashable, int]:
        """The number of each name."""
        return {name: number for number, name in enumerate(self.names)}

    @functools.cached_property
    def alike(self) -> dict[str, Hashable]:
        """The name of each text."""
        return dict(zip(self.texts, self.names, strict=True))


@typed
def read_graph(
    graph: Any,
    weight: str | None = "weight",
    order: Order | Sequence | None = None,
    num_nodes: Count | None = None,
) -> NamedGraph:
    """Read a graph with one kind of nodes: of networkx, DGL or PyG, or edges as arrays.

    Args:
        graph: a graph of networkx; a homogeneous graph of DGL; PyG's ``Data``; an edge_index (2, E); or a sparse matrix
            (N, N) of SciPy, in which row u and column v are the edge u -> v, or a symmetric one of torch.
        weight: the attribute of edges that contains weights >= 0, larger for stronger edges, if there are any;
            None: the graph is read without weights. A sparse matrix's values are weights.
        order: of a networkx graph's nodes: as they were inserted, sorted, or all names in the order of your arrays.
            It matters only for arrays. If it is needed, and the two orders differ, its absence is an error.
        num_nodes: N, for an edge_index whose last nodes have no edges, or whose node 0 has none.

    Raises:
        InputError: it isn't such a graph, weights are negative or missing on some edges, or two readings fit.

    >>> read_graph(networkx.Graph([("b", "a")])).names
    ['b', 'a']
    """
    if isinstance(graph, NamedGraph):
        return graph
    fits = num_nodes is None or isinstance(graph, (Tensor, np.ndarray))
    expect(fits, "num_nodes", "none but for an edge_index", num_nodes)
    if isinstance(graph, networkx.Graph):
        return _of_networkx(graph, weight, order)
    expect(order is None, "order", "none but for a networkx graph", order)
    if isinstance(graph, DGLGraph):
        return _of_dgl(graph, weight)
    if hasattr(graph, "edge_types") and hasattr(graph, "node_types"):
        advice = "Pass a part with one kind of nodes, data[edge_type].edge_index, or data.to_homogeneous()"
        expect(False, "graph", "one kind of nodes and edges", f"HeteroData with {graph.edge_types}", advice)
    if hasattr(graph, "edge_index") and hasattr(graph, "num_nodes"):
        return _of_data(graph, weight)
    if hasattr(graph, "tocoo") or isinstance(graph, Tensor) and graph.layout != torch.strided:
        return _of_matrix(graph, weight)
    return _of_edge_index(graph, num_nodes)


def text_of(name: Hashable) -> str:
    """A node's name as text: the parts of a tuple are separated by commas."""
    return ", ".join(map(str, name)) if isinstance(name, tuple) else str(name)


def _of_networkx(graph: networkx.Graph, weight: str | None, order: Any) -> NamedGraph:
    inserted = list(graph)
    by_text: dict[str, Hashable] = {}
    for node in inserted:
        expect(node == node, "graph", "a name for each node", "nan", "Leave out edges without an end: table.dropna()")
        twin = by_text.setdefault(text_of(node).strip(), node)
        advice = "Rename one: networkx.relabel_nodes(graph, {old: new})"
        expect(twin == node, "graph", "names that differ as texts", f"{twin!r} and {node!r}", advice)
    doubt, names = "", inserted
    try:
        ordered = sorted(inserted)
    except TypeError:  # names of several types have no order
        ordered = inserted
    if order is None and ordered != inserted:
        doubt = f"either {_first(inserted)} as inserted, or {_first(ordered)} as sorted"
    elif order == "sorted":
        names = ordered
    elif order not in (None, "inserted"):
        names = list(order)
        expect(len(names) == len(inserted) and {*names} == {*inserted}, "order", "each node once", _first(names))
    place = {name: number for number, name in enumerate(names)}
    ends, weights = [], []
    for u in names:
        for v, data in graph.adj[u].items():
            for attributes in data.values() if graph.is_multigraph() else (data,):
                ends.append((place[u], place[v]))
                weights.append(attributes.get(weight))
    kinds = {key: None for _, data in graph.nodes(data=True) for key in data}
    attributes = {key: [graph.nodes[name].get(key) for name in names] for key in kinds}
    src, dst = torch.tensor(ends, dtype=torch.int64).reshape(-1, 2).T
    return NamedGraph(src, dst, names, _weights(weights, weight), attributes, doubt)


def _of_dgl(graph: DGLGraph, weight: str | None) -> NamedGraph:
    advice = "Pass a part with one kind of nodes: graph[edge_type], or dgl.to_homogeneous(graph)"
    plain = len(graph.ntypes) == len(graph.etypes) == 1 and not graph.is_block
    expect(plain, "graph", "one type of nodes and edges, no block", graph.canonical_etypes, advice)
    src, dst = (end.long().cpu() for end in graph.edges(order="eid"))
    values = graph.edata.get(weight) if weight is not None else None
    attributes = {key: rows.cpu() for key, rows in graph.ndata.items()}
    return NamedGraph(src, dst, [*range(graph.num_nodes())], _weights(values, weight), attributes, given=graph)


def _of_data(data: Any, weight: str | None) -> NamedGraph:
    values = {key: value for key, value in data.to_dict().items() if isinstance(value, (Tensor, list, np.ndarray))}
    name = next((key for key in (weight, "edge_weight") if key in values), None) if weight else None
    numbers = np.prod(np.shape(values.get("edge_attr", ())))
    scalars = weight is not None and name is None and numbers == data.num_edges > 0
    both = 'edge_attr with a number for each edge. read_graph(data, weight="edge_attr") uses it, weight=None doesn\'t'
    expect(not scalars, "graph", "edge_weight, or no weights", both)
    edge_index = data.edge_index
    if edge_index is None and isinstance(data.get("adj_t"), Tensor):
        matrix = data.adj_t.to_sparse_coo().coalesce()
        edge_index, name, values["adj_t"] = matrix.indices().flip(0), weight and "adj_t", matrix.values()
    edges = _of_edge_index(edge_index, data.num_nodes)
    of_edges = "edge_index", "edge_attr", "edge_weight", weight
    of_nodes = {key: value for key, value in values.items() if np.shape(value)[:1] == (data.num_nodes,)}
    rows = {key: value for key, value in of_nodes.items() if key not in of_edges}
    return NamedGraph(edges.src, edges.dst, edges.names, _weights(values.get(name), weight), rows)


def _of_matrix(matrix: Any, weight: str | None) -> NamedGraph:
    rows, columns = matrix.shape
    expect(rows == columns, "graph", "a matrix (N, N)", matrix.shape, "Two kinds of nodes: bipartite_graph")
    of_torch = isinstance(matrix, Tensor)
    if not of_torch:
        matrix = matrix.tocoo()
        ends = np.array([matrix.row, matrix.col], dtype=np.int64)
        values = torch.from_numpy(matrix.data.astype(np.float64))
        matrix = torch.sparse_coo_tensor(torch.from_numpy(ends), values, matrix.shape, check_invariants=False)
    matrix = matrix.to_sparse_coo().coalesce()
    values = matrix.values().detach().cpu()
    src, dst, values = (numbers[values != 0] for numbers in (*matrix.indices().cpu(), values))
    graph = NamedGraph(src, dst, [*range(rows)], _weights(values if weight else None, "values"))
    advice = "Pass its indices() if edges go from rows to columns, as in networkx, or indices().flip(0) as in PyG"
    expect(not (of_torch and graph.one_way), "graph", "a symmetric matrix of torch", "edges that go one way", advice)
    return graph


def _of_edge_index(edges: Any, num_nodes: int | None) -> NamedGraph:
    if isinstance(edges, np.ndarray) and edges.dtype.kind in "iuf":
        edges = torch.as_tensor(edges.astype(np.int64) if edges.dtype.kind in "iu" else edges)  # torch lacks uint16
    kind = f"{edges.dtype} {tuple(edges.shape)}" if isinstance(edges, (Tensor, np.ndarray)) else type(edges).__name__
    fits = isinstance(edges, Tensor) and edges.dim() == 2 and len(edges) == 2 and not edges.dtype.is_floating_point
    advice = "Pairs of nodes in rows: edges.T. An adjacency matrix: scipy.sparse.coo_array(matrix). "
    advice += (
        "Names of nodes: networkx.Graph(pairs), or of a table networkx.from_pandas_edgelist(table, COLUMN, COLUMN)"
    )
    advice = "Pass graph.to_networkx()" if hasattr(edges, "to_networkx") else advice
    expect(fits and edges.dtype not in (torch.bool, torch.uint8), "graph", KINDS, kind, advice)
    low, high = (int(end) for end in edges.aminmax()) if edges.numel() else (0, -1)
    both = f"nodes {low} to {high}: either node 0 has no edges, or the first node is 1"
    pick = f"Pass num_nodes={high + 1}, or edge_index - 1"
    expect(low != 1 or num_nodes is not None, "graph", "numbers of nodes from 0", both, pick)
    count = high + 1 if num_nodes is None else num_nodes
    src, dst = edges.as_subclass(Tensor).cpu().long()  # of PyG's EdgeIndex
    links = Links.of(src, dst, count, count, names=("edge_index[0]", "edge_index[1]"))
    return NamedGraph(links.src, links.dst, [*range(count)])


def _weights(values: Any, name: str | None) -> Tensor | None:
    """Weights (E,), or None if there are none, or all are 1."""
    if values is None or not len(values) or all(value is None for value in values):
        return None
    ignore = "read_graph(graph, weight=None) reads the graph without weights"
    if not isinstance(values, Tensor):
        expect(all(value is not None for value in values), "weight", f"{name!r} on each edge", "some without", ignore)
        with reading("weight", f"numbers as {name!r} of edges", ignore):
            values = torch.tensor([float(value) for value in values])
    fits = values.numel() == len(values) and bool(torch.isfinite(values).all())
    got = tuple(values.shape) if values.numel() != len(values) else "NaN or infinity"
    expect(fits, "weight", f"one finite number as {name!r} of each edge", got, ignore)
    values = values.detach().cpu().float().reshape(-1)
    advice = f"A vote can't count against its node: leave out these edges, or their weights: {ignore}"
    expect(bool((values >= 0).all()), "weight", f"numbers >= 0 as {name!r}", f"{float(values.min()):g}", advice)
    return None if bool((values == 1).all()) else values


def _first(names: list) -> str:
    return ", ".join(repr(name) for name in names[:3]) + ("" if len(names) < 4 else ", ...")
