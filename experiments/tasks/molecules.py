"""MUTAG and PROTEINS: the class of a whole graph. The same network with five ways to read a graph from its nodes.

Graph isomorphism networks (Xu et al. 2019, https://arxiv.org/abs/1810.00826), whose nodes are averaged, weighed by
attention, or vote for one capsule per class: with equal couplings (uniform), routed as in the 2017 paper (dynamic), or
by spherical routing with kappa from 0.5 (capsules).

Ten folds, as given. Of the nine tenths that aren't tested, a tenth of each class is held out to choose settings and
epoch by. Papers that choose the epoch on the test folds report higher numbers; Errica et al. 2020
(https://arxiv.org/abs/1912.09893) compare such networks without that.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Sequence
from itertools import product
from statistics import fmean

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from experiments import run, table
from experiments.data.tu import FOLDS, GraphSet, load_graphs
from experiments.run import Place
from graphcaps import dgl
from graphcaps.data.splits import stratified_split
from graphcaps.functional import margin_loss
from graphcaps.nn import CapsuleReadout
from graphcaps.routing import Routing, Spherical
from graphcaps.trace import RoutingTrace, watch


class Pooled(nn.Module):
    """Nodes (N, F) to one vector per graph, and that to class scores (B, J)."""

    loss = staticmethod(F.cross_entropy)

    def __init__(self, pool: nn.Module, width: int, num_classes: int):
        super().__init__()
        self.pool, self.linear = pool, nn.Linear(width, num_classes)

    def forward(self, graph: dgl.DGLGraph, feat: Tensor) -> Tensor:
        return self.linear(self.pool(graph, feat))


class ClassCapsules(nn.Module):
    """Nodes (N, F) to a capsule per class, whose length is its score: (B, J) below 1."""

    loss = staticmethod(margin_loss)

    def __init__(self, width: int, num_classes: int, routing: Routing | str):
        super().__init__()
        self.route = CapsuleReadout(width, 16, num_classes, routing=routing)

    def forward(self, graph: dgl.DGLGraph, feat: Tensor) -> Tensor:
        return self.route(graph, feat).norm(dim=-1)


def _attention(width: int, classes: int) -> Pooled:
    return Pooled(dgl.nn.pytorch.GlobalAttentionPooling(nn.Linear(width, 1)), width, classes)


Readout = Callable[[int, int], Pooled | ClassCapsules]
READOUTS: dict[str, Readout] = {
    # (numbers per node, classes) to a module that makes class scores of a batched graph and its nodes
    "mean": lambda width, classes: Pooled(dgl.nn.pytorch.AvgPooling(), width, classes),
    "attention": _attention,
    "uniform": lambda width, classes: ClassCapsules(width, classes, "uniform"),
    "dynamic": lambda width, classes: ClassCapsules(width, classes, "dynamic"),
    "capsules": lambda width, classes: ClassCapsules(width, classes, Spherical(concentration=0.5)),
}
SETTINGS = [{"width": width, "dropout": dropout, "lr": 0.01} for width, dropout in product((16, 32), (0.0, 0.5))]
SEEDS, EPOCHS, LAYERS, BATCH, PATIENCE = 1, {"mutag": 100, "proteins": 40}, 4, 64, 40


class GraphNet(nn.Module):
    """Node tags to class scores (B, J): GIN convolutions, and a readout of what all of them have made."""

    def __init__(self, readout: Readout, num_tags: int, num_classes: int, width: int, dropout: float):
        super().__init__()
        sizes = [num_tags] + [width] * LAYERS
        self.convs = nn.ModuleList(dgl.nn.pytorch.GINConv(_perceptron(i, width), "sum") for i in sizes[:-1])
        self.dropout = nn.Dropout(dropout)
        self.readout = readout(width * LAYERS, num_classes)

    def nodes(self, graph: dgl.DGLGraph) -> Tensor:
        """What each layer has made of each node, (N, width * layers)."""
        feat, made = graph.ndata["feat"], []
        for conv in self.convs:
            feat = conv(graph, feat)
            made.append(feat)
        return torch.cat(made, dim=1)

    def forward(self, graph: dgl.DGLGraph) -> Tensor:
        return self.readout(graph, self.dropout(self.nodes(graph)))


def _perceptron(inputs: int, width: int) -> nn.Module:
    hidden = [nn.Linear(inputs, width, bias=False), nn.BatchNorm1d(width), nn.ReLU()]
    return nn.Sequential(*hidden, nn.Linear(width, width, bias=False), nn.BatchNorm1d(width), nn.ReLU())


def split(data: GraphSet, fold: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Numbers of the training, validation and test graphs of a fold; the seed draws the validation tenth."""
    test = data.folds[fold]
    rest = np.setdiff1d(np.arange(len(data)), test)
    train, val = stratified_split(torch.from_numpy(data.labels[rest]), round(len(rest) / 10), seed)
    return rest[train], rest[val], test


