"""A ``CapsuleConv`` trained on a graph alone: it predicts hidden edges, from the capsules in which two nodes are alike.

In each epoch, a fifth of the edges is hidden. The layer sees the others, and learns to tell the hidden edges from
random pairs. The score of two nodes is the soft maximum over capsules of the cosine between their capsules, so one
common cause is enough for an edge. ``examples.link_prediction`` compares layers in this way. Of three trainings, that
with the lowest loss is kept: some find the causes only in part, and their loss is higher.
"""

from typing import Any

import torch
from torch.nn import functional as F

from .._dgl import DGLGraph
from ..errors import check_whole, expect
from ..graph import links_of_graph, reverse_edges
from ..nn import CapsuleConv
from ..progress import bar
from ..routing import Spherical

HIDDEN, EPOCHS, RATE = 0.2, 200, 0.01  # share of hidden edges; epochs; Adam's learning rate
WIDTH, CONCENTRATION = 16, 4.0  # with 8 numbers per capsule, two causes of 500 edges are found in part only
SHARPNESS, BIAS = 5.0, -1.0  # start of the learned scale and offset of scores
STARTS, COMPARED = 3, 20  # trainings; the last epochs, whose mean loss is compared
MOST_NODES = 5000


def train_on_hidden_edges(graph: DGLGraph, num_caps: int) -> tuple[CapsuleConv, torch.Tensor]:
    """Train a layer of K capsules on a graph without features, in which each edge has its reverse. Show the progress.

    Returns:
        The layer, and its features (N, N): the adjacency matrix, with ones on its diagonal.

    Raises:
        InputError: ``num_caps`` isn't an integer >= 2, the graph is too large, or an edge has no reverse.
    """
    check_whole("conv", num_caps, 2, wanted="a CapsuleConv, or a number of capsules >= 2 to train one")
    ends, reverse, count = links_of_graph(graph), reverse_edges(graph), graph.num_nodes()
    expect(count <= MOST_NODES, "graph", f"at most {MOST_NODES} nodes to train a layer", count, "Train your own layer")
    first, apart = torch.minimum(torch.arange(len(reverse)), reverse), ends.src != ends.dst
    x = torch.eye(count).index_put((ends.dst, ends.src), torch.ones(()))
    options: dict[str, Any] = {"unit_votes": True, "mutual": True, "squash_output": False, "allow_zero_in_degree": True}
    trained = []
    with torch.random.fork_rng(devices=[]), bar("training on hidden edges") as on_progress:
        for start in range(STARTS):
            torch.manual_seed(start)
            conv = CapsuleConv(count, WIDTH, num_caps, Spherical(concentration=CONCENTRATION), **options)
            score = torch.nn.Parameter(torch.tensor([SHARPNESS, BIAS]))
            adam = torch.optim.Adam([*conv.parameters(), score], lr=RATE, weight_decay=5e-4)
            losses: list[float] = []
            while len(losses) < EPOCHS:
                hidden = (torch.rand(len(first)) < HIDDEN)[first] & apart
                seen = x.index_put((ends.dst[hidden], ends.src[hidden]), x.new_zeros(()))
                h = F.normalize(conv(graph, F.dropout(seen), (~hidden).float()), dim=-1)  # (N, K, D)
                linked = torch.stack([ends.src[hidden], ends.dst[hidden]])
                src, dst = torch.cat([linked, torch.randint(count, linked.shape)], dim=1)
                alike = (score[0] * (h[src] * h[dst]).sum(-1)).logsumexp(-1) - score[0] + score[1]
                wanted = (torch.arange(len(src)) < linked.shape[1]).float()
                loss = F.binary_cross_entropy_with_logits(alike, wanted)
                adam.zero_grad()
                loss.backward()
                adam.step()
                losses.append(loss.item())
                on_progress((start + len(losses) / EPOCHS) / STARTS)
            trained.append((sum(losses[-COMPARED:]), conv.eval()))
    return min(trained, key=lambda result: result[0])[1], x
