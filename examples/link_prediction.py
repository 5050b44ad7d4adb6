"""Predict links between nodes, and the kind of each link, although training doesn't show the kinds. In DGL.

    python link_prediction.py

The nodes are grouped in four ways, and in each grouping, nodes of the same group are linked more often (Ma et al.
2019): the grouping is the link's cause. A tenth of the links are for testing, and another tenth choose the epoch. A
pair of nodes is scored by the capsules in which the two are most alike. ``CapsuleConv`` is compared with the same layer
with equal couplings (uniform), and with ``GATConv``. AUC measures how well links are told from other pairs. "kinds"
measures how well an edge's largest coupling tells its cause: adjusted mutual information, 0 by chance, 100 at best.
"""

from argparse import ArgumentDefaultsHelpFormatter, ArgumentParser
from functools import partial

import torch
from sklearn.metrics import adjusted_mutual_info_score, roc_auc_score
from torch import nn
from torch.nn import functional as F

from graphcaps import dgl
from graphcaps.nn import CapsuleConv
from graphcaps.routing import Spherical, Uniform

KINDS, GROUPS, WIDTH = 4, 16, 16
LAYERS = {
    "GAT": dgl.nn.pytorch.GATConv,
    "uniform": partial(CapsuleConv, routing=Uniform(), unit_votes=True, squash_output=False),
    "capsules": partial(CapsuleConv, routing=Spherical(concentration=4.0), unit_votes=True, squash_output=False),
}


def draw(nodes):
    """Link each node to about ten others by each grouping. Return the links (2, M) and their causes (M, KINDS)."""
    groups = torch.stack([torch.randperm(nodes) % GROUPS for _ in range(KINDS)], 1)
    pairs = torch.triu_indices(nodes, nodes, 1)
    chances = torch.where(groups[pairs[0]] == groups[pairs[1]], 10 * GROUPS / nodes, 3e-5)  # (pairs, KINDS)
    causes = torch.rand(chances.shape) < chances
    linked = causes.any(1)
    return pairs[:, linked], causes[linked]


class Net(nn.Module):
    def __init__(self, layer, inputs):
        super().__init__()
        self.conv, self.bias = layer(inputs, WIDTH, KINDS), nn.Parameter(torch.tensor(-1.0))
        self.sharpness = nn.Parameter(torch.tensor(5.0))

    def forward(self, graph, x, pairs):
        parts = F.normalize(self.conv(graph, F.dropout(x, 0.5, self.training)), dim=-1)  # (N, KINDS, WIDTH)
        alike = (parts[pairs[0]] * parts[pairs[1]]).sum(-1)  # (pairs, KINDS), from -1 to 1
        return (self.sharpness * alike).logsumexp(-1) - self.sharpness + self.bias


def train(layer, nodes, epochs, seed):
    """Return the AUC on the test links and ``kinds_found``, at the epoch with the best AUC on the validation links."""
    torch.manual_seed(seed)
    links, causes = draw(nodes)
    count = links.shape[1]
    val, test, shown = torch.randperm(count).split([count // 10, count // 10, count - 2 * (count // 10)])
    whole = graph_of(links[:, shown], nodes)
    net = Net(layer, nodes)
    adam = torch.optim.Adam(net.parameters(), lr=0.01, weight_decay=5e-4)
    best = (0,)
    for _ in range(epochs):
        net.train()
        predicted, seen = shown[torch.randperm(len(shown))].tensor_split([len(shown) // 5])
        scores, linked = predict(net, graph_of(links[:, seen], nodes), links[:, predicted])
        adam.zero_grad()
        F.binary_cross_entropy_with_logits(scores, linked).backward()
        adam.step()
        net.eval()
        with torch.no_grad():
            auc = [100 * roc_auc_score(*reversed(predict(net, whole, links[:, part]))) for part in (val, test)]
        if auc[0] > best[0]:
            best = (*auc, kinds_found(net.conv, *whole, causes[shown].repeat(2, 1)))
    return best[1:]


def graph_of(links, nodes):
    """Return the graph of links, and its adjacency matrix, whose rows are the nodes' features."""
    src, dst = torch.cat([links, links.flip(0)], 1)  # in both directions
    x = torch.eye(nodes)
    x[dst, src] = 1
    return dgl.add_self_loop(dgl.graph((src, dst), num_nodes=nodes)), x


def predict(net, seen, links):
    """Return scores of links that the net doesn't see and of as many random pairs, and which of them are links."""
    count = links.shape[1]
    pairs = torch.cat([links, torch.randint(len(seen[1]), (2, count))], 1)
    return net(*seen, pairs), (torch.arange(2 * count) < count).float()


def kinds_found(conv, graph, x, causes):
    if not isinstance(conv, CapsuleConv):
        return float("nan")
    coupling, one = conv(graph, x, get_coupling=True)[1][: len(causes), 0], causes.sum(1) == 1  # a single cause
    return 100 * adjusted_mutual_info_score(causes[one].int().argmax(1), coupling[one].argmax(1))


def spread(numbers):
    numbers = torch.tensor(numbers)
    return f"{numbers.mean():.2f}" + (f" +- {numbers.std():.2f}" if len(numbers) > 1 else "")


def main():
    parser = ArgumentParser(description=__doc__.partition("\n")[0], formatter_class=ArgumentDefaultsHelpFormatter)
    for name, number in (("nodes", 1000), ("epochs", 300), ("seeds", 3)):
        parser.add_argument(f"--{name}", type=int, default=number)
    args = parser.parse_args()
    for name, layer in LAYERS.items():
        scores = [train(layer, args.nodes, args.epochs, seed) for seed in range(args.seeds)]
        auc, kinds = zip(*scores, strict=True)
        print(f"{name:10} AUC {spread(auc)}, kinds {spread(kinds)}", flush=True)


if __name__ == "__main__":
    main()
