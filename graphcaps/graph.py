"""The links between two capsule layers as a bipartite DGLGraph: children vote for parents along the edges.

Edge order is the order in which a graph was built (DGL's edge ids); a complete graph is source-major: e = i * J + j.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from dataclasses import dataclass

import networkx
import torch

from ._dgl import DGLGraph, dgl
from .errors import expect

EDGE_TYPE = ("child", "votes", "parent")


def complete_graph(num_children: int, num_parents: int, device: torch.device | str = "cpu") -> DGLGraph:
    """Link each of I children to each of J parents; edge ``i * J + j`` goes from child i to parent j.

    The structure is built once per size and device and shared; the returned graph has its own, empty features.

    Args:
        num_children: I, the capsules of the layer below, >= 1.
        num_parents: J, the capsules of the layer above, >= 1.
        device: where the graph lives; other than "cpu" only with a DGL that was built for it.

    Returns:
        DGLGraph with I * J edges of type ``("child", "votes", "parent")``.

    Raises:
        InputError: a count is not an integer >= 1.

    >>> complete_graph(1152, 10).num_edges()
    11520
    """
    for name, count in (("num_children", num_children), ("num_parents", num_parents)):
        expect(isinstance(count, int) and count >= 1, name, "an integer >= 1", count)
    return _complete(num_children, num_parents, str(device)).local_var()


@functools.lru_cache(maxsize=32)
def _complete(num_children: int, num_parents: int, device: str) -> DGLGraph:
    if device != "cpu":
        return _complete(num_children, num_parents, "cpu").to(device)
    src = torch.arange(num_children).repeat_interleave(num_parents)
    dst = torch.arange(num_parents).repeat(num_children)
    return bipartite_graph(src, dst, num_children, num_parents)


def bipartite_graph(src, dst, num_children: int, num_parents: int) -> DGLGraph:
    """Link child ``src[e]`` to parent ``dst[e]`` for each edge e; duplicates and isolated capsules are allowed.

    Args:
        src: (E,) integers in [0, I): the child of each edge (tensor, array or list).
        dst: (E,) integers in [0, J): the parent of each edge.
        num_children: I >= 0.
        num_parents: J >= 0.

    Returns:
        DGLGraph with E edges of type ``("child", "votes", "parent")``, edge ids in the order given.

    Raises:
        InputError: lengths or integer types differ, indices are not int32 or int64 or lie outside the layers.

    >>> bipartite_graph([0, 0, 2], [1, 0, 1], num_children=3, num_parents=2).num_edges()
    3
    """
    ends = []
    for name, index, count in (("src", src, num_children), ("dst", dst, num_parents)):
        layer = "num_children" if name == "src" else "num_parents"
        expect(isinstance(count, int) and count >= 0, layer, "an integer >= 0", count)
        index = torch.as_tensor(index)
        index = index.long() if index.numel() == 0 else index
        expect(index.dtype in (torch.int32, torch.int64), name, "int32 or int64", index.dtype)
        expect(index.dim() == 1, name, "one dimension, (E,)", tuple(index.shape))
        low, high = (int(index.min()), int(index.max())) if index.numel() else (0, -1)
        expect(low >= 0 and high < count, name, f"indices in [0, {layer}={count})", f"{low} to {high}")
        ends.append(index)
    expect(len(ends[0]) == len(ends[1]), "dst", f"as many indices as src, {len(ends[0])}", len(ends[1]))
    expect(ends[0].dtype == ends[1].dtype, "dst", f"{ends[0].dtype} as src", ends[1].dtype)
    return dgl.heterograph({EDGE_TYPE: tuple(ends)}, {"child": num_children, "parent": num_parents})


@dataclass(frozen=True)
class Links:
    """A graph's structure as index tensors on one device: what engines without DGL kernels work on."""

    src: torch.Tensor  # (E,) int64, child of each edge
    dst: torch.Tensor  # (E,) int64, parent of each edge
    num_children: int
    num_parents: int
    complete: bool  # every child linked once to every parent, source-major


