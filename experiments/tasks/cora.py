"""Cora: the class of a paper, from its words and from who cites whom. Networks of two layers that differ in the layer.

``CapsuleConv`` is there three times: its couplings stay equal (uniform), follow the 2017 paper (dynamic), or are as
sure as training wants them (capsules, the layer's default). GCN (Kipf & Welling 2017,
https://arxiv.org/abs/1609.02907) and GAT (Velickovic et al. 2018, https://arxiv.org/abs/1710.10903) are DGL's own
layers, with their papers' settings among those that are tried.

    graphcaps example cora
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from graphcaps._dgl import DGLGraph, dgl
from graphcaps.data.graphs.cora import Citation
from graphcaps.examples.table import counted, margins_of, row
from graphcaps.examples.trials import BestEpoch, Fit, accuracy, choose_and_test
from graphcaps.nn import CapsuleConv

GraphConv, GATConv = dgl.nn.pytorch.GraphConv, dgl.nn.pytorch.GATConv


def capsule_layer(inputs: int, outputs: int, heads: int, drop: float, routing: str) -> CapsuleConv:
    """Routing between papers: ``inputs`` numbers to ``heads`` capsules of ``outputs`` numbers."""
    return CapsuleConv(inputs, outputs, heads, vote_drop=drop, squash_output=False, routing=routing)


LAYERS: dict[
    str, Callable[[int, int, int, float], nn.Module]
] = {  # from (numbers of a node, numbers of each head, heads, dropout of what neighbours say) to a layer
    "GCN": lambda inputs, outputs, heads, drop: GraphConv(inputs, outputs * heads),
    "GAT": lambda inputs, outputs, heads, drop: GATConv(inputs, outputs, heads, attn_drop=drop),
    "uniform": partial(capsule_layer, routing="uniform"),
    "dynamic": partial(capsule_layer, routing="dynamic"),
    "capsules": partial(capsule_layer, routing="spherical"),
}

_HEADS = [
    {"width": 8, "heads": 8, "dropout": 0.6, "lr": lr, "weight_decay": decay}
    for lr, decay in [(0.005, 5e-4), (0.005, 1e-3), (0.01, 5e-4), (0.01, 1e-3)]
]
SETTINGS = {
    "GCN": [
        {"width": width, "heads": 1, "dropout": dropout, "lr": 0.01, "weight_decay": 5e-4}
        for width, dropout in [(16, 0.5), (16, 0.8), (64, 0.5), (64, 0.8)]
    ],
    "GAT": _HEADS,
    "uniform": _HEADS,
    "dynamic": _HEADS,
    "capsules": _HEADS,
}
"""GCN's and GAT's first are their papers'."""
TRIALS, TRIAL_SEEDS = 4, range(1000, 1003)
EPOCHS, PATIENCE = 500, 50


class WordDropout(nn.Module):
    """Dropout on the entries of a sparse matrix (N, F) that aren't zero: the same as on all of them, and less work."""

    def __init__(self, words: Tensor, dropout: float):
        super().__init__()
        self.words, self.dropout = words.to_sparse_coo().coalesce(), nn.Dropout(dropout)

    def forward(self) -> Tensor:
        values = self.dropout(self.words.values())
        return torch.sparse_coo_tensor(self.words.indices(), values, self.words.shape, check_invariants=False)


class TwoLayers(nn.Module):
    """Words (N, F) to class scores (N, J), through two layers of a kind."""

    def __init__(self, name: str, words: Tensor, num_classes: int, width: int, heads: int, dropout: float):
        super().__init__()
        layer = LAYERS[name]
        self.words = WordDropout(words, dropout)
        self.first = layer(words.shape[1], width, heads, dropout)
        self.dropout = nn.Dropout(dropout)
        self.second = layer(width * heads, num_classes, 1, dropout)

    def forward(self, graph: DGLGraph) -> Tensor:
        hidden = F.elu(self.first(graph, self.words()).flatten(1))
        return self.second(graph, self.dropout(hidden)).flatten(1)


