"""Graphs of votes: which child votes for which parent, by kind of neighbourhood."""

from .bipartite import EDGE_TYPE, bipartite_graph, check_graph, complete_graph
from .links import Links, cached_per_structure, links
from .local import local_graph, local_grid, local_index
from .nearest import nearest_graph
from .nodes import COMPETITIONS, check_competition, expand, membership, reverse_edges
from .to_networkx import to_networkx

__all__ = [
    "COMPETITIONS",
    "EDGE_TYPE",
    "Links",
    "bipartite_graph",
    "check_competition",
    "check_graph",
    "complete_graph",
    "expand",
    "links",
    "membership",
    "nearest_graph",
    "local_graph",
    "local_grid",
    "local_index",
    "cached_per_structure",
    "reverse_edges",
    "to_networkx",
]