def train(data: GraphSet, readout: Readout, settings: dict, fold: int, seed: int, epochs: int) -> tuple[GraphNet, dict]:
    """Train on a fold's training graphs; its validation graphs choose the epoch."""
    torch.manual_seed(seed)
    training, val, test = split(data, fold, seed)
    labels = torch.from_numpy(data.labels)
    model = GraphNet(readout, data.num_tags, data.num_classes, settings["width"], settings["dropout"])
    loss, held_out = model.readout.loss, data.batch(val)

    def losses():
        drawn = torch.from_numpy(training)[torch.randperm(len(training))]
        for part in drawn.tensor_split(round(len(drawn) / BATCH) or 1):
            yield loss(model(data.batch(part.numpy())), labels[part])

    result = run.fit(
        model,
        losses,
        lambda: (model(held_out), labels[val]),
        lambda: model(data.batch(test)),
        lr=settings["lr"],
        epochs=epochs,
        patience=PATIENCE,
        loss=loss,
    )
    return model, result


def fit(place: Place, data: str, network: str, settings: dict, fold: int, seed: int, epochs: int) -> dict:
    """``train``, without the network."""
    return train(load_graphs(data.upper(), place.data), READOUTS[network], settings, fold, seed, epochs)[1]


def rows(
    place: Place, name: str, networks: Sequence[str] = (*READOUTS,), seeds: int = SEEDS, quick: bool = False
) -> dict:
    """For each fold choose each readout's settings on held-out training graphs, and test what was chosen.

    Returns:
        of each readout a row, see ``table.row``.
    """
    folds, common = range(2 if quick else FOLDS), {"data": name, "epochs": 2 if quick else EPOCHS[name]}
    made = {}
    for network in networks:
        keys = [*product(range(len(SETTINGS)), folds, range(seeds))]
        trials = [
            common | {"network": network, "settings": SETTINGS[k], "fold": fold, "seed": seed} for k, fold, seed in keys
        ]
        fits = dict(zip(keys, run.run(fit, trials, place, f"{name}: {network}"), strict=True))
        data, used, test, chosen = load_graphs(name.upper(), place.data), [], [], []
        for fold in folds:
            by_setting = [[fits[k, fold, seed] for seed in range(seeds)] for k in range(len(SETTINGS))]
            best = run.best_setting(by_setting)
            labels = torch.from_numpy(data.labels[data.folds[fold]])
            test.append(fmean(run.accuracy(each, labels) for each in by_setting[best]))
            used += by_setting[best]
            chosen.append(SETTINGS[best])
        made[network] = table.row(network, used, test, chosen)
    return made


def parts(place: Place, name: str, seeds: int | None = None, quick: bool = False) -> list[dict]:
    """``rows`` of all readouts, and what they say. Of MUTAG also mutag/graphs.npz, for ``graphcaps viz``."""
    seeds = seeds or SEEDS
    found = rows(place, name, seeds=seeds, quick=quick)
    if name == "mutag":
        data = load_graphs("MUTAG", place.data)
        for trace in traces(data, found["capsules"]["settings"][0], 2 if quick else EPOCHS[name]):
            trace.save(place.cache / name / f"graph-{trace.about['graph']}.npz")
    mean, each = found["mean"]["test"], f"the mean of {seeds} trainings" if seeds > 1 else "one training"
    protocol = (
        f"{len(mean)} folds, {each} each, mean +- standard deviation over folds. Settings: for each fold, of "
        f"{len(SETTINGS)}, the one with the highest accuracy on held-out training graphs. Epoch: the lowest loss on "
        "them."
    )
    others = {f"{network} over mean": row["test"] for network, row in found.items() if network != "mean"}
    margins = {over: table.margin(test, mean) for over, test in others.items()}
    return [{"rows": [*found.values()], "margins": margins, "protocol": protocol}]


@torch.no_grad()
def routings(model: GraphNet, data: GraphSet, which: Sequence[int], iterations: int) -> list[RoutingTrace]:
    """How the nodes of some graphs are routed to the class capsules, by a network with readout "capsules"."""
    assert isinstance(model.readout, ClassCapsules)
    readout, found = copy.deepcopy(model.readout.route), []
    trained = readout.capsules.routing.iterations
    for number in which:
        graph, lengths = data.batch([number]), []
        feat = model.nodes(graph)
        for readout.capsules.routing.iterations in range(1, iterations + 1):
            with watch(edges=None) as seen:
                lengths.append(readout(graph, feat).norm(dim=-1))
        trace = dataclasses.replace(
            seen["route"],
            lengths=torch.stack(lengths)[None].numpy(),  # the layer's own; routing sees them before scale and bias
            trained_iterations=trained,
            labels=data.labels[[number]],
            class_names=tuple(data.class_names),
            about={"graph": number},
        )
        found.append(trace)
    return found


def traces(data: GraphSet, settings: dict, epochs: int, iterations: int = 10) -> list[RoutingTrace]:
    """Train on the first fold, and route some of its test graphs for pictures: of each class the first with a right
    answer, then the first with a wrong one."""
    model, result = train(data, READOUTS["capsules"], settings, 0, 0, epochs)
    test = data.folds[0]
    labels, right = data.labels[test], np.array(result["predicted"]) == data.labels[test]
    kinds = [(labels == label) & (right == answered) for answered in (True, False) for label in np.unique(labels)]
    which = [int(test[kind.argmax()]) for kind in kinds if kind.any()]
    return routings(model, data, which, iterations)
