"""MUTAG and PROTEINS: classify whole graphs. The networks differ only in their readout from nodes to the graph.

They are graph isomorphism networks (Xu et al. 2019, https://arxiv.org/abs/1810.00826). Two readouts are means of the
nodes, plain or weighted by attention. In three readouts, nodes vote for one capsule per class: with equal couplings
(uniform), with the routing of the 2017 paper (dynamic), and with spherical routing, whose kappa starts at 0.5
(capsules).

The ten test folds are given. Of the other graphs, a tenth of each class are validation graphs, which choose settings
and epoch. Papers that choose the epoch on the test folds report higher accuracies. Errica et al. 2020
(https://arxiv.org/abs/1912.09893) compare such networks without that choice.
"""

from collections.abc import Callable, Iterator
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
from graphcaps.functional import margin_loss
from graphcaps.images.data.splits import stratified_split
from graphcaps.nn import CapsuleReadout
from graphcaps.routing import Routing, Spherical


class Pooled(nn.Module):
    """Pool nodes (N, F) to one vector per graph, and map it to class scores (B, J)."""

    loss = staticmethod(F.cross_entropy)

    def __init__(self, pool: nn.Module, width: int, num_classes: int):
        super().__init__()
        self.pool, self.linear = pool, nn.Linear(width, num_classes)

    def forward(self, graph: dgl.DGLGraph, feat: Tensor) -> Tensor:
        return self.linear(self.pool(graph, feat))


class ClassCapsules(nn.Module):
    """Route nodes (N, F) to a capsule per class. Its length is the score: (B, J) below 1."""

    loss = staticmethod(margin_loss)

    def __init__(self, width: int, num_classes: int, routing: Routing | str):
        super().__init__()
        self.route = CapsuleReadout(width, 16, num_classes, routing=routing)

    def forward(self, graph: dgl.DGLGraph, feat: Tensor) -> Tensor:
        return self.route(graph, feat).norm(dim=-1)


Readout = Callable[[int, int], Pooled | ClassCapsules]
READOUTS: dict[str, Readout] = {
    # Arguments: numbers per node, number of classes. The module maps a batched graph and its nodes to class scores.
    "mean": lambda width, classes: Pooled(dgl.nn.AvgPooling(), width, classes),
    "attention": lambda width, classes: Pooled(dgl.nn.GlobalAttentionPooling(nn.Linear(width, 1)), width, classes),
    "uniform": lambda width, classes: ClassCapsules(width, classes, "uniform"),
    "dynamic": lambda width, classes: ClassCapsules(width, classes, "dynamic"),
    "capsules": lambda width, classes: ClassCapsules(width, classes, Spherical(concentration=0.5)),
}
SETTINGS = [{"width": width, "dropout": dropout, "lr": 0.01} for width, dropout in product((16, 32), (0.0, 0.5))]
SEEDS, EPOCHS, LAYERS, BATCH, PATIENCE = 1, {"mutag": 100, "proteins": 40}, 4, 64, 40


class GraphNet(nn.Module):
    """Map node tags to class scores (B, J) with GIN convolutions and a readout of all of their outputs."""

    def __init__(self, readout: Readout, num_tags: int, num_classes: int, width: int, dropout: float):
        super().__init__()
        sizes = [num_tags] + [width] * LAYERS
        self.convs = nn.ModuleList(dgl.nn.GINConv(_perceptron(i, width), "sum") for i in sizes[:-1])
        self.dropout = nn.Dropout(dropout)
        self.readout = readout(width * LAYERS, num_classes)

    def forward(self, graph: dgl.DGLGraph) -> Tensor:
        feat, outputs = graph.ndata["feat"], []
        for conv in self.convs:
            feat = conv(graph, feat)
            outputs.append(feat)
        return self.readout(graph, self.dropout(torch.cat(outputs, dim=1)))


def _perceptron(inputs: int, width: int) -> nn.Module:
    hidden = [nn.Linear(inputs, width, bias=False), nn.BatchNorm1d(width), nn.ReLU()]
    return nn.Sequential(*hidden, nn.Linear(width, width, bias=False), nn.BatchNorm1d(width), nn.ReLU())


def split(data: GraphSet, fold: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Numbers of the training, validation and test graphs of a fold. The seed draws the validation graphs."""
    test = data.folds[fold]
    rest = np.setdiff1d(np.arange(len(data)), test)
    train, val = stratified_split(torch.from_numpy(data.labels[rest]), round(len(rest) / 10), seed)
    return rest[train], rest[val], test


def train(data: GraphSet, readout: Readout, settings: dict, fold: int, seed: int, epochs: int) -> dict:
    """Train on a fold's training graphs. The loss on its validation graphs chooses the epoch."""
    torch.manual_seed(seed)
    training, val, test = split(data, fold, seed)
    model = GraphNet(readout, data.num_tags, data.num_classes, settings["width"], settings["dropout"])
    loss, rest = model.readout.loss, {"lr": settings["lr"], "epochs": epochs, "patience": PATIENCE}

    def batch(which: np.ndarray) -> tuple[dgl.DGLGraph, Tensor]:
        return data.batch(which), torch.from_numpy(data.labels[which])

    def answers(part: tuple[dgl.DGLGraph, Tensor]) -> tuple[Tensor, Tensor]:
        return model(part[0]), part[1]

    def losses() -> Iterator[Tensor]:
        drawn = torch.from_numpy(training)[torch.randperm(len(training))]
        for part in drawn.tensor_split(round(len(drawn) / BATCH) or 1):
            yield loss(*answers(batch(part.numpy())))

    return run.fit(model, losses, answers, batch(val), batch(test), loss=loss, **rest)


def fit(place: Place, data: str, network: str, settings: dict, fold: int, seed: int, epochs: int) -> dict:
    """Call ``train`` with the data and the readout of these names."""
    return train(load_graphs(data.upper(), place.data), READOUTS[network], settings, fold, seed, epochs)


def rows(place: Place, name: str, seeds: int = SEEDS, quick: bool = False) -> dict:
    """In each fold, choose each readout's settings on validation graphs, and test them."""
    tried, epochs = dict.fromkeys(READOUTS, SETTINGS), 2 if quick else EPOCHS[name]
    folds = []
    for fold in range(2 if quick else FOLDS):
        common = {"data": name, "fold": fold, "epochs": epochs}
        folds.append(run.choose_and_test(fit, tried, range(seeds), seeds, place, common))
    made = {}
    for network in READOUTS:
        settings, fits = zip(*(fold[network] for fold in folds), strict=True)
        test = [fmean(each["test"] for each in several) for several in fits]
        made[network] = table.row(network, [each for several in fits for each in several], settings, test)
    return made


def parts(place: Place, name: str, seeds: int, quick: bool) -> list[dict]:
    """Make the only part of the result; ``table.graphs`` makes a table of it."""
    made = rows(place, name, seeds=seeds, quick=quick)
    each = f"the mean of {seeds} trainings" if seeds > 1 else "one training"
    protocol = (
        f"{len(made['mean']['test'])} folds, {each} each, mean ± standard deviation over folds. Settings: for each "
        f"fold, of {len(SETTINGS)}, the one with the highest accuracy on held-out training graphs. Epoch: the lowest "
        "loss on them."
    )
    leads = [table.margins(network, {name: made[name] for name in (network, "mean")}) for network in made]
    margins = {over: lead for each in leads for over, lead in each.items()}
    return [{"rows": [*made.values()], "margins": margins, "protocol": protocol}]
