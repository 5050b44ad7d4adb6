"""Graphs with latent factors or of papers, authors and films: some nodes' classes are known, how many others are found?

All methods get the edges and the classes of the known nodes. ``BeliefConv`` and belief propagation count their rates on
the known nodes; they don't get the generator's. Whatever a method chooses or trains (the strength of label propagation,
one of two settings, the number of epochs), it chooses on a fifth of the known nodes, whose classes are hidden for this.
Then it gets all known classes. Scores are micro-F1 on all nodes that aren't known.

Networks also get the nodes' features, which are rows of the adjacency matrix if there are only factors. In each step, a
share of the known nodes is hidden and predicted from the others (Shi et al. 2021, Masked label prediction, IJCAI).
"""

import copy
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import product
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from experiments import propagation, table
from experiments.data.beliefs import beliefs
from experiments.data.factors import factor_graph
from experiments.data.related import Related
from experiments.data.relations import cora, plain
from experiments.networks import WEIGHT_DECAY
from experiments.run import Place
from experiments.task import Task
from experiments.tasks.relations import DATA as RELATIONS
from experiments.tasks.relations import HECO, NETWORKS
from graphcaps import dgl
from graphcaps.graph import links_of_graph
from graphcaps.nn import BeliefConv

DATA = {name: RELATIONS[name] for name in RELATIONS if "published" in name}
DATA["6 factors, drawn"] = lambda root, seed: factor_graph(seed, 6)
FEATURED: dict[str, Callable[[Path, int], Related]] = {"Cora": cora} | {name: RELATIONS[name] for name in HECO}
PLAIN = ("Citeseer", "email-Eu", "Cornell", "Texas", "Wisconsin", "Chameleon", "Europe", "USA")
DATA |= FEATURED
DATA |= {name: lambda root, seed, name=name: plain(root / "graphs" / f"{name.lower()}.npz", seed) for name in PLAIN}
SHARES = (0.1, 0.3, 0.6)
TRAINED = ("8 factors, published", *FEATURED)
"""The graphs on which networks are trained, for hours. Other methods are tried on all graphs."""
COUNTED = ("BeliefConv", "belief propagation")
HIDE, HIDDEN, EPOCHS = 0.3, 64, 300


@torch.no_grad()
def by_layer(data: Related, labels: Tensor) -> Tensor:
    """Classes (N, K) by ``BeliefConv.from_labels``, untrained."""
    return counted(data, labels)(data.graph, labels).argmax(2)


def counted(data: Related, labels: Tensor) -> BeliefConv:
    """The layer of ``BeliefConv.from_labels``, with a state per class. Nodes without edges are allowed."""
    layer = BeliefConv(None, data.num_classes, labels.shape[1], 16, allow_zero_in_degree=True)
    layer.beliefs.count(links_of_graph(data.graph), labels)
    return layer


def by_propagation(data: Related, labels: Tensor) -> Tensor:
    """Classes (N, K) by belief propagation with counted rates."""
    known, layer = (labels[:, 0] >= 0).nonzero().flatten(), counted(data, labels).beliefs
    p = layer.rates.detach().double() * layer.learned[2] * data.graph.num_edges() / len(labels) ** 2
    p /= (1 / layer.states).sum()
    q = p.mean() * layer.learned[0]
    return beliefs(data, known, (p, q.detach().double())).classes.argmax(2)


def by_edges(name: str, data: Related, labels: Tensor) -> Tensor:
    """Classes (N, K) by a classical method, each column by itself, or with the same options if they are sharpened."""
    method, options = propagation.METHODS[name]

    def classes(columns: Tensor, *option) -> Tensor:
        return propagation.scores(data, columns, name, *option).argmax(1)

    parts = [labels] if method is propagation.sharpened else labels.split(1, dim=1)
    return torch.cat([best_of(part, options, classes) for part in parts], dim=1)


def best_of(labels: Tensor, choices: Sequence[tuple], classes: Callable[..., Tensor]) -> Tensor:
    """``classes(labels, *choice)``. The choice is right most often when a fifth of the labels is hidden."""
    hidden = held_out(labels)
    trial = labels.index_fill(0, hidden, -1)
    right = [(classes(trial, *choice) == labels)[hidden].float().mean() for choice in choices]
    return classes(labels, *choices[int(torch.stack(right).argmax())])


