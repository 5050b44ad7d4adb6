"""The attention of PyG's GAT on Cora: how much papers choose among their neighbours, and whom.

    python -m examples.attention --data data --to attention.png

In GAT, each paper divides itself among its neighbours and itself, by a softmax in each of eight heads.
``graphcaps.watch`` records it at several epochs of training. If Cora isn't in the folder ``--data``, it is downloaded.
Run this in the checkout, whose ``experiments`` read the data.
"""

from argparse import ArgumentDefaultsHelpFormatter, ArgumentParser

import numpy as np
import torch
from torch.nn import functional as F
from torch_geometric.nn import GAT

import graphcaps
from experiments.data.cora import load_cora

HEADS, WIDTH, DROPOUT = 8, 8, 0.6
EPOCHS = (0, 1, 3, 10, 30, 100)
LAYERS = {"convs.0": "head: paper -> paper", "convs.1": "head: paper -> paper"}


def same_class(trace, labels):
    """Return the share of attention that stays in a paper's own class, and the same for equal attention."""
    same = labels[trace.src] == labels[trace.dst]
    equal = 1 / np.bincount(trace.src)[trace.src]
    return [(c * same).sum() / c.sum() for c in (trace.c[-1, -1].mean(axis=0, dtype=float), equal)]


def report(net, data, edge_index, seen, epoch):
    """Record the attention, and print it with the test accuracy."""
    with seen, torch.no_grad():
        right = (net(data.features, edge_index).argmax(1) == data.labels)[data.test]
    seen.snapshot(epoch=epoch)
    print(f"epoch {epoch}: {100 * right.double().mean():.1f} % of the test papers are right")
    for layer, trace in seen.traces().items():
        undecided = seen.scalars()[f"{layer}/undecided"]
        own, equal = same_class(trace, data.labels.numpy())
        print(f"  {layer}: entropy {undecided:.1%} of equal attention's, own class {own:.1%} (equal: {equal:.1%})")


def main():
    asked = ArgumentParser(description=__doc__.partition("\n")[0], formatter_class=ArgumentDefaultsHelpFormatter)
    asked.add_argument("--data", default="data", help="folder for Cora")
    asked.add_argument("--epochs", type=int, default=100, help="epochs of training")
    asked.add_argument("--to", default="attention.png", help="file for the picture")
    given = asked.parse_args()
    data = load_cora(given.data)
    edge_index = torch.stack(data.graph.edges())
    torch.manual_seed(0)
    net = GAT(data.features.shape[1], HEADS * WIDTH, 2, data.num_classes, DROPOUT, heads=HEADS)
    adam = torch.optim.Adam(net.parameters(), lr=0.005, weight_decay=5e-4)
    names = {"paper": [f"{n}: class {label}" for n, label in enumerate(data.labels.tolist())]}
    seen = graphcaps.watch(net, softmax=LAYERS, names=dict.fromkeys(LAYERS, names))
    for epoch in range(given.epochs + 1):
        if epoch in EPOCHS:
            report(net.eval(), data, edge_index, seen, epoch)
        net.train()
        loss = F.cross_entropy(net(data.features, edge_index)[data.train], data.labels[data.train])
        adam.zero_grad()
        loss.backward()
        adam.step()
    print("picture:", seen.graph(given.to, layer="convs.1", over="epochs"))


if __name__ == "__main__":
    main()
