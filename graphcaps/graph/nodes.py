"""Graphs of votes for a graph of DGL's whose nodes have several capsules, and the checks at the doors of DGL's layers.

    graph of nodes        u ----> v
    with K = 2 capsules   (u, 0), (u, 1) ----> (v, 0), (v, 1)

All results are kept as long as the graph's structure exists.
"""

import warnings

import torch

from .. import _dgl
from .._dgl import DGLGraph
from ..errors import expect
from ..tracing import run_untraced
from ..typed import Size, typed
from .bipartite import EDGE_TYPE, bipartite_graph, check_graph
from .links import Links, links

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
    return links(graph).cached(("expanded", caps_in, caps_out), lambda: _expanded(graph, caps_in, caps_out)).local_var()


def _expanded(graph: DGLGraph, caps_in: int, caps_out: int) -> DGLGraph:
    dst = graph.edges(order="eid")[1]
    e, k, l = (torch.arange(count, dtype=dst.dtype, device=dst.device) for count in (len(dst), caps_in, caps_out))  # noqa: E741
    children = (e.view(-1, 1, 1) * caps_in + k.view(1, -1, 1)).expand(-1, -1, caps_out)  # (E, K_in, K_out)
    parents = (dst.view(-1, 1, 1) * caps_out + l).expand_as(children)
    return bipartite_graph(children.flatten(), parents.flatten(), len(e) * caps_in, graph.num_dst_nodes() * caps_out)


def reverse_edges(graph: DGLGraph) -> torch.Tensor:
    """Return the edge number of each edge's reverse, (E,) int64: see ``Links.reverse``.

    Raises:
        InputError: some edges have no reverse.

    >>> from graphcaps import dgl
    >>> reverse_edges(dgl.graph(([0, 1, 2], [1, 0, 2])))
    tensor([1, 0, 2])
    """
    return links(graph, graph.device).reverse


def membership(graph: DGLGraph) -> DGLGraph:
    """Link each node of a homogeneous graph or of a ``dgl.batch`` to its graph; edge i starts at node i.

    >>> from graphcaps import dgl
    >>> membership(dgl.batch([dgl.rand_graph(3, 4), dgl.rand_graph(2, 1)])).edges()[1]
    tensor([0, 0, 0, 1, 1])
    """
    members = membership_links(graph, graph.device)
    src, dst = members.src.to(graph.idtype), members.dst.to(graph.idtype)
    return bipartite_graph(src, dst, members.num_children, members.num_parents)


def membership_links(graph: DGLGraph, device: torch.device) -> Links:
    """Return the links of ``membership(graph)`` on a device."""
    check_graph(graph)
    expect(len(graph.ntypes) == 1, "graph", "one node type", graph.ntypes)
    sizes = tuple(run_untraced(graph.batch_num_nodes).tolist())
    return links(graph, device).cached(("members", sizes), lambda: _members(sizes, device))


def _members(sizes: tuple[int, ...], device: torch.device) -> Links:
    graphs = torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes))
    return Links(torch.arange(len(graphs), device=device), graphs.to(device), len(graphs), len(sizes))


def check_edges(graph: DGLGraph, allow_zero_in_degree: bool) -> None:
    """Check the graph. Raise ``DGLError`` if a node has no in-edges and that isn't allowed, as DGL's layers do."""
    check_graph(graph)
    edges = links(graph, graph.device)
    if not allow_zero_in_degree and edges.cached("lonely", lambda: bool((edges.in_degrees == 0).any())):
        raise _dgl.dgl.DGLError(
            "graph: expected an in-edge for every node, got nodes without one. Add self-loops with "
            "dgl.add_self_loop(graph), or allow it with allow_zero_in_degree=True"
        )
    if len(graph.ntypes) == 1 and not graph.is_block and edges.cached("one way", lambda: _goes_one_way(edges)):
        warn_once(edges, f"graph: no node both votes and gets votes. {DIRECTION}")


def _goes_one_way(edges: Links) -> bool:
    """Whether no node has both in-edges and out-edges, except for self-loops. It takes no sorting, which is slow."""
    between = (edges.src != edges.dst).long()
    votes, receives = (
        between.new_zeros(edges.num_children).index_add(0, end, between) for end in (edges.src, edges.dst)
    )
    return bool(between.any()) and not bool(((votes > 0) & (receives > 0)).any())


def warn_of_parallel_edges(edges: Links) -> None:
    """Warn if several edges join the same two nodes in one direction. On a GPU, this isn't checked."""
    if edges.device.type == "cpu" and not edges.traced and edges.cached("parallel", lambda: _has_parallel_edges(edges)):
        warn_once(edges, "graph: each parallel edge is more evidence; dgl.to_simple(graph) merges them")


def _has_parallel_edges(edges: Links) -> bool:
    pairs = (edges.src * edges.num_parents + edges.dst).sort().values
    return bool((pairs[1:] == pairs[:-1]).any())


def warn_of_lone_votes(graph: DGLGraph) -> None:
    """Warn if children vote for several parents, but no parent gets more than one vote."""
    edges = links(graph)
    if graph.canonical_etypes != [EDGE_TYPE] and edges.cached("lone votes", lambda: _are_lone(edges)):
        warn_once(edges, f"graph: no vote has another to agree with. {DIRECTION}")


def _are_lone(edges: Links) -> bool:
    return edges.num_edges > 0 and edges.by_child.most > 1 and int(edges.in_degrees.max()) == 1


def warn_once(edges: Links, text: str) -> None:
    """Warn at the first call with these links."""
    if text not in edges.orders:
        edges.orders[text] = True
        warnings.warn(text, stacklevel=5)


def check_one_kind(graph: DGLGraph, wanted: str, then: str) -> None:
    """Raise ``InputError`` unless sources and destinations are the same nodes."""
    same = len(graph.ntypes) == 1 and not graph.is_block
    expect(same, "graph", wanted, "a block" if graph.is_block else "sources and destinations", then)
