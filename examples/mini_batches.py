"""Train on a million nodes and ten million edges in mini-batches of sampled neighbours; measure memory. In DGL.

    python mini_batches.py
    python mini_batches.py --nodes 10000 --edges 100000 --epochs 1 --seeds 1

A node's own features hardly show its class. Half of its neighbours belong to the same class, the others to any of the
eight classes. ``CapsuleConv`` is compared with the same layer with equal couplings (uniform), and with ``GATConv``.
Each layer runs in its own process (on Linux). Two peaks of the process's resident memory are printed: one while it
makes the random graph, and one during training, which includes the graph, the features and the libraries. Validation
nodes choose the epoch; accuracies are for test nodes.
"""

import time
from argparse import ArgumentDefaultsHelpFormatter, ArgumentParser
from functools import partial
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from statistics import fmean

import torch
from torch import nn
from torch.nn import functional as F

from graphcaps import dgl
from graphcaps.nn import CapsuleConv

CLASSES, FEATURES, HEADS, WIDTH, FANOUTS = 8, 32, 4, 16, [10, 5]
LAYERS = {
    "GAT": lambda *sizes, **squash: dgl.nn.pytorch.GATConv(*sizes),
    "uniform": partial(CapsuleConv, routing="uniform"),
    "capsules": CapsuleConv,
}


def draw(nodes, edges):
    """Make a random graph, in which every node has an in-edge, and the other edges end at random nodes."""
    y = torch.randint(CLASSES, (nodes,))
    of_class, sizes = y.argsort(stable=True), y.bincount(minlength=CLASSES)
    dst = torch.cat([torch.arange(nodes), torch.randint(nodes, (edges - nodes,))])
    alike = of_class[(sizes.cumsum(0) - sizes)[y[dst]] + (torch.rand(edges) * sizes[y[dst]]).long()]
    src = torch.where(torch.rand(edges) < 0.5, alike, torch.randint(nodes, (edges,)))
    graph = dgl.graph((src, dst), num_nodes=nodes).formats(["csc"])  # the only format that a sampler reads
    return graph, torch.randn(nodes, FEATURES) + 0.5 * F.one_hot(y, FEATURES), y


class Net(nn.Module):
    def __init__(self, layer):
        super().__init__()
        self.first = layer(FEATURES, WIDTH, HEADS)
        self.second = layer(WIDTH * HEADS, CLASSES, 1, squash_output=False)

    def forward(self, blocks, x):
        return self.second(blocks[1], F.elu(self.first(blocks[0], x).flatten(1))).flatten(1)


def right(net, batches, x, y):
    with torch.no_grad():
        return fmean(float((net(b, x[i]).argmax(1) == y[o]).float().mean()) for i, o, b in batches)


def train(layer, nodes, edges, epochs, batch_size, seed):
    torch.manual_seed(seed)
    dgl.seed(seed)
    graph, x, y = draw(nodes, edges)
    tenth, fiftieth = nodes // 10, nodes // 50  # sizes of the training part and of the other two parts
    parts = torch.randperm(nodes)[: tenth + 2 * fiftieth].split([tenth, fiftieth, fiftieth])
    sampler = dgl.dataloading.NeighborSampler(FANOUTS)
    loader = partial(dgl.dataloading.DataLoader, graph, graph_sampler=sampler, batch_size=batch_size, shuffle=True)
    batches, val, test = map(loader, parts)
    net = Net(LAYERS[layer])
    adam = torch.optim.Adam(net.parameters(), lr=0.01)
    drawing, best, seconds = memory(), (0, 0), []
    Path("/proc/self/clear_refs").write_text("5")  # resets the measured peak
    for _ in range(epochs):
        start = time.perf_counter()
        for inputs, outputs, blocks in batches:
            loss = F.cross_entropy(net(blocks, x[inputs]), y[outputs])
            adam.zero_grad()
            loss.backward()
            adam.step()
        seconds.append(time.perf_counter() - start)
        now = right(net, val, x, y), right(net, test, x, y)
        best = now if now[0] > best[0] else best
    return 100 * best[1], min(seconds), drawing, memory()


def memory():  # the peak of resident memory since the last reset, in MB
    return 1.024e-3 * int(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0])


def main():
    parser = ArgumentParser(description=__doc__.partition("\n")[0], formatter_class=ArgumentDefaultsHelpFormatter)
    for name, number in (("nodes", 10**6), ("edges", 10**7), ("epochs", 2), ("batch-size", 1000), ("seeds", 1)):
        parser.add_argument(f"--{name}", type=int, default=number)
    args = parser.parse_args()
    *sizes, seeds = vars(args).values()
    for layer, seed in product(LAYERS, range(seeds)):
        with get_context("spawn").Pool(1) as alone:
            share, took, drawing, training = alone.apply(train, (layer, *sizes, seed))
        peaks = f"at most {training:,.0f} MB, {drawing:,.0f} to draw the graph"
        print(f"{layer:9} {share:.2f} % right, {took:.1f} s an epoch, {peaks}", flush=True)


if __name__ == "__main__":
    main()
