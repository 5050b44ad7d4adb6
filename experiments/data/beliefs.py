"""Belief propagation on graphs with latent factors, with the generator's own probabilities or with counted ones.

With the generator's probabilities of edges within a class and between classes, the results are upper bounds for
networks: on the classes of the other nodes, and on the factors of edges. A network must learn them from the training
nodes. With probabilities that are counted on these, it is a method with the same information as a network.
"""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from .related import Related

MOST_ROUNDS, CLOSE = 100, 1e-4  # limits: number of rounds, and mean change of a message in the last round
DAMPING = 0.3  # share of the previous message in the new one, so that messages converge


class Beliefs(NamedTuple):
    """Probabilities, float64."""

    classes: Tensor  # (N, K, C): the node has class c of factor k; 1 for given classes
    causes: Tensor  # (E, K): factor k generated the edge


def beliefs(data: Related, nodes: Tensor | None = None, rates: tuple[Tensor, Tensor] | None = None) -> Beliefs:
    """Infer the classes of nodes and the causes of edges from the classes of some nodes, and from the generator's p, q.

    The method is sum-product belief propagation (Decelle et al. 2011, Physical Review E 84, 066106), for K classes per
    node. The message mu_ij(k, c) is the probability that node i has class c of factor k, without what j told it. The
    edge from i to j then gives class c of factor k of node j the weight

        (p - q) mu_ij(k, c) + q + sum over the other factors of (p - q) <mu_ij, mu_ji> + q

    Pairs of nodes without an edge are approximated by one sum over all nodes, because each has little effect. The
    result is also an approximation because the graph has loops, but on random graphs of this size loops are long.

    Args:
        nodes: numbers of the nodes whose classes are given; default: the training nodes.
        rates: p - q (K,) and K q, as ``graphcaps.beliefs.rates.counted_rates`` counts them, instead of the generator's.

    >>> from experiments.data.factors import factor_graph
    >>> data = factor_graph(0, factors=2, nodes=200, classes=4, degree=20)
    >>> classes = beliefs(data).classes.argmax(dim=2)
    >>> bool((classes == data.labels)[data.test].float().mean() > 0.9)
    True
    """
    size = data.labels.shape[1]
    more, q = (rates[0], rates[1] / size) if rates else (torch.full((size,), data.p - data.q).double(), data.q)
    src, dst = data.graph.edges()
    half = len(src) // 2
    reverse = torch.cat([torch.arange(half, len(src)), torch.arange(half)])  # (E,)
    fixed = torch.zeros(len(data.labels), dtype=torch.bool)
    fixed[data.train if nodes is None else nodes] = True
    truth = F.one_hot(data.labels, data.num_classes).double()  # (N, K, C)
    classes = torch.where(fixed[:, None, None], truth, 1 / data.num_classes)
    messages = classes[src]  # (E, K, C), from src to dst
    into = (~fixed[dst]).nonzero().flatten()  # (M,), edges to nodes whose classes are unknown
    node, out = dst[into], reverse[into]
    for _ in range(MOST_ROUNDS):
        received, sent = messages[into], messages[out]  # (M, K, C)
        agree = more * (received * sent).sum(-1) + q  # (M, K)
        others = (agree.sum(1, keepdim=True) - agree).unsqueeze(-1)
        evidence = torch.log(more[:, None] * received + q + others)  # (M, K, C)
        total = torch.zeros_like(classes).index_add(0, node, evidence) - more[:, None] * classes.sum(0)
        classes = torch.where(fixed[:, None, None], truth, total.softmax(-1))
        new = (total[node] - evidence).softmax(-1)  # an answer leaves out the message that came along the same edge
        messages[out] = torch.lerp(new, sent, DAMPING)
        if len(into) == 0 or float((new - sent).abs().mean()) < CLOSE:
            break
    causes = more * (messages * messages[reverse]).sum(-1) + q
    return Beliefs(classes, causes / causes.sum(1, keepdim=True))
