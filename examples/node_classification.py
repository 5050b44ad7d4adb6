"""Classify the papers of Cora by their words and citations, with CapsuleConv in place of GATConv. In DGL.

    python -m examples.node_classification --data data

Four networks of two layers are compared. They differ in the layer: ``GATConv``, and ``CapsuleConv`` with equal
couplings (uniform), with the routing of the capsule paper (dynamic) and with its default routing (capsules). All have
the settings of the GAT paper. The validation papers choose the epoch. If Cora isn't in the folder ``--data``, it is
downloaded. Run this in the checkout, whose ``experiments`` read the data; a copy elsewhere needs data of your own.
"""

from argparse import ArgumentDefaultsHelpFormatter, ArgumentParser
from statistics import fmean, stdev

import torch
from torch import nn
from torch.nn import functional as F

from experiments.data.cora import load_cora
from graphcaps import dgl
from graphcaps.nn import CapsuleConv

HEADS, WIDTH, DROPOUT = 8, 8, 0.6


def attention(inputs, outputs, heads):
    return dgl.nn.pytorch.GATConv(inputs, outputs, heads, DROPOUT, DROPOUT)


def capsules(routing):
    def layer(inputs, outputs, caps):
        drop = {"feat_drop": DROPOUT, "vote_drop": DROPOUT}
        return CapsuleConv(inputs, outputs, caps, squash_output=False, routing=routing, **drop)

    return layer


LAYERS = {
    "GAT": attention,
    "uniform": capsules("uniform"),
    "dynamic": capsules("dynamic"),
    "capsules": capsules("spherical"),
}


class Net(nn.Module):
    def __init__(self, layer, features, classes):
        super().__init__()
        self.first = layer(features, WIDTH, HEADS)
        self.second = layer(HEADS * WIDTH, classes, 1)

    def forward(self, graph, x):
        hidden = F.elu(self.first(graph, x).flatten(1))  # (N, HEADS * WIDTH)
        return self.second(graph, hidden).flatten(1)  # (N, classes)


def train(layer, data, graph, epochs, seed):
    """Return the test accuracy in %, at the last epoch with the best validation accuracy."""
    torch.manual_seed(seed)
    net = Net(layer, data.features.shape[1], data.num_classes)
    adam = torch.optim.Adam(net.parameters(), lr=0.005, weight_decay=5e-4)
    best = (0, 0)
    for _ in range(epochs):
        net.train()
        loss = F.cross_entropy(net(graph, data.features)[data.train], data.labels[data.train])
        adam.zero_grad()
        loss.backward()
        adam.step()
        net.eval()
        with torch.no_grad():
            right = (net(graph, data.features).argmax(1) == data.labels).double()
        val, test = right[data.val].mean().item(), right[data.test].mean().item()
        if val >= best[0]:
            best = (val, test)
    return 100 * best[1]


def main():
    asked = ArgumentParser(description=__doc__.partition("\n")[0], formatter_class=ArgumentDefaultsHelpFormatter)
    asked.add_argument("--data", default="data", help="folder for Cora")
    asked.add_argument("--seeds", type=int, default=5, help="trainings of each network")
    asked.add_argument("--epochs", type=int, default=200, help="epochs of each training")
    given = asked.parse_args()
    data = load_cora(given.data)
    graph = dgl.add_self_loop(data.graph)
    print(f"{'layer':10} test accuracy, % ({given.seeds} seeds, {given.epochs} epochs)")
    for name, layer in LAYERS.items():
        found = [train(layer, data, graph, given.epochs, seed) for seed in range(given.seeds)]
        spread = f" +- {stdev(found):.2f}" if len(found) > 1 else ""
        print(f"{name:10} {fmean(found):.2f}{spread}", flush=True)


if __name__ == "__main__":
    main()
