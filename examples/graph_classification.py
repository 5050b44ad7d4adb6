"""Classify whole molecules, with CapsuleReadout in place of global_mean_pool. In PyTorch Geometric.

    python -m examples.graph_classification --data data
    python -m examples.graph_classification --data data --molecules PROTEINS

Four readouts of the same GIN are compared: mean pooling, and ``CapsuleReadout`` with equal couplings (uniform), with
the routing of the capsule paper (dynamic) and by default (capsules). Each of the ten folds that come with the data is
tested once; the next fold chooses the epoch, and the others are for training. molecule.png shows a routed molecule.
Missing data is downloaded. Run this in the checkout, whose ``experiments`` read the data; a copy needs your own data.
"""

from argparse import ArgumentDefaultsHelpFormatter, ArgumentParser
from functools import partial
from statistics import fmean, stdev

import networkx
import numpy as np
import torch
from matplotlib import pyplot
from torch import nn
from torch.nn import functional as F
from torch_geometric.data import Data
from torch_geometric.loader import DataLoader
from torch_geometric.nn import GIN, global_mean_pool
from torch_geometric.utils import to_networkx

from experiments.data.tu import load_graphs
from graphcaps import viz, watch
from graphcaps.pyg import CapsuleReadout

WIDTH, DEPTH = 32, 3
capsules = partial(CapsuleReadout, WIDTH, WIDTH // 4, num_caps=4, concat=True)
POOLS = {
    "mean": lambda: global_mean_pool,
    "uniform": partial(capsules, routing="uniform"),
    "dynamic": partial(capsules, routing="dynamic"),
    "capsules": capsules,
}


class Net(nn.Module):
    def __init__(self, pool, tags, classes):
        super().__init__()
        self.gin = GIN(tags, WIDTH, DEPTH, norm="batch_norm", jk="cat")
        self.pool = pool
        self.linear = nn.Linear(WIDTH, classes)

    def forward(self, data):
        x = self.gin(data.x, data.edge_index)  # (nodes of all graphs, WIDTH)
        return self.linear(self.pool(x, data.batch))  # (graphs, classes)


def load(name, folder):
    """Return the graphs for PyG, and the numbers of the graphs in each fold."""
    found = load_graphs(name, folder)
    graphs = []
    for k, label in enumerate(found.labels.tolist()):
        graph = found.batch([k])
        graphs.append(Data(graph.ndata["feat"], torch.stack(graph.edges()), y=torch.tensor([label])))
    return graphs, found.folds


def train(pool, graphs, folds, k, epochs):
    """Return the test accuracy on fold k in %, at the epoch with the lowest validation loss, and the last network."""
    torch.manual_seed(k)
    tested, held = folds[k], folds[(k + 1) % len(folds)]
    others = np.setdiff1d(np.arange(len(graphs)), [*tested, *held])
    batches = DataLoader([graphs[i] for i in others], batch_size=32, shuffle=True)
    val, test = (next(iter(DataLoader([graphs[i] for i in part], batch_size=len(part)))) for part in (held, tested))
    net = Net(pool(), graphs[0].num_features, 2)
    adam = torch.optim.Adam(net.parameters(), lr=0.01)
    lowest = float("inf")
    for _ in range(epochs):
        net.train()
        for batch in batches:
            loss = F.cross_entropy(net(batch), batch.y)
            adam.zero_grad()
            loss.backward()
            adam.step()
        net.eval()
        with torch.no_grad():
            loss, right = F.cross_entropy(net(val), val.y).item(), (net(test).argmax(1) == test.y).double().mean()
        if loss < lowest:
            lowest, found = loss, 100 * right.item()
    return found, net


def draw(net, graph, path):
    """Draw a molecule. An atom has the colour of the capsule it is coupled with most, deeper for larger couplings."""
    with watch(net) as seen, torch.no_grad():
        net(next(iter(DataLoader([graph]))))
    trace, bonds = seen["pool"], to_networkx(graph, to_undirected=True)
    c = np.zeros((trace.num_children, trace.num_parents))
    c[trace.src, trace.dst] = trace.c[0, -1, 0]
    strength = (c.max(1) - 1 / trace.num_parents) / (c.max() - 1 / trace.num_parents + 1e-6)
    colors = [1 - s * (1 - np.array(viz.color(k))) for s, k in zip(strength, c.argmax(1), strict=True)]
    networkx.draw(bonds, networkx.kamada_kawai_layout(bonds), node_color=colors, edgecolors="gray")
    pyplot.savefig(path)


def main():
    asked = ArgumentParser(description=__doc__.partition("\n")[0], formatter_class=ArgumentDefaultsHelpFormatter)
    asked.add_argument("--data", default="data", help="folder for the molecules")
    asked.add_argument("--molecules", choices=("MUTAG", "PROTEINS"), default="MUTAG", help="which molecules")
    asked.add_argument("--folds", type=int, default=10, help="how many of the ten folds are tested")
    asked.add_argument("--epochs", type=int, default=100, help="epochs of each training")
    given = asked.parse_args()
    graphs, folds = load(given.molecules, given.data)
    print(f"{'readout':10} test accuracy, % ({given.folds} folds, {given.epochs} epochs)")
    for name, pool in POOLS.items():
        found, nets = zip(*(train(pool, graphs, folds, k, given.epochs) for k in range(given.folds)), strict=True)
        spread = f" +- {stdev(found):.2f}" if len(found) > 1 else ""
        print(f"{name:10} {fmean(found):.2f}{spread}", flush=True)
    draw(nets[0], graphs[folds[0][0]], "molecule.png")


if __name__ == "__main__":
    main()
