"""What graphs with latent factors give away: belief propagation by one who knows how they were drawn.

A network on such a graph has to learn from its training nodes what this is told: how probable an edge is within a class
and between classes. So it says how much there was to find: the classes of the other nodes, and the cause of each edge.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from .factors import FactorGraph

ROUNDS, CLOSE = 100, 1e-4
KEPT = 0.3  # of the last message, so that messages settle


class Beliefs(NamedTuple):
    """Probabilities, float64.

    Args:
        classes: (N, K, C), of each node's class, of each factor; 1 for what was known.
        causes: (E, K), of the factor that an edge is there because of.
    """

    classes: Tensor
    causes: Tensor


def beliefs(data: FactorGraph, known: Tensor | None = None) -> Beliefs:
    """Classes and causes given the graph, the classes of ``known`` nodes, and p and q of the generator.

    Sum-product belief propagation (Decelle et al. 2011, Physical Review E 84, 066106) for K labels of a node. Node i
    tells j what it believes of itself without j, mu_ij(k, c). An edge from i to j then says of j's class c of factor k

        (p - q) mu_ij(k, c) + q + sum over the other factors of (p - q) <mu_ij, mu_ji> + q

    and pairs without an edge act through their sum, since there are many of them and each says little.
    Loops make it an approximation; on random graphs of this size they are long.

    Args:
        known: node numbers whose classes are given; default: the training nodes.

    >>> from graphcaps.data.graphs.factors import factor_graph
    >>> data = factor_graph(0, factors=2, nodes=200, classes=4, degree=20)
    >>> found = beliefs(data).classes.argmax(dim=2)
    >>> bool((found == data.labels)[data.test].float().mean() > 0.9)
    True
    """
    more, q = data.p - data.q, data.q
    src, dst = data.graph.edges()
    back = torch.cat([torch.arange(len(src) // 2, len(src)), torch.arange(len(src) // 2)])  # of each edge, the reverse
    told = torch.zeros(len(data.labels), dtype=torch.bool)
    told[data.train if known is None else known] = True
    truth = F.one_hot(data.labels, data.num_classes).double()  # (N, K, C)
    classes = torch.where(told[:, None, None], truth, 1 / data.num_classes)
    messages = classes[src]  # (E, K, C): what src tells dst of itself
    asked = (~told[dst]).nonzero().flatten()  # edges to nodes whose classes are not known, M of them
    node, answer = dst[asked], back[asked]
    for _ in range(ROUNDS):
        told_node, said_before = messages[asked], messages[answer]  # (M, K, C)
        agree = more * (told_node * said_before).sum(-1) + q  # (M, K)
        others = (agree.sum(1, keepdim=True) - agree).unsqueeze(-1)
        heard = torch.log(more * told_node + q + others)  # of the node's class, along one edge
        total = torch.zeros_like(classes).index_add(0, node, heard) - more * classes.sum(0)
        classes = torch.where(told[:, None, None], truth, total.softmax(-1))
        says = (total[node] - heard).softmax(-1)
        messages[answer] = torch.lerp(says, said_before, KEPT)
        if len(asked) == 0 or float((says - said_before).abs().mean()) < CLOSE:
            break
    causes = more * (messages * messages[back]).sum(-1) + q
    return Beliefs(classes, causes / causes.sum(1, keepdim=True))
