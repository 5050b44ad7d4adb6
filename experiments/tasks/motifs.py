"""Graphs laid over each other: which of K shapes a graph is made of.

The graphs are those of Yang et al. 2020 (Factorizable graph convolutional networks, NeurIPS), drawn by
``experiments.data.motifs``, a quarter as many. Half of the motifs are in a graph, so that by chance half of the
answers are right. Five networks of as many numbers per node, whose nodes are averaged: GCN, GAT, and ``CapsuleConv``
with uniform couplings, routed as in the 2017 paper (dynamic), or as it does by default (capsules). The last one's
couplings are compared with the motifs that edges belong to, which no network is given.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from experiments import run, table
from experiments.data.motifs import MotifGraphs, motif_graphs
from experiments.run import Place
from experiments.tasks.factors import LAYERS, Layers, information
from graphcaps import dgl

# As many settings for each network.
_OTHERS = [{"layers": layers, "lr": lr} for layers, lr in product((2, 4), (0.01, 0.003))]
_CAPSULES = [{"layers": layers, "lr": 0.01, "concentration": kappa} for layers, kappa in product((2, 4), (1.0, 4.0))]
SETTINGS = {network: _CAPSULES if network == "capsules" else _OTHERS for network in LAYERS if network != "mutual"}
GRAPHS, BATCH, DROPOUT = 5000, 320, 0.1
SEEDS, TRIAL_SEEDS, EPOCHS, PATIENCE = 5, (1000,), 100, 15
NUMBERS = (4, 6)
"""Numbers of motifs; a table for each."""


class Batch(NamedTuple):
    """Some graphs as one, each with its self-loops behind all other edges."""

    graph: dgl.DGLGraph
    feat: Tensor  # (nodes, N)
    labels: Tensor  # (graphs, K), 1 for the motifs that a graph holds
    motifs: Tensor  # (edges without the loops, K), the motifs that an edge belongs to


def batch(data: MotifGraphs, which: np.ndarray) -> Batch:
    graph = data.batch(which)
    looped = dgl.add_self_loop(graph)  # forgets the sizes of the graphs
    looped.set_batch_num_nodes(graph.batch_num_nodes())
    looped.set_batch_num_edges(graph.batch_num_edges() + graph.batch_num_nodes())
    return Batch(looped, graph.ndata["feat"], torch.from_numpy(data.labels[which]).long(), graph.edata["factors"])


class PooledLayers(Layers):
    """Features (N, F) of a batch of graphs to scores (B, 2, K): is each of K motifs in a graph?"""

    def __init__(self, network: str, inputs: int, motifs: int, layers: int, **own):
        super().__init__(network, inputs, 2, motifs, layers, "all", dropout=DROPOUT, **own)

    def forward(self, graph: dgl.DGLGraph, feat: Tensor) -> Tensor:
        return self.scores(dgl.nn.pytorch.AvgPooling()(graph, self.nodes(graph, feat)))


def fit(place: Place, network: str, settings: dict, seed: int, motifs: int, epochs: int) -> dict:
    """Draw the seed's graphs and train one network on its training graphs; the validation graphs choose the epoch."""
    data = motif_graphs(seed, motifs, GRAPHS)
    torch.manual_seed(seed)
    training = [batch(data, part) for part in np.array_split(data.train, -(-len(data.train) // BATCH))]
    val, test, shape = batch(data, data.val), batch(data, data.test), dict(settings)
    lr = shape.pop("lr")
    model = PooledLayers(network, val.feat.shape[1], motifs, **shape)

    def answers(part: Batch) -> tuple[Tensor, Tensor]:
        return model(part.graph, part.feat), part.labels

    def losses() -> Iterator[Tensor]:
        return (F.cross_entropy(*answers(training[k])) for k in torch.randperm(len(training)).tolist())

    result = run.fit(model, losses, answers, val, test, lr=lr, epochs=epochs, patience=PATIENCE)
    if network == "capsules":
        single = (test.motifs.sum(dim=1) == 1).nonzero().flatten()  # edges of one motif alone
        motif = test.motifs[single].int().argmax(dim=1)
        layers = model.couplings(test.graph, test.feat)
        result["information"] = [information(motif, c[single].argmax(dim=1)) for c in layers]
        result["concentration"] = model.concentrations()
    return result


def rows(place: Place, motifs: int, seeds: int = SEEDS, quick: bool = False) -> dict:
    """Choose each network's settings on validation graphs, then train it on ``seeds`` other sets of graphs."""
    common = {"motifs": motifs}
    common["epochs"] = 3 if quick else EPOCHS
    return table.rows(run.choose_and_test(fit, SETTINGS, TRIAL_SEEDS, seeds, place, common))


def parts(place: Place, seeds: int, quick: bool) -> list[dict]:
    """A part of ``table.graphs`` for each number of motifs."""
    made = {motifs: rows(place, motifs, seeds=seeds, quick=quick) for motifs in NUMBERS}
    counted = f"{table.counted(seeds, 'set')} of {GRAPHS:,} graphs"
    protocol = table.protocol(counted, len(_OTHERS), "highest validation score on another set", seeds > 1)
    return [
        {
            "motifs": motifs,
            "rows": [*found.values()],
            "margins": table.margins("capsules", found),
            "protocol": protocol,
        }
        for motifs, found in made.items()
    ]
