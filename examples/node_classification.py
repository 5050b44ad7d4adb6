"""Classify the papers of Cora by their words and citations, with CapsuleConv in place of GATConv. In DGL.

    python node_classification.py --data data

Four networks of two layers are compared. They differ in the layer: ``GATConv``, and ``CapsuleConv`` with equal
couplings (uniform), with the routing of the capsule paper (dynamic) and with its default routing (capsules). All have
the settings of the GAT paper. The validation papers choose the epoch. If Cora isn't in the folder ``--data``, DGL
downloads it.
"""

from argparse import ArgumentDefaultsHelpFormatter, ArgumentParser
from functools import partial
from statistics import fmean, stdev

import torch
from torch import nn
from torch.nn import functional as F

from graphcaps import dgl
from graphcaps.nn import CapsuleConv

HEADS, WIDTH, DROPOUT = 8, 8, 0.6
capsules = partial(CapsuleConv, squash_output=False, feat_drop=DROPOUT, vote_drop=DROPOUT)
LAYERS = {
    "GAT": partial(dgl.nn.pytorch.GATConv, feat_drop=DROPOUT, attn_drop=DROPOUT),
    "uniform": partial(capsules, routing="uniform"),
    "dynamic": partial(capsules, routing="dynamic"),
    "capsules": capsules,
}


class Net(nn.Module):
    def __init__(self, layer, features, classes):
        super().__init__()
        self.first = layer(features, WIDTH, HEADS)
        self.second = layer(HEADS * WIDTH, classes, 1)

    def forward(self, graph, x):
        hidden = F.elu(self.first(graph, x).flatten(1))  # (N, HEADS * WIDTH)
        return self.second(graph, hidden).flatten(1)  # (N, classes)


def train(layer, graph, epochs, seed):
    """Return the test accuracy in %, at the last epoch with the best validation accuracy."""
    torch.manual_seed(seed)
    x, label, known = graph.ndata["feat"], graph.ndata["label"], graph.ndata["train_mask"]
    net = Net(layer, x.shape[1], int(label.max()) + 1)
    adam = torch.optim.Adam(net.parameters(), lr=0.005, weight_decay=5e-4)
    best = (0, 0)
    for _ in range(epochs):
        net.train()
        loss = F.cross_entropy(net(graph, x)[known], label[known])
        adam.zero_grad()
        loss.backward()
        adam.step()
        net.eval()
        with torch.no_grad():
            right = (net(graph, x).argmax(1) == label).double()
        val, test = (right[graph.ndata[part]].mean().item() for part in ("val_mask", "test_mask"))
        if val >= best[0]:
            best = (val, test)
    return 100 * best[1]


def main():
    parser = ArgumentParser(description=__doc__.partition("\n")[0], formatter_class=ArgumentDefaultsHelpFormatter)
    parser.add_argument("--data", default="data", help="folder for Cora")
    parser.add_argument("--seeds", type=int, default=5, help="trainings of each network")
    parser.add_argument("--epochs", type=int, default=200, help="epochs of each training")
    args = parser.parse_args()
    graph = dgl.add_self_loop(dgl.data.CoraGraphDataset(args.data, verbose=False)[0])
    print(f"{'layer':10} test accuracy, % ({args.seeds} seeds, {args.epochs} epochs)")
    for name, layer in LAYERS.items():
        accuracies = [train(layer, graph, args.epochs, seed) for seed in range(args.seeds)]
        spread = f" +- {stdev(accuracies):.2f}" if len(accuracies) > 1 else ""
        print(f"{name:10} {fmean(accuracies):.2f}{spread}", flush=True)


if __name__ == "__main__":
    main()
