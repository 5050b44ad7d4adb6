"""Graphs with latent factors: the K classes of a node, and which factor each edge is there because of.

The graphs are those of Ma et al. 2019 (Disentangled graph convolutional networks, ICML), drawn by
``graphcaps.data.graphs.factors``. Four networks of two layers and as many numbers per node: GCN, GAT, ``CapsuleConv``
with uniform couplings, and ``CapsuleConv`` that routes. Its couplings are held against the true factors, which no
network was told. A node has one class of each factor, so the share of classes that are right is the micro-F1.

    graphcaps example factors
    graphcaps example factors --factors 6
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial
from itertools import product
from pathlib import Path
from statistics import fmean, stdev

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from graphcaps._dgl import DGLGraph, dgl
from graphcaps.data.graphs.factors import FactorGraph, factor_graph
from graphcaps.examples.table import counted, margin, row
from graphcaps.examples.trials import BestEpoch, Fit, accuracy, best_setting, run_jobs
from graphcaps.nn import CapsuleConv

GraphConv, GATConv = dgl.nn.pytorch.GraphConv, dgl.nn.pytorch.GATConv


def capsule_layer(inputs: int, outputs: int, caps: int, routing: str) -> CapsuleConv:
    """Routing between nodes: ``inputs`` numbers to ``caps`` capsules of ``outputs`` numbers.

    Args:
        inputs: numbers of a node.
        outputs: numbers of a capsule.
        caps: capsules of a node.
        routing: ``"uniform"``, the control whose couplings stay equal, or ``"dynamic"``.
    """
    return CapsuleConv(inputs, outputs, caps, iterations=1 if routing == "uniform" else 3, squash_output=False)


LAYERS: dict[str, Callable[[int, int, int], nn.Module]] = {
    # (numbers of a node, numbers of each of its parts, parts) -> a layer; parts are heads, capsules, or nothing
    "GCN": lambda inputs, outputs, parts: GraphConv(inputs, outputs * parts),
    "GAT": lambda inputs, outputs, parts: GATConv(inputs, outputs, parts),
    "uniform": lambda inputs, outputs, parts: capsule_layer(inputs, outputs, parts, "uniform"),
    "capsules": lambda inputs, outputs, parts: capsule_layer(inputs, outputs, parts, "dynamic"),
}

SETTINGS = [{"width": 64, "dropout": dropout, "lr": lr} for dropout, lr in product((0.1, 0.3), (0.003, 0.01))]
"""The same for every network, without weight decay: that of Cora's networks, 0.0005, left all of them at chance."""
TRIAL_SEEDS, EPOCHS, PATIENCE = 3, 400, 30


class TwoLayers(nn.Module):
    """Features (N, F) to scores (N, J, K) of the J classes of each factor, through two layers of a kind.

    Both layers give ``width`` numbers in K parts, or width - width % K where K doesn't divide it.
    """

    def __init__(self, name: str, inputs: int, classes: int, factors: int, width: int, dropout: float):
        super().__init__()
        layer, part = LAYERS[name], width // factors
        self.dropout = nn.Dropout(dropout)
        self.first = layer(inputs, part, factors)
        self.second = layer(part * factors, part, factors)
        self.heads = nn.Linear(part * factors, classes * factors)
        self.shape = (classes, factors)

    def forward(self, graph: DGLGraph, feat: Tensor) -> Tensor:
        hidden = F.elu(self.first(graph, self.dropout(feat)).flatten(1))
        hidden = F.elu(self.second(graph, self.dropout(hidden)).flatten(1))
        return self.heads(self.dropout(hidden)).unflatten(1, self.shape)

    def couplings(self, graph: DGLGraph, feat: Tensor) -> list[Tensor]:
        """Of capsules: what each layer couples each edge with, (E, K) per layer."""
        hidden, first = self.first(graph, feat, get_coupling=True)
        _, second = self.second(graph, F.elu(hidden.flatten(1)), get_coupling=True)
        return [c.flatten(1) for c in (first, second)]


def fit(name: str, settings: dict, seed: int, factors: int, epochs: int = EPOCHS) -> Fit:
    """Draw the seed's graph and train one network on its training nodes; the validation nodes choose the epoch."""
    data = factor_graph(seed, factors)
    torch.manual_seed(seed)
    graph = dgl.add_self_loop(data.graph)  # puts the loops behind the edges
    shape = {key: settings[key] for key in ("width", "dropout")}
    model = TwoLayers(name, data.features.shape[1], data.num_classes, factors, **shape)
    adam = torch.optim.Adam(model.parameters(), lr=settings["lr"])
    best = BestEpoch(model, PATIENCE)
    for epoch in range(1, epochs + 1):
        model.train()
        loss = F.cross_entropy(model(graph, data.features)[data.train], data.labels[data.train])
        adam.zero_grad()
        loss.backward()
        adam.step()
        model.eval()
        with torch.no_grad():
            scores, labels = model(graph, data.features)[data.val], data.labels[data.val]
        if not best.update(epoch, scores, labels, F.cross_entropy(scores, labels)):
            break
    found = best.fit(lambda: model(graph, data.features)[data.test].argmax(dim=1))
    if name != "capsules":
        return found
    with torch.no_grad():
        layers = [held_against(c[: data.graph.num_edges()], data) for c in model.couplings(graph, data.features)]
    return dataclasses.replace(found, beside={"layers": layers})


