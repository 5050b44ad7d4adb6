"""Graphs laid over each other: which of a few known shapes a graph is made of, and which each edge belongs to.

The synthetic graphs of Yang et al. 2020 (Factorizable Graph Convolutional Networks, NeurIPS), as their code draws them
(https://github.com/ihollywhy/FactorGCN.PyTorch, dataset/generate_synthetic.py): 20,000 graphs of 15 nodes, each the
union of half of the motifs, each motif on nodes of its own drawing. A graph's labels are its motifs. Differs: an edge
of two motifs is a 1 in the features, as every other, and not a 2, which would show where motifs meet.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass

import networkx as nx
import numpy as np
import torch

from graphcaps import dgl

MOTIFS: dict[str, Callable[[], nx.Graph]] = {
    "K2,3": lambda: nx.complete_bipartite_graph(2, 3),
    "house": nx.house_x_graph,
    "tree": lambda: nx.balanced_tree(3, 2),
    "grid": lambda: nx.grid_2d_graph(3, 3),
    "cube": lambda: nx.hypercube_graph(3),
    "octahedron": nx.octahedral_graph,
}
"""In the paper's order; the first K are used. The house has both diagonals."""


@dataclass(frozen=True, eq=False)
class MotifGraphs:
    """G graphs of N nodes, each the union of some of K motifs.

    Args:
        adjacency: bool (G, K, N, N), symmetric: the edges of each motif in each graph.
        labels: float32 (G, K), 1 for the motifs that a graph holds, else 0.
        train, val, test: numbers of graphs, 70, 10 and 20 % of them, in the order they were drawn in.
    """

    adjacency: np.ndarray
    labels: np.ndarray
    train: np.ndarray
    val: np.ndarray
    test: np.ndarray

    def batch(self, which: np.ndarray) -> dgl.DGLGraph:
        """These graphs as one, an edge in both directions for each pair that is joined, no self-loops.

        Returns:
            a batched graph with ``ndata["feat"]``, float32 (nodes, N), each node's row of its graph's adjacency matrix,
            and ``edata["factors"]``, bool (edges, K), the motifs that each edge belongs to: one or more.
        """
        motifs = self.adjacency[which]
        union = motifs.any(axis=1)
        number, src, dst = union.nonzero()
        size = union.shape[1]
        ends = (torch.from_numpy(number * size + end) for end in (src, dst))
        graph = dgl.graph(tuple(ends), num_nodes=len(union) * size)
        graph.set_batch_num_nodes(torch.full((len(union),), size))
        graph.set_batch_num_edges(torch.from_numpy(union.sum(axis=(1, 2))))
        graph.ndata["feat"] = torch.from_numpy(union.reshape(-1, size).astype(np.float32))
        graph.edata["factors"] = torch.from_numpy(motifs[number, :, src, dst])
        return graph


@functools.lru_cache(maxsize=16)
def motif_graphs(seed: int, motifs: int = 4, graphs: int = 20_000, nodes: int = 15) -> MotifGraphs:
    """Draw graphs of at least 13 nodes, each the union of ceil(K / 2) different motifs, with a split of them.

    The same arguments give the same graphs on every machine.

    >>> data = motif_graphs(0, graphs=100)
    >>> len(data.train), len(data.val), len(data.test), int(data.labels[0].sum())
    (70, 10, 20, 2)
    >>> data.batch(data.test).num_nodes()
    300
    """
    shapes = [nx.to_numpy_array(motif(), dtype=bool) for motif in [*MOTIFS.values()][:motifs]]
    random = np.random.RandomState(seed)  # frozen: NumPy promises its numbers for ever
    adjacency, labels = np.zeros((graphs, motifs, nodes, nodes), bool), np.zeros((graphs, motifs), np.float32)
    for k in range(graphs):
        for motif in random.permutation(motifs)[: (motifs + 1) // 2]:
            places = random.permutation(nodes)[: len(shapes[motif])]
            adjacency[k, motif][np.ix_(places, places)] = shapes[motif]
            labels[k, motif] = 1
    return MotifGraphs(adjacency, labels, *np.split(np.arange(graphs), [round(0.7 * graphs), round(0.8 * graphs)]))
