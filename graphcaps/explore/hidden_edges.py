"""A ``CapsuleConv`` trained on a graph alone: it predicts hidden edges, from the capsules in which two nodes are alike.

A tenth of the edges is kept for a test. In each epoch, a fifth of the others is hidden. The layer sees the rest, and
learns to tell the hidden edges from random pairs. The score of two nodes is the soft maximum over capsules of the
cosine between their capsules, so one common cause is enough for an edge. ``examples.link_prediction`` compares layers
in this way. Of three trainings, that with the lowest loss is kept: some find the causes only in part, and their loss is
higher. What another training repeats isn't an accident of the start.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor
from torch.nn import functional as F

from .._dgl import DGLGraph
from ..errors import check_whole, expect
from ..graph import links_of_graph
from ..nn import CapsuleConv
from ..routing import Spherical

TESTED, HIDDEN = 0.1, 0.2  # shares of edges
EPOCHS, RATE = 200, 0.01  # Adam's learning rate; a higher one finds more in random graphs
MANY, MORE_EPOCHS, HIGHER_RATE = 5000, 500, 0.03  # else four causes of 20,000 edges are found in part only
WIDTH, CONCENTRATION = 16, 4.0  # with 8 numbers per capsule, two causes of 500 edges are found in part only
SHARPNESS, BIAS = 5.0, -1.0  # start of the learned scale and offset of scores
STARTS, COMPARED = 3, 20  # trainings; the last epochs, whose mean loss is compared
PAIRS = 1000  # random pairs, at least, among which tested edges are found
MOST_NODES = 5000


class Trained(NamedTuple):
    """The layer with the lowest loss, and what the trainings have in common."""

    conv: CapsuleConv
    feat: Tensor
    """(N, N): the adjacency matrix, with ones on its diagonal."""
    coupling: Tensor
    """(E, K): how the layer couples the edges of the whole graph."""
    found: float
    """The share of random pairs that score lower than a tested edge, which the layer never saw: 0.5 by chance."""
    repeated: float
    """From 0 to 1: the covariance of the couplings with those of another training, over its largest possible value."""
    agrees: Tensor
    """(E,) bool: whether the other training prefers the same capsule for this edge."""


def train_on_hidden_edges(
    graph: DGLGraph,
    num_caps: int,
    weight: Tensor | None = None,
    on_progress: Callable[[float], None] = lambda share: None,
) -> Trained:
    """Train a layer of K capsules on a graph without features, in which each edge has its reverse.

    Raises:
        InputError: ``num_caps`` isn't an integer >= 2, the graph is too large, or an edge has no reverse.
    """
    check_whole("conv", num_caps, 2, wanted="a CapsuleConv, or a number of capsules >= 2 to train one")
    ends, count = links_of_graph(graph), graph.num_nodes()
    expect(count <= MOST_NODES, "graph", f"at most {MOST_NODES} nodes to train a layer", count, "Train your own layer")
    first, apart = torch.minimum(torch.arange(ends.num_edges), ends.reverse), ends.src != ends.dst
    x = torch.eye(count).index_put((ends.dst, ends.src), torch.ones(()))
    weight = torch.ones(ends.num_edges) if weight is None else weight
    epochs, rate = (MORE_EPOCHS, HIGHER_RATE) if ends.num_edges >= MANY else (EPOCHS, RATE)
    options: dict[str, Any] = {"unit_votes": True, "mutual": True, "squash_output": False, "allow_zero_in_degree": True}

    def scores(conv: CapsuleConv, hidden: Tensor, src: Tensor, dst: Tensor) -> Tensor:
        """The logarithms of the sums over capsules, for pairs of nodes, if the layer doesn't see the hidden edges."""
        seen = x.index_put((ends.dst[hidden], ends.src[hidden]), x.new_zeros(()))
        h = F.normalize(conv(graph, F.dropout(seen, training=conv.training), weight * ~hidden), dim=-1)  # (N, K, D)
        return (score[0] * (h[src] * h[dst]).sum(-1)).logsumexp(-1)

    layers, losses, found, couplings = [], [], [], []
    with torch.random.fork_rng(devices=[]):
        for start in range(STARTS):
            torch.manual_seed(start)
            tested = (torch.rand(len(first)) < TESTED)[first] & apart
            conv = CapsuleConv(count, WIDTH, num_caps, Spherical(concentration=CONCENTRATION), **options)
            score = torch.nn.Parameter(torch.tensor([SHARPNESS, BIAS]))
            adam = torch.optim.Adam([*conv.parameters(), score], lr=rate, weight_decay=5e-4)
            of_epochs: list[float] = []
            while len(of_epochs) < epochs:
                hidden = (torch.rand(len(first)) < HIDDEN)[first] & apart & ~tested
                linked = torch.stack([ends.src[hidden], ends.dst[hidden]])
                pairs = torch.cat([linked, torch.randint(count, linked.shape)], dim=1)
                alike = scores(conv, hidden | tested, *pairs) - score[0] + score[1]
                wanted = (torch.arange(pairs.shape[1]) < linked.shape[1]).float()
                loss = F.binary_cross_entropy_with_logits(alike, wanted)
                adam.zero_grad()
                loss.backward()
                adam.step()
                of_epochs.append(loss.item())
                on_progress((start + len(of_epochs) / epochs) / STARTS)
            layers.append(conv.eval())
            losses.append(float(torch.tensor(of_epochs[-COMPARED:]).nanmean()))  # an epoch without hidden edges has NaN
            with torch.no_grad():
                others = torch.randint(count, (2, max(PAIRS, int(tested.sum()))))
                others = others[:, (others[0] != others[1]) & (x[others[1], others[0]] == 0)]
                linked = torch.stack([ends.src[tested], ends.dst[tested]])
                found.append(_higher(*(scores(conv, tested, *pairs) for pairs in (linked, others))))
                couplings.append(conv(graph, x, weight, get_coupling=True)[1][:, 0])
    order = sorted(range(STARTS), key=losses.__getitem__)
    repeated, agrees = max((_repeated(couplings[order[0]], couplings[k]) for k in order[1:]), key=lambda pair: pair[0])
    return Trained(layers[order[0]], x, couplings[order[0]], sum(found) / STARTS, repeated, agrees)


def _higher(tested: Tensor, others: Tensor) -> float:
    """The area under the receiver operating characteristic: how often a tested edge scores higher than another pair."""
    if not tested.numel() or not others.numel():
        return 0.5
    below = torch.searchsorted(others.sort().values, tested)
    return float(below.double().mean()) / len(others)


def _repeated(c: Tensor, other: Tensor) -> tuple[float, Tensor]:
    """``Trained.repeated`` and ``agrees`` of two trainings' couplings (E, K), whose capsules are matched."""
    covariance = (c - c.mean(0)).T @ (other - other.mean(0)) / len(c)  # (K, K)
    rows, columns = linear_sum_assignment(-covariance.numpy())
    repeated = float(covariance[rows, columns].sum()) / (1 - 1 / c.shape[1])
    return repeated, c.argmax(1) == other[:, columns].argmax(1)