def held_out(labels: Tensor) -> Tensor:
    """Numbers of a fifth of the known nodes, for choices."""
    numbers = (labels[:, 0] >= 0).nonzero().flatten()
    return numbers[torch.randperm(len(numbers), generator=torch.Generator().manual_seed(0))[: len(numbers) // 5]]


class Masked(nn.Module):
    """One or two layers, or a perceptron and APPNP's steps. They get features, and all but the perceptron classes."""

    def __init__(self, network: str, data: Related, sizes: tuple[int, int], depth: int):
        super().__init__()
        parts, classes = sizes
        self.graph, self.features, self.sizes = dgl.add_self_loop(data.graph), data.features, sizes
        self.network, outputs = network, parts * classes
        self.inputs = data.features.shape[1] + outputs * (network != "perceptron")

        def layer(width: int, to: int, heads: int) -> nn.Module:
            plain = network in ("perceptron", "APPNP")
            return nn.Linear(width, to) if plain else NETWORKS[network](width, to // heads, heads)

        first = [layer(self.inputs, HIDDEN, 8)] if depth > 1 else []
        self.layers = nn.ModuleList([*first, layer(HIDDEN if first else self.inputs, outputs, 1)])
        self.steps, self.dropout = dgl.nn.pytorch.APPNPConv(k=10, alpha=0.1), nn.Dropout(0.5)

    def forward(self, labels: Tensor) -> Tensor:
        parts, classes = self.sizes
        x = torch.cat([self.features, propagation.one_hot(labels, classes).flatten(1)], 1)[:, : self.inputs]
        for layer in self.layers:
            x = self.dropout(x if layer is self.layers[0] else F.elu(x))
            x = layer(x) if isinstance(layer, nn.Linear) else layer(self.graph, x).flatten(1)
        x = self.steps(self.graph, x) if self.network == "APPNP" else x
        return x.unflatten(1, (parts, classes)).log_softmax(2)


@torch.no_grad()
def trained(network: str, data: Related, labels: Tensor, depths: Sequence[int] = (1, 2), epochs: int = 0) -> Masked:
    """Train a network of each depth, by default for ``EPOCHS``. Return the one with the lowest validation loss."""
    val, known = held_out(labels), (labels[:, 0] >= 0).nonzero().flatten()
    inputs, train = labels.index_fill(0, val, -1), known[~torch.isin(known, val)]
    lowest, best = float("inf"), None
    for depth in depths:
        model = Masked(network, data, (labels.shape[1], data.num_classes), depth)
        adam = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=WEIGHT_DECAY)
        for _ in range(epochs or EPOCHS):
            model.eval()
            loss = F.nll_loss(model(inputs)[val].transpose(1, 2), labels[val]).item()
            if loss < lowest:
                lowest, best = loss, copy.deepcopy(model)
            model.train()
            hidden = train[torch.rand(len(train)) < HIDE]
            with torch.enable_grad():
                scores = model(inputs.index_fill(0, hidden, -1))[hidden].transpose(1, 2)
                adam.zero_grad()
                F.nll_loss(scores, labels[hidden]).backward()
            adam.step()
    assert best is not None
    return best.eval()


@torch.no_grad()
def correct_and_smooth(data: Related, labels: Tensor, classifier: Callable[..., Tensor] | None = None) -> Tensor:
    """Classes (N, K) by Correct and Smooth of a perceptron, or of a classifier of labels."""
    edges, one = torch.stack(data.graph.edges()), classifier is None and trained("perceptron", data, labels)(labels)

    def classes(labels: Tensor, alpha: float, scale: float) -> Tensor:
        p = (one if classifier is None else classifier(data, labels)).exp()
        return propagation.corrected(p, labels, edges, alpha, scale).argmax(2)

    return best_of(labels, propagation.CORRECTIONS, classes)


METHODS: dict[str, Callable[[Related, Tensor], Tensor]] = {
    "BeliefConv": by_layer,
    "belief propagation": by_propagation,
    **{name: partial(by_edges, name) for name in propagation.METHODS},
}
FITTED: dict[str, Callable[[Related, Tensor], Tensor]] = {
    "Correct and Smooth": correct_and_smooth,
    **{
        name: lambda data, labels, name=name: trained(name, data, labels)(labels).argmax(2)
        for name in ("perceptron", "APPNP", "GCN", "GAT", "SAGE")
    },
}


def fit(place: Place, network: str, settings: dict, seed: int, quick: bool, data: str, share: float) -> dict:
    """Find the classes of the nodes that aren't known. The seed draws the known nodes, and the graph if it is drawn."""
    related = DATA[data](place.data, seed)
    labels = partly_known(related.labels, share, seed)
    torch.manual_seed(seed)
    right = (METHODS | FITTED)[network](related, labels) == related.labels
    return {"test": float(right[labels[:, 0] < 0].double().mean())}


def partly_known(labels: Tensor, share: float, seed: int) -> Tensor:
    """Labels (N, K) of a share of the nodes, which the seed draws; the others' are -1."""
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed))
    return labels.index_fill(0, order[round(share * len(labels)) :], -1)


def methods(data: str) -> list[str]:
    """The names of the methods that are tried on a graph."""
    bare = [name for name in METHODS if name != "belief propagation" or "factors" in data]
    return bare + [*FITTED] * (data in TRAINED)


def cells(rows: Iterable[dict]) -> Iterator[dict[str, object]]:
    for row in rows:
        mean, sd, _ = table.spread(row["test"]).values()
        yield {"graph": row["data"], "known": f"{row['share']:.0%}", row["name"]: table.percent(mean, sd)}


TASK = Task(
    "known",
    fit,
    lambda data, share: dict.fromkeys(methods(data), [{}]),
    cases=[{"data": data, "share": share} for data, share in product(DATA, SHARES)],
    seeds=lambda case, method: 5 if "factors" in case["data"] and method in COUNTED else 3,
    cells=cells,
    index=2,
    score="score",
)
