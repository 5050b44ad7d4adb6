"""Positions for the nodes of a graph that comes without positions."""

from itertools import pairwise

import networkx
import numpy as np

_SMALL = 150  # up to this many nodes, Kamada & Kawai's layout is used; it is better than springs but slow for more


def laid_out(num_nodes: int, links: np.ndarray) -> np.ndarray:
    """Positions (N, 2) for ``links`` (M, 2) without directions, the same for the same graph.

    Components lie beside one another.
    """
    graph = networkx.empty_graph(num_nodes)
    graph.add_edges_from(links.tolist())
    parts = sorted(networkx.connected_components(graph), key=len)
    graph.add_edges_from((min(one), min(other)) for one, other in pairwise(parts))
    if num_nodes <= _SMALL:
        at = networkx.kamada_kawai_layout(graph)
    else:
        iterations = 200 if num_nodes < 500 else 50
        at = networkx.spring_layout(graph, k=2.5 / np.sqrt(num_nodes), iterations=iterations, seed=0)
    return np.array([at[n] for n in range(num_nodes)])