def once_per_structure(make: Callable) -> Callable:
    """Keep what ``make(graph, device)`` gives as long as the graph's edges stay as they are; ``kept`` holds all of it.

    Keyed by the identity of DGL's immutable structure object: a graph that gains an edge gets a new one.
    """
    kept: dict[tuple[int, torch.device], object] = {}

    @functools.wraps(make)
    def once(graph: DGLGraph, device: torch.device | str = "cpu"):
        structure, device = graph._graph, torch.device(device)
        key = (id(structure), device)
        if key not in kept:
            found = make(graph, device)
            weakref.finalize(structure, kept.pop, key, None)
            kept[key] = found
        return kept[key]

    once.kept = kept
    return once


@once_per_structure
def links(graph: DGLGraph, device: torch.device) -> Links:
    """The graph's edges in edge order on ``device``, default "cpu", taken from DGL once per structure and device."""
    src, dst = (end.to(device, torch.int64) for end in graph.edges(order="eid"))
    children, parents = graph.num_src_nodes(), graph.num_dst_nodes()
    grid = torch.arange(len(src), device=device) if len(src) == children * parents else None
    complete = grid is not None and bool((src * parents + dst == grid).all())
    return Links(src, dst, children, parents, complete)


def check_graph(graph: DGLGraph) -> None:
    """Raise ``InputError`` unless ``graph`` is a DGLGraph of one canonical edge type and its node types only."""
    expect(isinstance(graph, DGLGraph), "graph", "a DGLGraph", type(graph).__name__)
    types = graph.canonical_etypes
    pick = "Pick one: graph[canonical_etype]"
    expect(len(types) == 1, "graph", "one canonical edge type", types, pick)
    linked = {types[0][0], types[0][2]}
    expect(set(graph.ntypes) == linked, "graph", f"only the node types of {types[0]}", graph.ntypes, pick)


def to_networkx(routed: DGLGraph, index: tuple[int, ...] = ()) -> networkx.MultiDiGraph:
    """Copy a routed graph to networkx, ready to draw or to write as GraphML.

    Nodes are ``("child", i)`` and ``("parent", j)`` with ``layer`` (0 or 1), ``index`` and the position ``x``, ``y`` (x
    is the layer, y falls from 1 to 0 down each layer); edges have ``key`` = edge id and, where the graph has them,
    ``c`` and ``b`` as floats.

    Args:
        routed: graph with edata ``c`` and ``b`` (E, *), as ``dynamic_routing(..., return_graph=True)`` returns it.
        index: which entry of the trailing dims to take, ``(image,)`` for routing of a batch; () where there are none.

    Raises:
        InputError: ``index`` doesn't fit the trailing dims.

    >>> from graphcaps import complete_graph, dynamic_routing
    >>> v, routed = dynamic_routing(complete_graph(3, 2), torch.zeros(6, 4), return_graph=True)
    >>> to_networkx(routed).edges[("child", 0), ("parent", 1), 1]["c"]
    0.5
    """
    check_graph(routed)
    edges = links(routed)
    features = {}
    for name in ("c", "b"):
        if name in routed.edata:
            trailing = tuple(routed.edata[name].shape[1:])
            fits = len(index) == len(trailing) and all(0 <= k < size for k, size in zip(index, trailing, strict=True))
            expect(fits, "index", f"one index into each trailing dim {trailing} of {name}", index)
            features[name] = routed.edata[name][(slice(None), *index)].detach().cpu().tolist()
    drawn = networkx.MultiDiGraph()
    for layer, (kind, count) in enumerate((("child", edges.num_children), ("parent", edges.num_parents))):
        for k in range(count):
            drawn.add_node((kind, k), layer=layer, index=k, x=float(layer), y=1 - (k + 0.5) / count)
    for e, (i, j) in enumerate(zip(edges.src.tolist(), edges.dst.tolist(), strict=True)):
        drawn.add_edge(("child", i), ("parent", j), key=e, **{name: values[e] for name, values in features.items()})
    return drawn
