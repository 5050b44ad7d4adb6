"""Graphs with K latent factors. Each factor groups the nodes into classes and generates edges within the classes.

The graphs are those of Ma et al. 2019 (Disentangled graph convolutional networks, ICML): the union of K random graphs
on the same nodes, one per factor. For each factor, a node has one of 16 classes. Two nodes of the same class are joined
with probability p, others with q. The task is to learn a node's K classes from the graph without the factors. Graphs
are drawn from a seed.
"""

import functools

import numpy as np
import torch

from .related import Related, joined, of_nodes, split

TOLERANCE = 0.5
"""A graph is accepted if its mean degree differs by at most this much: in the paper, 39.5 to 40.5."""


def within(factors: int, degree: float, nodes: int, classes: int, between: float) -> float:
    """Probability p of an edge within a class, such that a node has ``degree`` neighbours on average.

    Let s be the share of pairs within a class. Then m = p s + q (1 - s) is the probability that one factor joins a
    pair, and 1 - (1 - m)^K that at least one of K factors joins it. LGD-GCN (Guo et al.,
    https://github.com/jingweio/LGD-GCN) published p = 0.164, 0.11, 0.082 and 0.055 for K = 4, 6, 8 and 12.

    >>> [round(within(k, 40, 1000, 16, 3e-5), 4) for k in (4, 6, 8, 12)]
    [0.1646, 0.1098, 0.0823, 0.0548]
    """
    sizes = np.bincount(np.arange(nodes) % classes)
    same = float((sizes * (sizes - 1)).sum() / (nodes * (nodes - 1)))
    joined = 1 - (1 - degree / (nodes - 1)) ** (1 / factors)
    return (joined - between * (1 - same)) / same


@functools.lru_cache(maxsize=16)
def factor_graph(
    seed: int, factors: int = 4, nodes: int = 1000, classes: int = 16, degree: float = 40.0, between: float = 3e-5
) -> Related:
    """Draw a graph with latent factors, whose edges have the factors that generated them as kinds, and split its nodes.

    The sizes of classes differ by at most one node. Edges are drawn again until the mean degree differs from ``degree``
    by at most ``TOLERANCE``. The same arguments give the same graph on every machine.

    >>> data = factor_graph(0)
    >>> data.graph.num_nodes(), data.labels.shape, len(data.train), len(data.val), len(data.test)
    (1000, torch.Size([1000, 4]), 600, 200, 200)
    """
    chance = within(factors, degree, nodes, classes, between)
    random = np.random.RandomState(seed)  # NumPy guarantees that RandomState's numbers never change
    labels = np.stack([random.permutation(np.arange(nodes) % classes) for _ in range(factors)], axis=1)  # (N, K)
    low, high = np.triu_indices(nodes, 1)
    chances = np.where(labels[low] == labels[high], chance, between)  # (pairs, K)
    while True:
        causes = random.random_sample(chances.shape) < chances
        drawn = causes.any(axis=1)
        if abs(2 * drawn.sum() / nodes - degree) <= TOLERANCE:
            break
    graph, kinds = joined(np.stack([low, high])[:, drawn], nodes, causes[drawn])
    features = torch.eye(nodes).index_put(graph.edges(), torch.ones(()))
    about = {"kinds": kinds, "own": True, "p": chance, "q": between}
    return of_nodes(graph, features, torch.from_numpy(labels), *split(nodes, random), **about)
