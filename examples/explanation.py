"""Why did the network give this answer? Draw the neighbours whose couplings led to it, and test without them.

    python -m examples.explanation --picture explanation.png

The nodes are grouped in four ways, and in each grouping, nodes of the same group are linked more often (Ma et al.
2019). The network reads a node's group in grouping k from its capsule k, so the links that are coupled with capsule k
should be those that matter for this grouping. Test by deletion: how often is a test node's group still right without
the ten links that are coupled most with the capsule, and how often without ten random links? With equal couplings
(uniform), all links look the same. Run this in the checkout, whose ``experiments`` draw the graphs; a copy elsewhere
needs graphs of your own.
"""

import copy
from argparse import ArgumentParser

import torch
from torch import nn
from torch.nn import functional as F

import graphcaps
from experiments.data.factors import factor_graph
from graphcaps import dgl
from graphcaps.nn import CapsuleConv
from graphcaps.routing import Spherical, Uniform

KINDS, WIDTH, DELETED = 4, 16, 10


class Net(nn.Module):
    def __init__(self, inputs, classes, **routing):
        super().__init__()
        self.conv = CapsuleConv(inputs, WIDTH, KINDS, allow_zero_in_degree=True, **routing)
        self.heads = nn.Parameter(torch.randn(KINDS, WIDTH, classes) / WIDTH**0.5)

    def forward(self, graph, x):
        """Return scores (N, classes, KINDS) and couplings (E, KINDS)."""
        parts, coupling = self.conv(graph, F.dropout(x, 0.5, self.training), get_coupling=True)
        return torch.einsum("nkd,kdj->njk", F.elu(parts), self.heads), coupling[:, 0]


def train(data, routing, epochs):
    """Train, and return the network of the epoch with the best validation accuracy."""
    torch.manual_seed(0)
    net = Net(len(data.features), data.num_classes, **routing)
    adam = torch.optim.Adam(net.parameters(), lr=0.01, weight_decay=5e-4)
    best, chosen = 0, net
    for _ in range(epochs):
        net.train()
        adam.zero_grad()
        F.cross_entropy(net(data.graph, data.features)[0][data.train], data.labels[data.train]).backward()
        adam.step()
        net.eval()
        with torch.no_grad():
            right = (net(data.graph, data.features)[0].argmax(1) == data.labels)[data.val].double().mean()
        if right > best:
            best, chosen = right, copy.deepcopy(net)
    return chosen


@torch.no_grad()
def right_without(net, data, deleted, random):
    """Accuracy in % on test nodes, each without its most strongly coupled links, or without random links."""
    found, dst, degrees = [], data.graph.edges()[1], data.graph.in_degrees()
    strength = net(data.graph, data.features)[1]  # (E, KINDS)
    strength = torch.rand_like(strength) if random else strength
    for k in range(KINDS):
        order = strength[:, k].argsort(descending=True)
        order = order[dst[order].argsort(stable=True)]  # sorted by node; a node's strongest link is first
        place = torch.arange(len(dst)) - (degrees.cumsum(0) - degrees)[dst[order]]
        without = dgl.remove_edges(data.graph, order[place < deleted])
        right = net(without, data.features)[0].argmax(1) == data.labels
        found.append(100 * right[data.test, k].double().mean())
    return float(torch.stack(found).mean())


@torch.no_grad()
def draw(net, data, node, path):
    """Draw a node and its neighbours. Each edge has the colour of the capsule that it is coupled with most."""
    with graphcaps.watch(net, edges=None) as seen:
        scores, _ = net(data.graph, data.features)
    for k, (said, label) in enumerate(zip(scores[node].argmax(0).tolist(), data.labels[node].tolist(), strict=True)):
        print(f"node {node}, grouping {k}: group {said} by capsule {k}, is {label}")
    print(seen.graph(path, node=node))


def main():
    asked = ArgumentParser(description=__doc__.partition("\n")[0])
    for name, default in (("--nodes", 1000), ("--epochs", 200), ("--picture", "explanation.png")):
        asked.add_argument(name, type=type(default), default=default)
    given = asked.parse_args()
    data = factor_graph(0, KINDS, nodes=given.nodes)
    capsules = {"routing": Spherical(concentration=4.0), "unit_votes": True}
    routings = {"uniform": {"routing": Uniform()}, "capsules": capsules}
    for name, routing in routings.items():
        net = train(data, routing, given.epochs)
        whole, strongest, others = (right_without(net, data, *how) for how in ((0, 0), (DELETED, 0), (DELETED, 1)))
        print(f"{name:9} {whole:.1f} % right; without the strongest {strongest:.1f}, without random ones {others:.1f}")
    draw(net, data, int(data.test[0]), given.picture)


if __name__ == "__main__":
    main()
