"""Classify papers by both their authors and their terms: CapsuleConv inside HeteroGraphConv. In DGL.

    python heterogeneous.py

The graph is random: each author has one of four fields, each term one of four topics, and a paper's class is field +
topic, modulo 4. Half of a paper's authors are from its field, the others from any field; half of its terms belong to
its topic, the others to any topic. With terms alone, or authors alone, no network can do better than chance, 25 %. Four
networks differ in the layer: ``GATConv``, and ``CapsuleConv`` with equal couplings (uniform), with the routing of the
capsule paper (dynamic) and with its default routing (capsules). The last network is also trained with terms alone.
Validation papers choose the epoch.
"""

from argparse import ArgumentDefaultsHelpFormatter, ArgumentParser
from functools import partial
from statistics import fmean, stdev

import torch
from torch import nn
from torch.nn import functional as F

from graphcaps import dgl
from graphcaps.nn import CapsuleConv

KINDS, LINKS, FEATURES, HEADS, WIDTH, HIDDEN = 4, 8, 16, 4, 8, 64
AUTHORS, TERMS = ("author", "writes", "paper"), ("term", "in", "paper")
GATConv, HeteroGraphConv = dgl.nn.pytorch.GATConv, dgl.nn.pytorch.HeteroGraphConv
capsules = partial(CapsuleConv, (FEATURES, None))  # the papers' own feature, a single number, is not used
LAYERS = {
    "GAT": partial(GATConv, (FEATURES, 1)),
    "uniform": partial(capsules, routing="uniform"),
    "dynamic": partial(capsules, routing="dynamic"),
    "capsules": capsules,
    "capsules, terms alone": capsules,
}


def draw(papers, seed):
    """Return a random graph, the features of its nodes, and the class of each paper."""
    torch.manual_seed(seed)
    edges, x, y = {}, {"paper": torch.zeros(papers, 1)}, torch.zeros(papers, dtype=torch.int64)
    for relation in (AUTHORS, TERMS):
        others = papers // 4
        kind, wanted = torch.arange(others) % KINDS, torch.randint(KINDS, (papers,))
        dst = torch.arange(papers).repeat_interleave(LINKS)
        alike = torch.randint(others // KINDS, dst.shape) * KINDS + wanted[dst]
        src = torch.where(torch.rand(dst.shape) < 0.5, alike, torch.randint(others, dst.shape))
        edges[relation] = (src, dst)
        x[relation[0]] = torch.randn(others, FEATURES) + 2 * F.one_hot(kind, FEATURES)
        y = (y + wanted) % KINDS
    return dgl.heterograph(edges), x, y


class Net(nn.Module):
    def __init__(self, layer, relations):
        super().__init__()
        layers = {relation[1]: layer(WIDTH, HEADS) for relation in relations}
        self.conv = HeteroGraphConv(layers, aggregate="stack")
        sizes = len(layers) * HEADS * WIDTH, HIDDEN
        self.classify = nn.Sequential(nn.Linear(*sizes), nn.ReLU(), nn.Linear(HIDDEN, KINDS))

    def forward(self, graph, x):
        return self.classify(self.conv(graph, x)["paper"].flatten(1))


def train(layer, relations, papers, epochs, seed):
    """Return the test accuracy in %, at the epoch with the lowest validation loss."""
    graph, x, y = draw(papers, seed)
    train, val, test = torch.randperm(papers).tensor_split(3)
    net = Net(layer, relations)
    adam = torch.optim.Adam(net.parameters(), lr=0.01, weight_decay=5e-4)
    lowest = float("inf")
    graph = dgl.edge_type_subgraph(graph, [relation[1] for relation in relations])
    for _ in range(epochs):
        scores = net(graph, x)
        loss = F.cross_entropy(scores[val], y[val]).item()
        if loss < lowest:
            lowest, found = loss, 100 * (scores.argmax(1) == y)[test].double().mean().item()
        adam.zero_grad()
        F.cross_entropy(scores[train], y[train]).backward()
        adam.step()
    return found


def main():
    asked = ArgumentParser(description=__doc__.partition("\n")[0], formatter_class=ArgumentDefaultsHelpFormatter)
    for name, number in (("papers", 3000), ("epochs", 100), ("seeds", 3)):
        asked.add_argument(f"--{name}", type=int, default=number)
    given = asked.parse_args()
    print(f"{'layer':22} test accuracy, % ({given.seeds} graphs)")
    for name, layer in LAYERS.items():
        relations = [TERMS] if "alone" in name else [AUTHORS, TERMS]
        found = [train(layer, relations, given.papers, given.epochs, seed) for seed in range(given.seeds)]
        spread = f" +- {stdev(found):.2f}" if len(found) > 1 else ""
        print(f"{name:22} {fmean(found):.2f}{spread}", flush=True)


if __name__ == "__main__":
    main()
