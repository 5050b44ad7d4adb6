"""Predict what users will buy, in a graph with three kinds of edges and users without features. In DGL.

    python heterogeneous.py

The graph is random: users and items have two properties with eight values each. A user buys items, and follows users,
that have the same value of one property, at random which. Items have noisy features of their properties. Users have
none, so each has an embedding, whose gradient is sparse. Four networks: embeddings alone (no messages), ``GATConv``,
and ``CapsuleConv`` with equal couplings (uniform) and with routing (capsules), all in DGL's ``HeteroGraphConv``.

Nothing leaks: a purchase that the network is asked for is not in the graph that it sees, in neither direction. Wrong
pairs are drawn in training among those that are not training purchases, and for scores among those that are none at
all. AUC is the share of held-out purchases with a higher score than a wrong pair of the same user. A tenth of the
purchases chooses the epoch, and another tenth is the test.
"""

from argparse import ArgumentDefaultsHelpFormatter, ArgumentParser
from functools import partial
from statistics import fmean, stdev

import torch
from torch import nn
from torch.nn import functional as F

from graphcaps import dgl
from graphcaps.nn import CapsuleConv
from graphcaps.routing import Spherical

PROPERTIES, VALUES, BUYS, FOLLOWS, WIDTH, BATCH, FANOUT = 2, 8, 20, 10, 16, 500, 10
SIZES = {"user": PROPERTIES * WIDTH, "item": PROPERTIES * VALUES}  # numbers per embedding, and features
RELATIONS = ("user", "buys", "item"), ("item", "bought by", "user"), ("user", "follows", "user")
capsules = partial(CapsuleConv, squash_output=False, residual=True)
LAYERS = {
    "no messages": None,
    "GAT": partial(dgl.nn.pytorch.GATConv, residual=True),
    "uniform": partial(capsules, routing="uniform"),
    "capsules": partial(capsules, routing=Spherical(concentration=4.0)),
}


def draw(users, seed):
    """Return purchases (2, E) in random order, who follows whom (2, E'), and the features of the items."""
    torch.manual_seed(seed)
    values = {kind: torch.randint(VALUES, (n, PROPERTIES)) for kind, n in (("user", users), ("item", users // 2))}
    who = torch.arange(users)

    def chosen(kind, count):
        source, cause = who.repeat_interleave(count), torch.randint(PROPERTIES, (users * count,))
        alike = values["user"][source, cause, None] == values[kind].T[cause]  # (edges, nodes of this kind)
        edges = torch.stack([source, torch.multinomial(alike.float(), 1)[:, 0]]).unique(dim=1)
        return edges[:, torch.randperm(edges.shape[1])]

    x = 2 * F.one_hot(values["item"], VALUES).flatten(1) + torch.randn(users // 2, SIZES["item"])
    return chosen("item", BUYS), chosen("user", FOLLOWS), x


def wrong(users, items, bought):
    """Draw an item for each of these users, none of which the user bought."""
    known, drawn = bought[0] * items + bought[1], torch.randint(items, users.shape)
    while (again := torch.isin(users * items + drawn, known)).any():
        drawn = torch.where(again, torch.randint(items, users.shape), drawn)
    return drawn


class Net(nn.Module):
    def __init__(self, layer, users, x):
        super().__init__()
        sizes = {"user": users, "item": len(x)} if layer is None else {"user": users}
        self.own = nn.ModuleDict({kind: nn.Embedding(n, SIZES["user"], sparse=True) for kind, n in sizes.items()})
        for table in self.own.values():
            nn.init.normal_(table.weight, std=0.1)
        self.sharpness, self.x = nn.Parameter(torch.tensor(5.0)), x
        if layer is None:
            self.conv, self.read = None, nn.Linear(SIZES["item"], SIZES["user"])
        else:
            layers = {name: layer((SIZES[src], SIZES[dst]), WIDTH, PROPERTIES) for src, name, dst in RELATIONS}
            self.conv = dgl.nn.pytorch.HeteroGraphConv(layers, aggregate="sum")

    def forward(self, graph, nodes, *pairs):
        """Score pairs of a user and an item, which are numbers of the graph's destination nodes; ``nodes`` are all."""
        h = {"user": self.own["user"](nodes["user"]), "item": self.x[nodes["item"]]}
        if self.conv is None:
            h["item"] = self.read(h["item"]) + self.own["item"](nodes["item"])
        h = h if self.conv is None else self.conv(graph, h)
        h = {kind: F.normalize(out.view(-1, PROPERTIES, WIDTH), dim=-1) for kind, out in h.items()}
        return [(self.sharpness * (h["user"][u] * h["item"][v]).sum(-1)).logsumexp(-1) for u, v in pairs]


def train(layer, users, epochs, seed):
    """Return the test AUC in %, at the epoch with the best validation AUC."""
    bought, follows, x = draw(users, seed)
    tenth, everyone = bought.shape[1] // 10, {"user": torch.arange(users), "item": torch.arange(len(x))}
    shown, val, test = bought.split([bought.shape[1] - 2 * tenth, tenth, tenth], dim=1)
    held_out = [(part, torch.stack([part[0], wrong(part[0], len(x), bought)])) for part in (val, test)]
    edges = zip(RELATIONS, map(tuple, (shown, shown.flip(0), follows)), strict=True)  # both directions of a purchase
    graph = dgl.heterograph(dict(edges), {"user": users, "item": len(x)})

    def negatives(graph, edges):
        source, _ = graph.find_edges(edges[RELATIONS[0]], etype="buys")
        return {RELATIONS[0]: (source, wrong(source, len(x), shown))}

    sampler = dgl.dataloading.as_edge_prediction_sampler(
        dgl.dataloading.NeighborSampler([FANOUT]),
        exclude="reverse_types",  # with "self", the other direction of an edge would tell that it is there
        reverse_etypes={"buys": "bought by", "bought by": "buys"},
        negative_sampler=negatives,
    )
    purchases = {"buys": torch.arange(shown.shape[1])}
    batches = dgl.dataloading.DataLoader(graph, purchases, sampler, batch_size=BATCH, shuffle=True)
    net, best = Net(layer, users, x), (0, 0)
    dense = [weight for name, weight in net.named_parameters() if not name.startswith("own.")]
    adams = torch.optim.SparseAdam(net.own.parameters(), lr=0.02), torch.optim.Adam(dense, lr=0.01)
    for _ in range(epochs):
        for nodes, true, false, (block,) in batches:
            right, others = net(block, nodes, *(pairs.edges(etype="buys") for pairs in (true, false)))
            net.zero_grad()
            (-F.logsigmoid(right - others).mean()).backward()
            for adam in adams:
                adam.step()
        with torch.no_grad():
            scores = [net(graph, everyone, *pairs) for pairs in held_out]
        best = max(best, tuple(100 * float((right > others).float().mean()) for right, others in scores))
    return best[1]


def main():
    parser = ArgumentParser(description=__doc__.partition("\n")[0], formatter_class=ArgumentDefaultsHelpFormatter)
    for name, number in (("users", 1000), ("epochs", 10), ("seeds", 1)):
        parser.add_argument(f"--{name}", type=int, default=number)
    args = parser.parse_args()
    for name, layer in LAYERS.items():
        aucs = [train(layer, args.users, args.epochs, seed) for seed in range(args.seeds)]
        spread = f" +- {stdev(aucs):.1f}" if len(aucs) > 1 else ""
        print(f"{name:12} AUC {fmean(aucs):.1f}{spread}", flush=True)


if __name__ == "__main__":
    main()
