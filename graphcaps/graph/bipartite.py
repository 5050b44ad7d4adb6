"""The links between two capsule layers as a bipartite DGLGraph: children vote for parents along the edges.

Edges are ordered by DGL's edge ids. In a complete graph, they are sorted by child, then by parent: e = i * J + j.
"""

from __future__ import annotations

import functools

import torch
from numpy.typing import ArrayLike

from .. import _dgl
from .._dgl import DGLGraph
from ..atomic import reading
from ..errors import expect
from ..tracing import run_untraced
from ..typed import Count, Device, Size, typed

EDGE_TYPE = ("child", "votes", "parent")


@typed
def complete_graph(num_children: Size, num_parents: Size, device: Device = "cpu") -> DGLGraph:
    """Link each of I children to each of J parents; edge ``i * J + j`` goes from child i to parent j.

    The structure is cached, and every call returns a new graph without features.

    Args:
        num_children, num_parents: I, J >= 1, the numbers of capsules in the layers below and above.
        device: the graph's device. Devices other than "cpu" need a DGL that was built for them.

    Returns:
        DGLGraph with I * J edges of type ``("child", "votes", "parent")``.

    Raises:
        InputError: a count is not an integer >= 1.

    >>> complete_graph(1152, 10).num_edges()
    11520
    """
    return run_untraced(lambda: _complete(num_children, num_parents, str(device))).local_var()


@functools.lru_cache(maxsize=32)
def _complete(num_children: int, num_parents: int, device: str) -> DGLGraph:
    src = torch.arange(num_children).repeat_interleave(num_parents)
    dst = torch.arange(num_parents).repeat(num_children)
    return bipartite_graph(src, dst, num_children, num_parents).to(device)


@typed
def bipartite_graph(
    src: torch.Tensor | ArrayLike, dst: torch.Tensor | ArrayLike, num_children: Count, num_parents: Count
) -> DGLGraph:
    """Link child ``src[e]`` to parent ``dst[e]`` for each edge e; duplicates and isolated capsules are allowed.

    Args:
        src, dst: (E,) int32 or int64 in [0, I) and [0, J): the child and the parent of each edge.
        num_children, num_parents: I, J >= 0.

    Returns:
        DGLGraph with E edges of type ``("child", "votes", "parent")``, whose ids are in the order given.

    Raises:
        InputError: lengths or types differ, or indices are not int32 or int64 or lie outside the layers.

    >>> bipartite_graph([0, 0, 2], [1, 0, 1], num_children=3, num_parents=2).num_edges()
    3
    """
    ends = []
    for name, index, layer, count in (
        ("src", src, "num_children", num_children),
        ("dst", dst, "num_parents", num_parents),
    ):
        with reading(name, "integers (E,)"):
            index = torch.as_tensor(index)
        index = index.long() if index.numel() == 0 else index
        expect(index.dtype in (torch.int32, torch.int64), name, "int32 or int64", index.dtype)
        expect(index.dim() == 1, name, "one dimension, (E,)", tuple(index.shape))
        low, high = (int(index.min()), int(index.max())) if index.numel() else (0, -1)
        expect(low >= 0 and high < count, name, f"indices in [0, {layer}={count})", f"{low} to {high}")
        ends.append(index)
    expect(len(ends[0]) == len(ends[1]), "dst", f"as many indices as src, {len(ends[0])}", len(ends[1]))
    expect(ends[0].dtype == ends[1].dtype, "dst", f"{ends[0].dtype} like src", ends[1].dtype)
    return _dgl.dgl.heterograph({EDGE_TYPE: tuple(ends)}, {"child": num_children, "parent": num_parents})


def check_graph(graph: DGLGraph) -> None:
    """Raise ``InputError`` unless ``graph`` is a DGLGraph with one canonical edge type and no other node types."""
    advice = "networkx and others: read_graph(graph).dgl; two layers: bipartite_graph; an edge_index: graphcaps.pyg"
    expect(isinstance(graph, DGLGraph), "graph", "a DGLGraph", type(graph).__name__, advice)
    types, pick = graph.canonical_etypes, "Pass the part with one edge type: graph[canonical_etype]"
    expect(len(types) == 1, "graph", "one canonical edge type", types, pick)
    linked = {types[0][0], types[0][2]}
    expect(set(graph.ntypes) == linked, "graph", f"only the node types of {types[0]}", graph.ntypes, pick)
