"""Graphs of votes, in which each edge links a child to a parent that it votes for."""

from .bipartite import EDGE_TYPE, bipartite_graph, check_graph, complete_graph
from .couplings import coupling_entropy, to_networkx
from .links import Links, cached_per_structure, links
from .local import graph_of, local_graph, local_grid, local_index
from .nodes import expand, membership, reverse_edges

__all__ = ["EDGE_TYPE", "Links", "bipartite_graph", "cached_per_structure", "check_graph", "complete_graph", "links"]
__all__ += ["coupling_entropy", "to_networkx", "graph_of", "local_graph", "local_grid", "local_index"]
__all__ += ["expand", "membership", "reverse_edges"]