def fit(data: Citation, name: str, settings: dict, seed: int, epochs: int = EPOCHS) -> Fit:
    """Train one network on the training labels; the validation labels choose the epoch."""
    torch.manual_seed(seed)
    graph = dgl.add_self_loop(data.graph)
    shape = {key: settings[key] for key in ("width", "heads", "dropout")}
    model = TwoLayers(name, data.features, data.num_classes, **shape)
    adam = torch.optim.Adam(model.parameters(), lr=settings["lr"], weight_decay=settings["weight_decay"])
    best = BestEpoch(model, PATIENCE)
    for epoch in range(1, epochs + 1):
        model.train()
        loss = F.cross_entropy(model(graph)[data.train], data.labels[data.train])
        adam.zero_grad()
        loss.backward()
        adam.step()
        model.eval()
        with torch.no_grad():
            scores, labels = model(graph)[data.val], data.labels[data.val]
        if not best.update(epoch, scores, labels, F.cross_entropy(scores, labels)):
            break
    found = best.fit(lambda: model(graph)[data.test].argmax(dim=1))
    if name != "capsules":
        return found
    with torch.no_grad():
        _, c = model.first(graph, model.words(), get_coupling=True)
    return dataclasses.replace(found, beside={"entropy": undecided(graph, c)})


def undecided(graph: DGLGraph, c: Tensor) -> dict:
    """How undecided the in-edges of each node are, and how many it has, 1 or more.

    Args:
        graph: E edges, N nodes.
        c: (E, 1, K) couplings, which sum to 1 over an edge's K.

    Returns:
        ``degree`` (N,); ``entropy`` (N,), the mean over a node's in-edges of -sum over K of c ln c; ``capsules``, K.
    """
    each = -torch.special.xlogy(c, c).sum((1, 2)).double()  # (E,)
    degree, heads = graph.in_degrees(), graph.edges(order="eid")[1]
    mean = torch.zeros(len(degree)).double().index_add(0, heads, each) / degree
    return {"degree": degree.tolist(), "entropy": mean.tolist(), "capsules": c.shape[2]}


def rows(
    data: Citation,
    names: Sequence[str],
    seeds: int,
    on_share: Callable[[float], None],
    keep: Path | None = None,
    processes: int | None = None,
    epochs: int = EPOCHS,
) -> dict[str, dict]:
    """Choose some networks' settings on the validation papers, then train each from ``seeds`` other seeds and test it.

    Args:
        data: a citation graph.
        names: of networks, keys of ``LAYERS``.
        seeds, on_share: as in ``run``.
        keep, processes: folder for trainings that have ended, and who makes others, see ``run_jobs``.
        epochs: at most so many.

    Returns:
        of each name a row, see ``table.row``; that of capsules with ``first``, how undecided the couplings of the
        first layer are in the first training.
    """
    train = partial(fit, data, epochs=epochs)
    tried = {name: SETTINGS[name] for name in names}
    found = choose_and_test(train, tried, TRIAL_SEEDS, seeds, on_share, processes, keep, {"data": "cora"})
    labels = data.labels[data.test]
    made = {
        name: row(name, fits, [accuracy(one, labels) for one in fits], [chosen])
        for name, (chosen, fits) in found.items()
    }
    if "capsules" in made and (beside := found["capsules"][1][0].beside):  # older kept trainings have none
        made["capsules"] |= {"first": {**beside["entropy"], "layer": 1, "seed": 0}}
    return made


def run(data: Citation, seeds: int, quick: bool, on_share: Callable[[float], None], keep: Path | None = None) -> dict:
    """``rows`` of all networks, and what they say.

    Args:
        data: a citation graph.
        seeds: trainings with the chosen settings, 1 or more; none of their seeds was used for choosing.
        quick: a few epochs each, in this process: to see that it runs.
        on_share: told how much is done, from 0 to 1.
        keep: folder for trainings that have ended, see ``run_jobs``.

    Returns:
        ``rows``, one per network; ``margins``, of capsules over the others; ``protocol``, in words; ``entropy``, what
        ``graphcaps.viz.entropy_by_degree`` draws, unless the trainings that are kept are older than it.
    """
    found = rows(data, [*LAYERS], seeds, on_share, keep, *((1, 3) if quick else (None, EPOCHS)))
    first = found["capsules"].pop("first", None)
    of = counted(seeds, "seed") + ", mean +- standard deviation" * (seeds > 1)
    return {
        "rows": [*found.values()],
        "margins": margins_of("capsules", found),
        "protocol": f"{of}. Settings: of {TRIALS} for each, the one with the "
        f"highest validation accuracy over {len(TRIAL_SEEDS)} other seeds. Epoch: the lowest validation loss.",
        **({"entropy": first} if first else {}),
    }
