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
from functools import partial
from itertools import product

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from experiments import run
from experiments.data.tu import FOLDS, GraphSet, load_graphs
from experiments.run import Place
from experiments.task import Task
from graphcaps import dgl
from graphcaps.functional import margin_loss
from graphcaps.images.data.splits import stratified_split
from graphcaps.nn import CapsuleReadout
from graphcaps.routing import Routing, Spherical

OVERLAP = 1 / 9
"""For ten folds: number of test graphs / number of other graphs."""


class Pooled(nn.Module):
    """Pool nodes (N, F) to one vector per graph, and map it to class scores (B, J)."""

    loss = staticmethod(F.cross_entropy)

    def __init__(self, pool: nn.Module, width: int, num_classes: int):
        super().__init__()
        self.pool, self.linear = pool, nn.Linear(width, num_classes)

    def forward(self, graph: dgl.DGLGraph, feat: Tensor) -> Tensor:
        return self.linear(self.pool(graph, feat))


class ClassCapsules(CapsuleReadout):
    """Route nodes (N, F) to a capsule per class. Its length is the score: (B, J) below 1."""

    loss = staticmethod(margin_loss)

    def __init__(self, routing: Routing | str, width: int, num_classes: int):
        super().__init__(width, 16, num_classes, routing=routing)

    def forward(self, graph: dgl.DGLGraph, feat: Tensor) -> Tensor:
        return super().forward(graph, feat).norm(dim=-1)


Readout = Callable[[int, int], Pooled | ClassCapsules]
READOUTS: dict[str, Readout] = {
    # Arguments: numbers per node, number of classes. The module maps a batched graph and its nodes to class scores.
    "mean": lambda width, classes: Pooled(dgl.nn.AvgPooling(), width, classes),
    "attention": lambda width, classes: Pooled(dgl.nn.GlobalAttentionPooling(nn.Linear(width, 1)), width, classes),
    "uniform": partial(ClassCapsules, "uniform"),
    "dynamic": partial(ClassCapsules, "dynamic"),
    "capsules": lambda *sizes: ClassCapsules(Spherical(concentration=0.5), *sizes),
}
SETTINGS = [{"width": width, "dropout": dropout, "lr": 0.01} for width, dropout in product((16, 32), (0.0, 0.5))]
EPOCHS, LAYERS, BATCH, PATIENCE = {"mutag": 100, "proteins": 40}, 4, 64, 40


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


def split(data: GraphSet, fold: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Numbers of the training, validation and test graphs of a fold."""
    test = data.folds[fold]
    rest = np.setdiff1d(np.arange(len(data.graphs)), test)
    train, val = stratified_split(torch.from_numpy(data.labels[rest]), round(len(rest) / 10), 0)
    return rest[train], rest[val], test


def train(data: GraphSet, readout: Readout, settings: dict, fold: int, epochs: int) -> dict:
    """Train on a fold's training graphs. The loss on its validation graphs chooses the epoch."""
    torch.manual_seed(0)
    training, val, test = split(data, fold)
    sizes = data.graphs[0].ndata["feat"].shape[1], int(data.labels.max()) + 1, settings["width"], settings["dropout"]
    model = GraphNet(readout, *sizes)
    loss, rates = model.readout.loss, {"lr": settings["lr"], "epochs": epochs, "patience": PATIENCE}

    def batch(which: np.ndarray) -> tuple[dgl.DGLGraph, Tensor]:
        return dgl.batch([data.graphs[n] for n in which]), torch.from_numpy(data.labels[which])

    def answers(part: tuple[dgl.DGLGraph, Tensor]) -> tuple[Tensor, Tensor]:
        return model(part[0]), part[1]

    def losses() -> Iterator[Tensor]:
        drawn = torch.from_numpy(training)[torch.randperm(len(training))]
        for part in drawn.tensor_split(round(len(drawn) / BATCH) or 1):
            yield loss(*answers(batch(part.numpy())))

    return run.fit(model, losses, answers, batch(val), batch(test), loss=loss, **rates)


def fit(place: Place, network: str, settings: dict, seed: int, quick: bool, data: str) -> dict:
    """Call ``train`` with the data and the readout of these names. The seed is the fold's number."""
    epochs = 2 if quick else EPOCHS[data]
    return train(load_graphs(data.upper(), place.data), READOUTS[network], settings, seed, epochs)


# In each fold, each readout's settings are chosen on validation graphs.
TASKS = {
    name: Task(
        name,
        fit,
        lambda data: dict.fromkeys(READOUTS, SETTINGS),
        cases=({"data": name},),
        seeds=lambda case, network: FOLDS,
        trial_seeds=(),
    )
    for name in ("mutag", "proteins")
}
