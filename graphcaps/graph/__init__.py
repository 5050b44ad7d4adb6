"""Graphs: ``Links``, which all of graphcaps computes with, and the DGL graphs of votes that become links."""

from .bipartite import EDGE_TYPE, bipartite_graph
from .checks import check_graph
from .couplings import coupling_entropy, to_networkx
from .labels import Labels, read_labels
from .links import ByChild, ByParent, Links, links_of_graph
from .local import complete_graph, graph_of, links_of_layer, local_graph, local_grid, local_index
from .named import NamedGraph, read_graph

__all__ = ["EDGE_TYPE", "ByChild", "ByParent", "Labels", "Links", "NamedGraph", "bipartite_graph", "check_graph"]
__all__ += ["complete_graph", "coupling_entropy", "graph_of", "links_of_graph", "links_of_layer", "local_graph"]
__all__ += ["local_grid", "local_index", "read_graph", "read_labels", "to_networkx"]
