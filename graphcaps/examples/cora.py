"""Cora: the class of a paper, from its words and from who cites whom. Networks of two layers that differ in the layer.

GCN (Kipf & Welling 2017, https://arxiv.org/abs/1609.02907) and GAT (Velickovic et al. 2018,
https://arxiv.org/abs/1710.10903) are DGL's own layers, with their papers' settings among those that are tried.

    graphcaps example cora
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from graphcaps._dgl import DGLGraph, dgl
from graphcaps.data.graphs.cora import Citation
from graphcaps.examples.table import counted, margin, row
from graphcaps.examples.trials import BestEpoch, Fit, accuracy, best_setting, run_jobs
from graphcaps.nn import CapsuleConv

GraphConv, GATConv = dgl.nn.pytorch.GraphConv, dgl.nn.pytorch.GATConv

LAYERS = {  # from (numbers of a node, numbers of each head, heads, dropout of what neighbours say) to a layer
    "GCN": lambda inputs, outputs, heads, drop: GraphConv(inputs, outputs * heads),
    "GAT": lambda inputs, outputs, heads, drop: GATConv(inputs, outputs, heads, attn_drop=drop),
    "capsules": lambda inputs, outputs, heads, drop: CapsuleConv(
        inputs, outputs, heads, vote_drop=drop, squash_output=False
    ),
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
    "capsules": _HEADS,
}
"""GCN's and GAT's first are their papers'."""
TRIALS, TRIAL_SEEDS = 4, 3
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
    return best.fit(lambda: model(graph)[data.test].argmax(dim=1))


def run(data: Citation, seeds: int, quick: bool, on_share: Callable[[float], None]) -> dict:
    """Choose each network's settings on the validation papers, then train it from ``seeds`` seeds and test it.

    Args:
        data: a citation graph.
        seeds: trainings with the chosen settings, 1 or more; none of their seeds was used for choosing.
        quick: a few epochs each, in this process: to see that it runs.
        on_share: told how much is done, from 0 to 1.

    Returns:
        ``rows``, one per network; ``margins``, of the last network over the one before; ``protocol``, in words.
    """
    train = partial(fit, data, epochs=3 if quick else EPOCHS)
    processes = 1 if quick else None
    trial_seeds = range(seeds, seeds + TRIAL_SEEDS)
    tried = [(name, k, seed) for name in LAYERS for k in range(TRIALS) for seed in trial_seeds]
    jobs = [(name, SETTINGS[name][k], seed) for name, k, seed in tried]
    share = len(jobs) / (len(jobs) + len(LAYERS) * seeds)
    fits = dict(zip(tried, run_jobs(train, jobs, lambda done: on_share(done * share), processes), strict=True))
    chosen = {}
    for name in LAYERS:
        by_setting = [[fits[name, k, seed] for seed in trial_seeds] for k in range(TRIALS)]
        chosen[name] = SETTINGS[name][best_setting(by_setting)]

    jobs = [(name, chosen[name], seed) for name in LAYERS for seed in range(seeds)]
    tested = run_jobs(train, jobs, lambda done: on_share(share + done * (1 - share)), processes)
    rows = []
    for k, name in enumerate(LAYERS):
        own = tested[k * seeds : (k + 1) * seeds]
        rows.append(row(name, own, [accuracy(one, data.labels[data.test]) for one in own], [chosen[name]]))
    of = counted(seeds, "seed") + ", mean +- standard deviation" * (seeds > 1)
    return {
        "rows": rows,
        "margins": {f"{rows[-1]['name']} over {rows[-2]['name']}": margin(rows[-1]["test"], rows[-2]["test"])},
        "protocol": f"{of}. Settings: of {TRIALS} for each, the one with the "
        f"highest validation accuracy over {TRIAL_SEEDS} other seeds. Epoch: the lowest validation loss.",
    }
