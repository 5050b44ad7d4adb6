"""Graphs of votes for a graph whose nodes have several capsules: each edge becomes links between capsules.

    graph of nodes        u ----> v
    with K = 2 capsules   (u, 0), (u, 1) ----> (v, 0), (v, 1)

All results are cached as long as the graph's structure exists.
"""

import warnings

import torch

from .._dgl import DGLGraph, dgl
from ..errors import expect
from ..typed import Size, typed
from .bipartite import EDGE_TYPE, bipartite_graph, check_graph
from .links import cached_per_structure, links, run_untraced

DIRECTION = "Edges go from who votes to whom: dgl.reverse(graph) turns them, dgl.to_bidirected(graph) adds the others"


@typed
def expand(graph: DGLGraph, caps_in: Size = 1, caps_out: Size = 1) -> DGLGraph:
    """Link each capsule of an edge's source to each capsule of its destination; the votes along one edge compete.

    Edge ``(e * K_in + k) * K_out + l`` of the result links child ``e * K_in + k``, capsule k of e's source, to parent
    ``v * K_out + l``, capsule l of e's destination v. A node has separate children for each of its out-edges.

    Args:
        graph: a DGLGraph or message-flow block with one canonical edge type and E edges.
        caps_in, caps_out: K_in, K_out >= 1, numbers of capsules of each source and of each destination node.

    Returns:
        DGLGraph with E * K_in * K_out edges of type ``("child", "votes", "parent")``.

    >>> from graphcaps import dgl
    >>> expand(dgl.graph(([0, 1], [1, 2])), caps_in=2, caps_out=3).num_edges()
    12
    """
    check_graph(graph)
    return _expanded(graph, caps_in, caps_out).local_var()


@cached_per_structure
def _expanded(graph: DGLGraph, caps_in: int, caps_out: int) -> DGLGraph:
    dst = graph.edges(order="eid")[1]
    e, k, l = (torch.arange(count, dtype=dst.dtype, device=dst.device) for count in (len(dst), caps_in, caps_out))  # noqa: E741
    children = (e.view(-1, 1, 1) * caps_in + k.view(1, -1, 1)).expand(-1, -1, caps_out)  # (E, K_in, K_out)
    parents = (dst.view(-1, 1, 1) * caps_out + l).expand_as(children)
    return bipartite_graph(children.flatten(), parents.flatten(), len(e) * caps_in, graph.num_dst_nodes() * caps_out)


@cached_per_structure
def reverse_edges(graph: DGLGraph) -> torch.Tensor:
    """Return the edge number of each edge's reverse, (E,) int64: (v, u) for (u, v). A self-loop is its own reverse.

    Sources and destinations must be the same nodes. If two nodes have several edges, the first in one direction is
    paired with the first in the other, and so on.

    Raises:
        InputError: some edges have no reverse.

    >>> from graphcaps import dgl
    >>> reverse_edges(dgl.graph(([0, 1, 2], [1, 0, 2])))
    tensor([1, 0, 2])
    """
    src, dst = (end.long() for end in graph.edges(order="eid"))
    there, back = (one * graph.num_src_nodes() + other for one, other in ((src, dst), (dst, src)))
    order, other = torch.argsort(there, stable=True), torch.argsort(back, stable=True)
    if not bool((there[order] == back[other]).all()):
        alone = torch.cat([(~torch.isin(back, there)).nonzero().flatten(), order[there[order] != back[other]]])[0]
        got = f"the edge {int(src[alone])} -> {int(dst[alone])} without one"
        then = "Add them: dgl.to_bidirected(graph), or to keep features dgl.add_reverse_edges(graph, copy_edata=True)"
        expect(False, "graph", "a reverse for each edge", got, f"{then}; in PyG torch_geometric.utils.to_undirected")
    return torch.empty_like(order).index_copy(0, order, other)


def membership(graph: DGLGraph) -> DGLGraph:
    """Link each node of a homogeneous graph or of a ``dgl.batch`` to its graph; edge i starts at node i.

    >>> from graphcaps import dgl
    >>> membership(dgl.batch([dgl.rand_graph(3, 4), dgl.rand_graph(2, 1)])).edges()[1]
    tensor([0, 0, 0, 1, 1])
    """
    check_graph(graph)
    expect(len(graph.ntypes) == 1, "graph", "one node type", graph.ntypes)
    return _members(graph, tuple(run_untraced(graph.batch_num_nodes).tolist())).local_var()


@cached_per_structure
def _members(graph: DGLGraph, sizes: tuple[int, ...]) -> DGLGraph:
    like = dict(dtype=graph.idtype, device=graph.device)
    owners = torch.arange(len(sizes), **like).repeat_interleave(torch.tensor(sizes, **like))
    return bipartite_graph(torch.arange(len(owners), **like), owners, len(owners), len(sizes))


def check_edges(graph: DGLGraph, allow_zero_in_degree: bool) -> None:
    """Check the graph. Raise ``DGLError`` if a node has no in-edges and that isn't allowed, as DGL's layers do."""
    check_graph(graph)
    if not allow_zero_in_degree and some_without_in_edges(graph):
        raise dgl.DGLError(
            "graph: expected an in-edge for every node, got nodes without one. Add self-loops with "
            "dgl.add_self_loop(graph), or allow it with allow_zero_in_degree=True"
        )
    warn_of_one_way(graph)


@cached_per_structure
def warn_of_one_way(graph: DGLGraph) -> None:
    """Warn if the nodes are of one kind, and none has both in-edges and out-edges, except for self-loops."""
    ends = links(graph, graph.device)
    apart = ends.src != ends.dst
    src, dst = ends.src[apart], ends.dst[apart]
    if len(graph.ntypes) == 1 and not graph.is_block and len(src) and not bool(torch.isin(src, dst).any()):
        warnings.warn(f"graph: no node both votes and gets votes. {DIRECTION}", stacklevel=2)


@cached_per_structure
def warn_of_parallel_edges(graph: DGLGraph) -> None:
    """Warn if edges join the same two nodes. DGL's CPU build can tell this only of graphs on a CPU."""
    if graph.device.type == "cpu" and graph.is_multigraph:
        warnings.warn("graph: each parallel edge is more evidence; dgl.to_simple(graph) merges them", stacklevel=2)


@cached_per_structure
def warn_of_lone_votes(graph: DGLGraph) -> None:
    """Warn if children vote for several parents, but no parent gets more than one vote."""
    ends = links(graph, graph.device)
    many = graph.canonical_etypes != [EDGE_TYPE] and graph.num_edges() and int(ends.src.bincount().max()) > 1
    if many and int(ends.in_degrees.max()) == 1:
        warnings.warn(f"graph: no vote has another to agree with. {DIRECTION}", stacklevel=2)


@cached_per_structure
def some_without_in_edges(graph: DGLGraph) -> bool:
    """Whether a node has no in-edges. The result is cached, because computing it waits for the device."""
    return bool((links(graph, graph.device).in_degrees == 0).any())


def check_one_kind(graph: DGLGraph, wanted: str, then: str) -> None:
    """Raise ``InputError`` unless sources and destinations are the same nodes."""
    same = len(graph.ntypes) == 1 and not graph.is_block
    expect(same, "graph", wanted, "a block" if graph.is_block else "sources and destinations", then)
