"""Classify whole molecules, with CapsuleReadout in place of global_mean_pool. In PyTorch Geometric.

    python graph_classification.py --data data
    python graph_classification.py --data data --molecules PROTEINS

Four readouts of the same GIN are compared: mean pooling, and ``CapsuleReadout`` with equal couplings (uniform), with
the routing of the capsule paper (dynamic) and by default (capsules). Each of ten random folds is tested once; the next
fold chooses the epoch, and the others are for training. molecule.png shows a routed molecule. If the molecules aren't
in the folder ``--data``, PyG downloads them.
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
from torch_geometric.datasets import TUDataset
from torch_geometric.loader import DataLoader
from torch_geometric.nn import GIN, global_mean_pool
from torch_geometric.utils import to_networkx

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


def train(pool, graphs, folds, k, epochs):
    """Return the test accuracy on fold k in %, at the epoch with the lowest validation loss, and the last network."""
    torch.manual_seed(k)
    tested, held_out = folds[k], folds[(k + 1) % len(folds)]
    others = np.setdiff1d(np.arange(len(graphs)), [*tested, *held_out])
    batches = DataLoader([graphs[i] for i in others], batch_size=32, shuffle=True)
    val, test = (next(iter(DataLoader([graphs[i] for i in part], batch_size=len(part)))) for part in (held_out, tested))
    net = Net(pool(), graphs[0].num_features, 2)
    adam = torch.optim.Adam(net.parameters(), lr=0.01)
    lowest, accuracy = float("inf"), 0.0
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
            lowest, accuracy = loss, 100 * right.item()
    return accuracy, net


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
    parser = ArgumentParser(description=__doc__.partition("\n")[0], formatter_class=ArgumentDefaultsHelpFormatter)
    parser.add_argument("--data", default="data", help="folder for the molecules")
    parser.add_argument("--molecules", choices=("MUTAG", "PROTEINS"), default="MUTAG", help="which molecules")
    parser.add_argument("--folds", type=int, default=10, help="how many of the ten folds are tested")
    parser.add_argument("--epochs", type=int, default=100, help="epochs of each training")
    args = parser.parse_args()
    graphs = [*TUDataset(args.data, args.molecules)]
    folds = np.array_split(np.random.RandomState(0).permutation(len(graphs)), 10)
    print(f"{'readout':10} test accuracy, % ({args.folds} folds, {args.epochs} epochs)")
    for name, pool in POOLS.items():
        accuracies, nets = zip(*(train(pool, graphs, folds, k, args.epochs) for k in range(args.folds)), strict=True)
        spread = f" +- {stdev(accuracies):.2f}" if len(accuracies) > 1 else ""
        print(f"{name:10} {fmean(accuracies):.2f}{spread}", flush=True)
    draw(nets[0], graphs[folds[0][0]], "molecule.png")


if __name__ == "__main__":
    main()
