"""Zachary's karate club on a page: remove a friendship, and see to which capsules the other friendships move.

    python karate_club.py --page karate.html

The network learns to sort the members into the club's four groups, as found by Louvain's method. In training it sees
the groups of half of the members. The score of each group is computed from a capsule of its own. A member's features
are its entries in four eigenvectors of the graph's Laplacian. For comparison, the same network is trained with equal
couplings (uniform).
"""

from argparse import ArgumentDefaultsHelpFormatter, ArgumentParser
from statistics import fmean, stdev

import networkx as nx
import torch
from torch import nn
from torch.nn import functional as F

import graphcaps
from graphcaps.nn import CapsuleConv
from graphcaps.routing import Spherical, Uniform

FEATURES, GROUPS, WIDTH = 4, 4, 8
ROUTINGS = {"uniform": Uniform, "capsules": lambda: Spherical(concentration=4.0)}


class Net(nn.Module):
    def __init__(self, routing):
        super().__init__()
        self.conv = CapsuleConv(FEATURES, WIDTH, GROUPS, routing)
        self.heads = nn.Parameter(torch.randn(GROUPS, WIDTH) / WIDTH**0.5)

    def forward(self, graph, x):
        return (self.conv(graph, x) * self.heads).sum(-1)  # (N, GROUPS)


def club():
    """Return the graph, the members' features (34, FEATURES) and their groups (34,)."""
    friends = nx.Graph(nx.karate_club_graph().edges)
    group = torch.zeros(len(friends), dtype=torch.long)
    for k, members in enumerate(nx.community.louvain_communities(friends, seed=1)):
        group[list(members)] = k
    laplacian = nx.normalized_laplacian_matrix(friends, range(len(friends)))
    x = torch.linalg.eigh(torch.tensor(laplacian.toarray()))[1][:, 1 : FEATURES + 1].float()
    return graphcaps.read_graph(friends, order="sorted").dgl, x / x.std(0), group


def train(routing, epochs, seed):
    """Return a network, and its accuracy in % on members whose groups it hasn't seen."""
    graph, x, group = club()
    torch.manual_seed(seed)
    known = torch.rand(len(group)).argsort() < len(group) // 2
    net = Net(routing)
    adam = torch.optim.Adam(net.parameters(), lr=0.01, weight_decay=5e-4)
    for _ in range(epochs):
        adam.zero_grad()
        F.cross_entropy(net(graph, x)[known], group[known]).backward()
        adam.step()
    with torch.no_grad():
        right = net(graph, x).argmax(1) == group
    return net, 100 * right[~known].double().mean().item()


def main():
    parser = ArgumentParser(description=__doc__.partition("\n")[0], formatter_class=ArgumentDefaultsHelpFormatter)
    parser.add_argument("--page", default="karate.html", help="the file to write")
    parser.add_argument("--seeds", type=int, default=10, help="trainings of each network")
    parser.add_argument("--epochs", type=int, default=300, help="epochs of each training")
    args = parser.parse_args()
    nets = {}
    print(f"{'layer':10} members of unknown groups, % right ({args.seeds} seeds, {args.epochs} epochs)")
    for name, routing in ROUTINGS.items():
        trained, accuracies = zip(*(train(routing(), args.epochs, seed) for seed in range(args.seeds)), strict=True)
        nets[name] = trained[0]
        spread = f" +- {stdev(accuracies):.1f}" if len(accuracies) > 1 else ""
        print(f"{name:10} {fmean(accuracies):.1f}{spread}", flush=True)
    graph, x, group = club()
    labels = [f"group {k + 1}" for k in group.tolist()]
    print("page:", graphcaps.explore_graph(nets["capsules"].conv, graph, x, args.page, labels=labels))


if __name__ == "__main__":
    main()