def held_against(c: Tensor, data: FactorGraph) -> dict:
    """How well couplings (E, K) tell the factor of each edge that is there because of one factor alone.

    Returns:
        ``score``, the adjusted mutual information between each edge's largest coupling and its factor: 0 by chance, 1
        where one tells the other; ``table`` (K, K), edges of each factor (rows) by capsule; ``edges`` that enter node
        0, as neighbour, factor, capsule.
    """
    from sklearn.metrics import adjusted_mutual_info_score

    which, factor = data.single()
    capsule = c[which].argmax(dim=1)
    size = data.num_factors
    table = torch.bincount(factor * c.shape[1] + capsule, minlength=size * c.shape[1]).view(size, -1)
    src, dst = (ends[which] for ends in data.graph.edges())
    own = dst == 0
    edges = torch.stack([src[own], factor[own], capsule[own]], dim=1)
    score = float(adjusted_mutual_info_score(factor.numpy(), capsule.numpy()))
    return {"score": score, "table": table.tolist(), "edges": edges.tolist()}


def run(factors: int, seeds: int, quick: bool, on_share: Callable[[float], None], keep: Path | None = None) -> dict:
    """Choose each network's settings on validation nodes, then train it on ``seeds`` other graphs and test it.

    Args:
        factors: K, 4 to 12 in the paper.
        seeds: trainings with the chosen settings, 1 or more; each on a graph of its own, none of which was used for
            choosing.
        quick: a few epochs each, in this process: to see that it runs.
        on_share: told how much is done, from 0 to 1.
        keep: folder for trainings that have ended, see ``run_jobs``.

    Returns:
        ``factors``; ``rows``, one per network, that of capsules with ``recovered``; ``margins`` of capsules over the
        others; ``protocol``, in words; ``picture``, what ``graphcaps.viz.recovered`` draws.
    """
    train = partial(fit, factors=factors, epochs=3 if quick else EPOCHS)
    processes = 1 if quick else None
    trials = range(seeds, seeds + TRIAL_SEEDS)
    tried = [(name, k, seed) for name in LAYERS for k in range(len(SETTINGS)) for seed in trials]
    jobs = [(name, SETTINGS[k], seed) for name, k, seed in tried]
    share = len(jobs) / (len(jobs) + len(LAYERS) * seeds)
    fits = dict(zip(tried, run_jobs(train, jobs, lambda done: on_share(done * share), processes, keep), strict=True))
    chosen = {}
    for name in LAYERS:
        by_setting = [[fits[name, k, seed] for seed in trials] for k in range(len(SETTINGS))]
        chosen[name] = SETTINGS[best_setting(by_setting)]

    jobs = [(name, chosen[name], seed) for name in LAYERS for seed in range(seeds)]
    tested = run_jobs(train, jobs, lambda done: on_share(share + done * (1 - share)), processes, keep)
    graphs = [factor_graph(seed, factors) for seed in range(seeds)]
    labels = [data.labels[data.test] for data in graphs]
    rows = {}
    for k, name in enumerate(LAYERS):
        own = tested[k * seeds : (k + 1) * seeds]
        rows[name] = row(name, own, [accuracy(*pair) for pair in zip(own, labels, strict=True)], [chosen[name]])
    layers = [one.beside["layers"] for one in own]
    scores = {f"layer {n + 1}": [of_seed[n]["score"] for of_seed in layers] for n in range(len(layers[0]))}
    rows["capsules"]["recovered"] = {
        where: {"mean": fmean(values), "sd": stdev(values) if seeds > 1 else None, "each": values}
        for where, values in scores.items()
    }
    drawn = max(range(len(scores)), key=lambda n: fmean([*scores.values()][n]))
    of = counted(seeds, "graph") + ", mean +- standard deviation" * (seeds > 1)
    return {
        "factors": factors,
        "rows": [*rows.values()],
        "margins": {
            f"capsules over {name}": margin(rows["capsules"]["test"], rows[name]["test"])
            for name in LAYERS
            if name != "capsules"
        },
        "protocol": f"{of}. Settings: of {len(SETTINGS)} for each, the one with the highest validation score over "
        f"{TRIAL_SEEDS} other graphs. Epoch: the lowest validation loss.",
        "picture": {"factors": factors, "layer": drawn + 1, "graph": 0, "node": 0, **layers[0][drawn]},
    }
