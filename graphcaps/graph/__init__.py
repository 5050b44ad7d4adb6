"""Graphs: ``Links``, which all of graphcaps computes with, and the DGL graphs of votes that become links."""

from .bipartite import EDGE_TYPE, bipartite_graph, check_graph, complete_graph
from .couplings import coupling_entropy, to_networkx
from .links import ByChild, ByParent, Links, links_of_graph
from .local import graph_of, links_of_layer, local_graph, local_grid, local_index
from .nodes import reverse_edges

__all__ = ["EDGE_TYPE", "ByChild", "ByParent", "Links", "bipartite_graph", "check_graph"]
__all__ += [
    "complete_graph",
    "links_of_graph",
    "links_of_layer",
    "coupling_entropy",
    "to_networkx",
    "graph_of",
    "local_graph",
]
__all__ += ["local_grid", "local_index", "reverse_edges"]
