"""The attention of PyG's GAT on Cora: how much papers choose among their neighbours, and whom.

    python attention.py --data data --to attention.png

In GAT, each paper divides itself among its neighbours and itself, by a softmax in each of eight heads.
``graphcaps.watch`` records it at several epochs of training. If Cora isn't in the folder ``--data``, PyG downloads it.
"""

from argparse import ArgumentDefaultsHelpFormatter, ArgumentParser

import numpy as np
import torch
from torch.nn import functional as F
from torch_geometric.datasets import Planetoid
from torch_geometric.nn import GAT
from torch_geometric.transforms import NormalizeFeatures

import graphcaps

HEADS, WIDTH, DROPOUT = 8, 8, 0.6
EPOCHS = (0, 1, 3, 10, 30, 100)
LAYERS = {"convs.0": "head: paper -> paper", "convs.1": "head: paper -> paper"}


def same_class(trace, labels):
    """Return the share of attention that stays in a paper's own class, and the same for equal attention."""
    same = labels[trace.src] == labels[trace.dst]
    equal = 1 / np.bincount(trace.src)[trace.src]
    return [(c * same).sum() / c.sum() for c in (trace.c[-1, -1].mean(axis=0, dtype=float), equal)]


def report(net, data, seen, epoch):
    """Record the attention, and print it with the test accuracy."""
    with seen, torch.no_grad():
        right = (net(data.x, data.edge_index).argmax(1) == data.y)[data.test_mask]
    seen.snapshot(epoch=epoch)
    print(f"epoch {epoch}: {100 * right.double().mean():.1f} % of the test papers are right")
    for layer, trace in seen.traces().items():
        undecided = seen.scalars()[f"{layer}/undecided"]
        own, equal = same_class(trace, data.y.numpy())
        print(f"  {layer}: entropy {undecided:.1%} of equal attention's, own class {own:.1%} (equal: {equal:.1%})")


def main():
    parser = ArgumentParser(description=__doc__.partition("\n")[0], formatter_class=ArgumentDefaultsHelpFormatter)
    parser.add_argument("--data", default="data", help="folder for Cora")
    parser.add_argument("--epochs", type=int, default=100, help="epochs of training")
    parser.add_argument("--to", default="attention.png", help="file for the picture")
    args = parser.parse_args()
    data = Planetoid(args.data, "Cora", transform=NormalizeFeatures())[0]
    torch.manual_seed(0)
    net = GAT(data.num_features, HEADS * WIDTH, 2, int(data.y.max()) + 1, DROPOUT, heads=HEADS)
    adam = torch.optim.Adam(net.parameters(), lr=0.005, weight_decay=5e-4)
    names = {"paper": [f"{n}: class {label}" for n, label in enumerate(data.y.tolist())]}
    seen = graphcaps.watch(net, softmax=LAYERS, names=dict.fromkeys(LAYERS, names))
    for epoch in range(args.epochs + 1):
        if epoch in EPOCHS:
            report(net.eval(), data, seen, epoch)
        net.train()
        loss = F.cross_entropy(net(data.x, data.edge_index)[data.train_mask], data.y[data.train_mask])
        adam.zero_grad()
        loss.backward()
        adam.step()
    print("picture:", seen.graph(args.to, layer="convs.1", over="epochs"))


if __name__ == "__main__":
    main()
