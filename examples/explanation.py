"""Why did the network give this answer? Draw the neighbours whose couplings led to it, and test without them.

    python explanation.py --picture explanation.png

The nodes are grouped in four ways, and in each grouping, nodes of the same group are linked more often (Ma et al.
2019). The network reads a node's group in grouping k from its capsule k, so the links that are coupled with capsule k
should be those that matter for this grouping. Test by deletion: how often is a test node's group still right without
the ten links that are coupled most with the capsule, and how often without ten random links? With equal couplings
(uniform), all links look the same.
"""

import copy
from argparse import ArgumentParser

import torch
from torch import nn
from torch.nn import functional as F

import graphcaps
from graphcaps import dgl
from graphcaps.nn import CapsuleConv
from graphcaps.routing import Spherical, Uniform

KINDS, GROUPS, WIDTH, DELETED = 4, 16, 16, 10


def draw(nodes):
    """Group nodes in four ways, and link each to about ten others by each grouping, nearly all of its own group.

    Return the graph, the groups (N, KINDS) and the nodes for training, choosing the epoch and testing.
    """
    torch.manual_seed(0)
    groups = torch.stack([torch.randperm(nodes) % GROUPS for _ in range(KINDS)], 1)
    pairs = torch.triu_indices(nodes, nodes, 1)
    chances = torch.where(groups[pairs[0]] == groups[pairs[1]], 10 * GROUPS / nodes, 3e-5)  # (pairs, KINDS)
    src, dst = pairs[:, (torch.rand(chances.shape) < chances).any(1)]
    graph = dgl.graph((torch.cat([src, dst]), torch.cat([dst, src])), num_nodes=nodes)
    return graph, groups, torch.randperm(nodes).split([nodes - 2 * (nodes // 5), nodes // 5, nodes // 5])


class Net(nn.Module):
    def __init__(self, inputs, **routing):
        super().__init__()
        self.conv = CapsuleConv(inputs, WIDTH, KINDS, allow_zero_in_degree=True, **routing)
        self.heads = nn.Parameter(torch.randn(KINDS, WIDTH, GROUPS) / WIDTH**0.5)

    def forward(self, graph, x):
        """Return scores (N, classes, KINDS) and couplings (E, KINDS)."""
        parts, coupling = self.conv(graph, F.dropout(x, 0.5, self.training), get_coupling=True)
        return torch.einsum("nkd,kdj->njk", F.elu(parts), self.heads), coupling[:, 0]


def train(graph, x, groups, known, val, routing, epochs):
    """Train, and return the network of the epoch with the best validation accuracy."""
    torch.manual_seed(0)
    net = Net(len(x), **routing)
    adam = torch.optim.Adam(net.parameters(), lr=0.01, weight_decay=5e-4)
    best, chosen = 0, net
    for _ in range(epochs):
        net.train()
        adam.zero_grad()
        F.cross_entropy(net(graph, x)[0][known], groups[known]).backward()
        adam.step()
        net.eval()
        with torch.no_grad():
            right = (net(graph, x)[0].argmax(1) == groups)[val].double().mean()
        if right > best:
            best, chosen = right, copy.deepcopy(net)
    return chosen


@torch.no_grad()
def right_without(net, graph, x, groups, test, deleted, random):
    """Accuracy in % on test nodes, each without its most strongly coupled links, or without random links."""
    accuracies, dst, degrees = [], graph.edges()[1], graph.in_degrees()
    strength = net(graph, x)[1]  # (E, KINDS)
    strength = torch.rand_like(strength) if random else strength
    for k in range(KINDS):
        order = strength[:, k].argsort(descending=True)
        order = order[dst[order].argsort(stable=True)]  # sorted by node; a node's strongest link is first
        place = torch.arange(len(dst)) - (degrees.cumsum(0) - degrees)[dst[order]]
        without = dgl.remove_edges(graph, order[place < deleted])
        right = net(without, x)[0].argmax(1) == groups
        accuracies.append(100 * right[test, k].double().mean())
    return float(torch.stack(accuracies).mean())


@torch.no_grad()
def show(net, graph, x, groups, node, path):
    """Draw a node and its neighbours. Each edge has the colour of the capsule that it is coupled with most."""
    with graphcaps.watch(net, edges=None) as seen:
        scores, _ = net(graph, x)
    for k, (answer, group) in enumerate(zip(scores[node].argmax(0).tolist(), groups[node].tolist(), strict=True)):
        print(f"node {node}, grouping {k}: group {answer} by capsule {k}, is {group}")
    print(seen.graph(path, node=node))


def main():
    parser = ArgumentParser(description=__doc__.partition("\n")[0])
    for name, default in (("--nodes", 1000), ("--epochs", 200), ("--picture", "explanation.png")):
        parser.add_argument(name, type=type(default), default=default)
    args = parser.parse_args()
    graph, groups, (known, val, test) = draw(args.nodes)
    x = torch.eye(args.nodes).index_put(graph.edges(), torch.ones(()))  # rows of the adjacency matrix
    capsules = {"routing": Spherical(concentration=4.0), "unit_votes": True}
    routings = {"uniform": {"routing": Uniform()}, "capsules": capsules}
    for name, routing in routings.items():
        net = train(graph, x, groups, known, val, routing, args.epochs)
        deletions = (0, False), (DELETED, False), (DELETED, True)
        whole, strongest, others = (right_without(net, graph, x, groups, test, *deletion) for deletion in deletions)
        print(f"{name:9} {whole:.1f} % right; without the strongest {strongest:.1f}, without random ones {others:.1f}")
    show(net, graph, x, groups, int(test[0]), args.picture)


if __name__ == "__main__":
    main()
