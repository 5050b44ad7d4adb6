"""MUTAG and PROTEINS: the class of a whole graph. The same network with five ways to read a graph from its nodes.

Graph isomorphism networks (Xu et al. 2019, https://arxiv.org/abs/1810.00826), whose nodes are averaged, weighed by
attention, or vote for one capsule per class: with equal couplings (uniform), routed as in the 2017 paper (dynamic), or
as ``CapsuleReadout`` does by default (capsules).

Ten folds, as given. Of the nine tenths that aren't tested, a tenth of each class is held out to choose settings and
epoch by. Papers that choose the epoch on the test folds report higher numbers; Errica et al. 2020
(https://arxiv.org/abs/1912.09893) compare such networks without that.

    graphcaps example mutag
    graphcaps example proteins
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Sequence
from functools import partial
from itertools import product
from pathlib import Path
from statistics import fmean

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from graphcaps._dgl import DGLGraph, dgl
from graphcaps.data.graphs.tu import GraphSet
from graphcaps.data.splits import stratified_split
from graphcaps.examples.table import margin, row
from graphcaps.examples.trials import BestEpoch, Fit, accuracy, best_setting, run_jobs
from graphcaps.functional import margin_loss
from graphcaps.nn import CapsuleReadout
from graphcaps.trace import RoutingTrace, watch

layers = dgl.nn.pytorch


class Pooled(nn.Module):
    """Nodes (N, F) to one vector per graph, and that to class scores (B, J)."""

    loss = staticmethod(F.cross_entropy)

    def __init__(self, pool: nn.Module, width: int, num_classes: int):
        super().__init__()
        self.pool, self.linear = pool, nn.Linear(width, num_classes)

    def forward(self, graph: DGLGraph, feat: Tensor) -> Tensor:
        return self.linear(self.pool(graph, feat))


class ClassCapsules(nn.Module):
    """Nodes (N, F) to a capsule per class, whose length is its score: (B, J) below 1."""

    loss = staticmethod(margin_loss)

    def __init__(self, width: int, num_classes: int, routing: str = "spherical"):
        super().__init__()
        self.route = CapsuleReadout(width, 16, num_classes, routing=routing)

    def forward(self, graph: DGLGraph, feat: Tensor) -> Tensor:
        return self.route(graph, feat).norm(dim=-1)


READOUTS: dict[str, Callable[[int, int], Pooled | ClassCapsules]] = {
    # (numbers per node, classes) -> from a batched graph and its nodes to class scores
    "mean": lambda width, classes: Pooled(layers.AvgPooling(), width, classes),
    "attention": lambda width, classes: Pooled(layers.GlobalAttentionPooling(nn.Linear(width, 1)), width, classes),
    "uniform": partial(ClassCapsules, routing="uniform"),
    "dynamic": partial(ClassCapsules, routing="dynamic"),
    "capsules": ClassCapsules,
}

SETTINGS = [{"width": width, "dropout": dropout, "lr": 0.01} for width, dropout in product((16, 32), (0.0, 0.5))]
LAYERS, BATCH, PATIENCE = 4, 64, 40


class GraphNet(nn.Module):
    """Node tags to class scores (B, J): GIN convolutions, and a readout of what all of them have made."""

    def __init__(self, readout: str, num_tags: int, num_classes: int, width: int, dropout: float):
        super().__init__()
        sizes = [num_tags] + [width] * LAYERS
        self.convs = nn.ModuleList(layers.GINConv(_perceptron(i, width), "sum") for i in sizes[:-1])
        self.dropout = nn.Dropout(dropout)
        self.readout = READOUTS[readout](width * LAYERS, num_classes)

    def nodes(self, graph: DGLGraph) -> Tensor:
        """What each layer has made of each node, (N, width * layers)."""
        feat, kept = graph.ndata["feat"], []
        for conv in self.convs:
            feat = conv(graph, feat)
            kept.append(feat)
        return torch.cat(kept, dim=1)

    def forward(self, graph: DGLGraph) -> Tensor:
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


def train(
    data: GraphSet, readout: str, settings: dict, fold: int, seed: int, epochs: int
) -> tuple[GraphNet, BestEpoch]:
    """Train on a fold's training graphs; its validation graphs choose the epoch."""
    torch.manual_seed(seed)
    training, val, _ = split(data, fold, seed)
    labels = torch.from_numpy(data.labels)
    model = GraphNet(readout, data.num_tags, data.num_classes, settings["width"], settings["dropout"])
    loss_of = model.readout.loss
    adam = torch.optim.Adam(model.parameters(), lr=settings["lr"])
    best, held_out = BestEpoch(model, PATIENCE), data.batch(val)
    for epoch in range(1, epochs + 1):
        model.train()
        drawn = torch.from_numpy(training)[torch.randperm(len(training))]
        for part in drawn.tensor_split(round(len(drawn) / BATCH) or 1):
            loss = loss_of(model(data.batch(part.numpy())), labels[part])
            adam.zero_grad()
            loss.backward()
            adam.step()
        model.eval()
        with torch.no_grad():
            scores = model(held_out)
        if not best.update(epoch, scores, labels[val], loss_of(scores, labels[val])):
            break
    return model, best


