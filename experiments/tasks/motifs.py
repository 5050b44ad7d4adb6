"""Graphs laid over each other: which of K shapes a graph is made of.

The graphs are those of Yang et al. 2020 (Factorizable graph convolutional networks, NeurIPS), drawn by
``graphcaps.data.graphs.motifs``, a quarter as many. Half of the motifs are in a graph, so that by chance half of the
answers are right. Five networks of as many numbers per node, whose nodes are averaged: GCN, GAT, and ``CapsuleConv``
with uniform couplings, routed as in the 2017 paper (dynamic), or as it does by default (capsules). The last one's
couplings are held against the motifs that edges belong to, which no network was told.

    graphcaps example motifs
    graphcaps example motifs --factors 6
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from functools import partial
from itertools import product
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from graphcaps._dgl import DGLGraph, dgl
from graphcaps.data.graphs.motifs import MotifGraphs, motif_graphs
from graphcaps.examples.factors import LAYERS, Layers, information
from graphcaps.examples.table import counted, margins_of, row, spread_of
from graphcaps.examples.trials import BestEpoch, Fit, accuracy, choose_and_test
from graphcaps.nn.routing_parameters import concentrations

_OTHERS = [{"layers": layers, "lr": lr} for layers, lr in product((2, 4), (0.01, 0.003))]
_CAPSULES = [{"layers": layers, "lr": 0.01, "concentration": kappa} for layers, kappa in product((2, 4), (1.0, 4.0))]
SETTINGS = {name: _CAPSULES if name == "capsules" else _OTHERS for name in LAYERS if name != "mutual"}
"""As many for every network."""
TRIALS = 4
GRAPHS, BATCH, DROPOUT = 5000, 320, 0.1
TRIAL_SEEDS, EPOCHS, PATIENCE = (1000,), 100, 15


class Batch(NamedTuple):
    """Some graphs as one, a loop at each node behind all other edges."""

    graph: DGLGraph
    feat: Tensor  # (nodes, N)
    labels: Tensor  # (graphs, K), 1 for the motifs that a graph holds
    motifs: Tensor  # (edges but for the loops, K), those that an edge belongs to


def batch(data: MotifGraphs, which: np.ndarray) -> Batch:
    """These graphs."""
    graph = data.batch(which)
    looped = dgl.add_self_loop(graph)  # forgets what is of which graph
    looped.set_batch_num_nodes(graph.batch_num_nodes())
    looped.set_batch_num_edges(graph.batch_num_edges() + graph.batch_num_nodes())
    return Batch(looped, graph.ndata["feat"], torch.from_numpy(data.labels[which]).long(), graph.edata["factors"])


class Named(Layers):
    """Features (N, F) of a batch of graphs to scores (B, 2, K): is each of K motifs in a graph?"""

    def __init__(self, name: str, inputs: int, motifs: int, layers: int, **own):
        super().__init__(name, inputs, 2, motifs, layers, "all", dropout=DROPOUT, **own)

    def forward(self, graph: DGLGraph, feat: Tensor) -> Tensor:
        return self.scores(dgl.nn.pytorch.AvgPooling()(graph, self.nodes(graph, feat)))


def fit(name: str, settings: dict, seed: int, motifs: int, epochs: int = EPOCHS) -> Fit:
    """Draw the seed's graphs and train one network on its training graphs; the validation graphs choose the epoch."""
    data = motif_graphs(seed, motifs, GRAPHS)
    torch.manual_seed(seed)
    training = [batch(data, part) for part in np.array_split(data.train, -(-len(data.train) // BATCH))]
    val, test = batch(data, data.val), batch(data, data.test)
    model = Named(name, val.feat.shape[1], motifs, **{key: value for key, value in settings.items() if key != "lr"})
    adam = torch.optim.Adam(model.parameters(), lr=settings["lr"])
    best = BestEpoch(model, PATIENCE)
    for epoch in range(1, epochs + 1):
        model.train()
        for k in torch.randperm(len(training)).tolist():
            loss = F.cross_entropy(model(training[k].graph, training[k].feat), training[k].labels)
            adam.zero_grad()
            loss.backward()
            adam.step()
        model.eval()
        with torch.no_grad():
            scores = model(val.graph, val.feat)
        if not best.update(epoch, scores, val.labels, F.cross_entropy(scores, val.labels)):
            break
    found = best.fit(lambda: model(test.graph, test.feat).argmax(dim=1))
    if name != "capsules":
        return found
    alone = (test.motifs.sum(dim=1) == 1).nonzero().flatten()
    motif = test.motifs[alone].int().argmax(dim=1)
    with torch.no_grad():
        told = [information(motif, c[alone].argmax(dim=1)) for c in model.couplings(test.graph, test.feat)]
    return dataclasses.replace(found, beside={"told": told, "concentration": concentrations(model)})


def rows(
    motifs: int,
    names: Sequence[str],
    seeds: int,
    on_share: Callable[[float], None],
    keep: Path | None = None,
    processes: int | None = None,
    epochs: int = EPOCHS,
) -> dict[str, dict]:
    """Choose some networks' settings on validation graphs, then train each on ``seeds`` other sets of graphs.

    Args:
        motifs, seeds, on_share, keep: as in ``run``.
        names: of networks, keys of ``LAYERS``.
        processes: who makes trainings that aren't kept, see ``run_jobs``.
        epochs: at most so many.

    Returns:
        of each name a row, see ``table.row``; that of capsules with ``recovered``, how well each layer's couplings tell
        the motif of an edge, and ``concentration``, kappa of each training's layers.
    """
    train, tried = partial(fit, motifs=motifs, epochs=epochs), {name: SETTINGS[name] for name in names}
    chosen = choose_and_test(train, tried, TRIAL_SEEDS, seeds, on_share, processes, keep)
    sets = [motif_graphs(seed, motifs, GRAPHS) for seed in range(seeds)]
    labels = [torch.from_numpy(data.labels[data.test]).long() for data in sets]
    found = {}
    for name, (settings, fits) in chosen.items():
        right = [accuracy(*pair) for pair in zip(fits, labels, strict=True)]
        found[name] = row(name, fits, right, [settings])
        if name == "capsules":
            layers = enumerate(zip(*(each.beside["told"] for each in fits), strict=True), 1)
            found[name]["recovered"] = {f"layer {n}": spread_of(each) for n, each in layers}
            found[name]["concentration"] = [each.beside["concentration"] for each in fits]
    return found


def run(motifs: int, seeds: int, quick: bool, on_share: Callable[[float], None], keep: Path | None = None) -> dict:
    """``rows`` of all networks, and what they say.

    Args:
        motifs: K, 2 to 6; 4 to 6 in the paper.
        seeds: trainings with the chosen settings, 1 or more, each on graphs of its own.
        quick: a few epochs each, in this process: to see that it runs.
        on_share: told how much is done, from 0 to 1.
        keep: folder for trainings that have ended, see ``run_jobs``.

    Returns:
        ``motifs``; ``rows``, one per network; ``margins`` of capsules over the others; ``protocol``, in words.
    """
    found = rows(motifs, [*SETTINGS], seeds, on_share, keep, *((1, 3) if quick else (None, EPOCHS)))
    of = counted(seeds, "set") + f" of {GRAPHS:,} graphs" + ", mean +- standard deviation" * (seeds > 1)
    return {
        "motifs": motifs,
        "rows": [*found.values()],
        "margins": margins_of("capsules", found),
        "protocol": f"{of}. Settings: of {TRIALS} for each, the one with the highest validation score on another set. "
        "Epoch: the lowest validation loss.",
    }
