"""Checks of DGL graphs, and warnings about their edges. Results are kept as long as the graph's structure exists."""

from collections.abc import Callable

from .. import _dgl
from .._dgl import DGLGraph
from ..errors import expect, warn
from .bipartite import EDGE_TYPE
from .links import Links, links_of_graph

DIRECTION = "Edges go from who votes to whom: dgl.reverse(graph) turns them, dgl.to_bidirected(graph) adds the others"


def check_graph(graph: DGLGraph) -> None:
    """Raise ``InputError`` unless ``graph`` is a DGLGraph with one canonical edge type and no other node types."""
    advice = "networkx and others: read_graph(graph).dgl; two layers: bipartite_graph; an edge_index: graphcaps.pyg"
    expect(isinstance(graph, DGLGraph), "graph", "a DGLGraph", type(graph).__name__, advice)
    types, pick = graph.canonical_etypes, "Pass the part with one edge type: graph[canonical_etype]"
    expect(len(types) == 1, "graph", "one canonical edge type", types, pick)
    linked = {types[0][0], types[0][2]}
    expect(set(graph.ntypes) == linked, "graph", f"only the node types of {types[0]}", graph.ntypes, pick)


def check_edges(graph: DGLGraph, allow_zero_in_degree: bool) -> None:
    """Check the graph. Raise ``DGLError`` if a node has no in-edges and that isn't allowed, as DGL's layers do."""
    check_graph(graph)
    links = links_of_graph(graph, graph.device)
    if not allow_zero_in_degree and links.cached("lonely", lambda: bool((links.in_degrees == 0).any())):
        loops = "Add self-loops with dgl.add_self_loop(graph), or allow" if len(graph.ntypes) == 1 else "Allow"
        raise _dgl.dgl.DGLError(
            "graph: expected an in-edge for every node, got nodes without one. "
            f"{loops} it with allow_zero_in_degree=True"
        )
    if len(graph.ntypes) == 1 and not graph.is_block:
        warn_once(links, _goes_one_way, f"no node both votes and gets votes. {DIRECTION}")


def check_one_kind(graph: DGLGraph, wanted: str, advice: str) -> None:
    """Raise ``InputError`` unless sources and destinations are the same nodes."""
    same = len(graph.ntypes) == 1 and not graph.is_block
    expect(same, "graph", wanted, "a block" if graph.is_block else "sources and destinations", advice)


def warn_of_false_evidence(links: Links) -> None:
    """Warn of parallel edges and self-loops, if each edge is evidence. On a GPU, this isn't checked."""
    if links.device.type == "cpu" and not links.traced:
        warn_once(links, _has_parallel_edges, "each parallel edge is more evidence; dgl.to_simple(graph) merges them")
        text = "a self-loop makes a node surer of itself; leave it out: dgl.remove_self_loop(graph)"
        warn_once(links, _has_loops, text)


def warn_of_lone_votes(graph: DGLGraph) -> None:
    """Warn if children vote for several parents, but no parent gets more than one vote."""
    if graph.canonical_etypes != [EDGE_TYPE]:
        warn_once(links_of_graph(graph), _has_lone_votes, f"no vote has another to agree with. {DIRECTION}")


def warn_once(links: Links, fault: Callable[[Links], bool], text: str) -> None:
    """Warn at the first call with these links if they have the fault."""
    if fault not in links.cache and links.cached(fault, lambda: fault(links)):
        warn(f"graph: {text}")


def _goes_one_way(links: Links) -> bool:
    """Whether no node has both in-edges and out-edges, except for self-loops. It takes no sorting, which is slow."""
    between = (links.src != links.dst).long()
    votes, receives = (
        between.new_zeros(links.num_children).index_add(0, end, between) for end in (links.src, links.dst)
    )
    return bool(between.any()) and not bool(((votes > 0) & (receives > 0)).any())


def _has_parallel_edges(links: Links) -> bool:
    pairs = (links.src * links.num_parents + links.dst).sort().values
    return bool((pairs[1:] == pairs[:-1]).any())


def _has_loops(links: Links) -> bool:
    return bool((links.src == links.dst).any())


def _has_lone_votes(links: Links) -> bool:
    return links.num_edges > 0 and links.by_child.most > 1 and int(links.in_degrees.max()) == 1