def fit(data: GraphSet, readout: str, settings: dict, fold: int, seed: int, epochs: int) -> Fit:
    """``train``, and the classes of the test graphs."""
    model, best = train(data, readout, settings, fold, seed, epochs)
    return best.fit(lambda: model(data.batch(data.folds[fold])).argmax(dim=1))


def rows(
    data: GraphSet,
    readouts: Sequence[str],
    seeds: int,
    epochs: int,
    on_share: Callable[[float], None],
    keep: Path | None = None,
    processes: int | None = None,
    most_folds: int = 10,
) -> dict[str, dict]:
    """For each fold choose some readouts' settings on held-out training graphs, and test what was chosen.

    Args:
        data: graphs with folds.
        readouts: keys of ``READOUTS``.
        seeds, epochs, on_share, keep: as in ``run``.
        processes: who makes trainings that aren't kept, see ``run_jobs``.
        most_folds: how many folds, at most.

    Returns:
        of each readout a row, see ``table.row``.
    """
    folds = range(min(most_folds, len(data.folds)))
    keys = [(*key,) for key in product(readouts, range(len(SETTINGS)), folds, range(seeds))]
    jobs = [(readout, SETTINGS[k], fold, seed) for readout, k, fold, seed in keys]
    known = {"graphs": len(data), "nodes": len(data.tags)}
    fits = dict(
        zip(keys, run_jobs(partial(fit, data, epochs=epochs), jobs, on_share, processes, keep, known), strict=True)
    )
    found = {}
    for readout in readouts:
        kept, test, chosen = [], [], []
        for fold in folds:
            by_setting = [[fits[readout, k, fold, seed] for seed in range(seeds)] for k in range(len(SETTINGS))]
            best = best_setting(by_setting)
            labels = torch.from_numpy(data.labels[data.folds[fold]])
            test.append(fmean(accuracy(one, labels) for one in by_setting[best]))
            kept += by_setting[best]
            chosen.append(SETTINGS[best])
        found[readout] = row(readout, kept, test, chosen)
    return found


def run(
    data: GraphSet,
    seeds: int,
    epochs: int,
    quick: bool,
    on_share: Callable[[float], None],
    keep: Path | None = None,
) -> dict:
    """``rows`` of all readouts, and what they say.

    Args:
        data: graphs with folds.
        seeds: trainings of each setting on each fold, 1 or more; each holds out other validation graphs.
        epochs: at most so many.
        quick: a few epochs each, of two folds, in this process: to see that it runs.
        on_share: told how much is done, from 0 to 1.
        keep: folder for trainings that have ended, see ``run_jobs``.

    Returns:
        ``rows``, one per readout; ``margins`` over mean pooling, fold by fold; ``protocol``, in words.
    """
    processes, most_folds = (1, 2) if quick else (None, len(data.folds))
    found = rows(data, [*READOUTS], seeds, 2 if quick else epochs, on_share, keep, processes, most_folds)
    mean = found["mean"]["test"]
    each = f"the mean of {seeds} trainings" if seeds > 1 else "one training"
    return {
        "rows": [*found.values()],
        "margins": {f"{name} over mean": margin(one["test"], mean) for name, one in found.items() if name != "mean"},
        "protocol": f"{len(mean)} folds, {each} each, mean +- standard deviation over folds. Settings: for each fold, "
        f"of {len(SETTINGS)}, the one with the highest accuracy on held-out training graphs. Epoch: the lowest loss on "
        "them.",
    }


def _capsule_readout(model: GraphNet) -> CapsuleReadout:
    assert isinstance(model.readout, ClassCapsules), "only a network with readout 'capsules' routes"
    return model.readout.route


@torch.no_grad()
def routings(model: GraphNet, data: GraphSet, which: Sequence[int], iterations: int) -> list[RoutingTrace]:
    """How the nodes of some graphs are routed to the class capsules, by a network with readout "capsules"."""
    model.eval()
    readout, found = copy.deepcopy(_capsule_readout(model)), []
    trained = readout.capsules.iterations
    for number in which:
        graph, lengths = data.batch([number]), []
        feat = model.nodes(graph)
        for readout.capsules.iterations in range(1, iterations + 1):
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
        found.append(trace.with_bonds(torch.stack(graph.edges(), dim=1).numpy(), graph.ndata["tag"], data.tag_names))
    return found


def worth_drawing(labels: np.ndarray, predicted: np.ndarray) -> list[int]:
    """Which graphs to draw: of each class the first that is answered right, then of each the first answered wrong.

    >>> worth_drawing(np.array([0, 0, 0, 1, 1]), np.array([1, 0, 0, 1, 1]))
    [1, 3, 0]
    """
    right = labels == predicted
    kinds = [(labels == label) & (right == answered) for answered in (True, False) for label in np.unique(labels)]
    return [int(kind.argmax()) for kind in kinds if kind.any()]


def traces(data: GraphSet, settings: dict, epochs: int, iterations: int = 10) -> list[RoutingTrace]:
    """Train on the first fold, and route some of its test graphs for pictures: right and wrong answers, all classes."""
    model, best = train(data, "capsules", settings, 0, 0, epochs)
    best.restore()
    test = data.folds[0]
    with torch.no_grad():
        predicted = model(data.batch(test)).argmax(dim=1).numpy()
    return routings(model, data, test[worth_drawing(data.labels[test], predicted)].tolist(), iterations)
