"""Graphs with latent factors: the K classes of a node, and which factor each edge is there because of.

The graphs are those of Ma et al. 2019 (Disentangled graph convolutional networks, ICML), drawn by
``graphcaps.data.graphs.factors``. Six networks of as many numbers per node: GCN, GAT, and ``CapsuleConv`` with uniform
couplings, routed as in the 2017 paper (dynamic), as it does by default (capsules), or so that the two directions of an
edge share their logits (mutual). The last two's couplings are held against the true factors of the edges, which no
network was told. A node has one class of each factor, so the share of classes that are right is the micro-F1.

How many layers a network has, and whether the classes of a factor are read from all numbers of a node or from one of
their K parts alone (a capsule, a head of GAT, 16 channels of GCN), is chosen for each kind on validation nodes.

    graphcaps example factors
    graphcaps example factors --factors 6
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from graphcaps._dgl import DGLGraph, dgl
from graphcaps.data.graphs.beliefs import beliefs
from graphcaps.data.graphs.factors import FactorGraph, factor_graph
from graphcaps.examples.table import counted, margins_of, row, spread_of
from graphcaps.examples.trials import BestEpoch, Fit, accuracy, choose_and_test
from graphcaps.nn import CapsuleConv
from graphcaps.nn.routing_parameters import concentrations

GraphConv, GATConv = dgl.nn.pytorch.GraphConv, dgl.nn.pytorch.GATConv


def capsule_layer(inputs: int, outputs: int, caps: int, routing: str, **own: Any) -> CapsuleConv:
    """Routing between nodes: ``inputs`` numbers to ``caps`` capsules of ``outputs`` numbers.

    Args:
        inputs: numbers of a node.
        outputs: numbers of a capsule.
        caps: capsules of a node.
        routing: ``"uniform"``, the control whose couplings stay equal, ``"dynamic"`` or ``"spherical"``.
        own: options of spherical routing: ``concentration``, ``unit_votes``, ``mutual``, ``iterations``.
    """
    return CapsuleConv(inputs, outputs, caps, squash_output=False, routing=routing, **own)


LAYERS: dict[str, Callable[..., nn.Module]] = {
    # (numbers of a node, numbers of each of its parts, parts) -> a layer; parts are heads, capsules, or nothing
    "GCN": lambda inputs, outputs, parts: GraphConv(inputs, outputs * parts),
    "GAT": lambda inputs, outputs, parts: GATConv(inputs, outputs, parts),
    "uniform": lambda inputs, outputs, parts: capsule_layer(inputs, outputs, parts, "uniform"),
    "dynamic": lambda inputs, outputs, parts: capsule_layer(inputs, outputs, parts, "dynamic"),
    "capsules": lambda inputs, outputs, parts, **own: capsule_layer(inputs, outputs, parts, "spherical", **own),
    "mutual": lambda inputs, outputs, parts, **own: capsule_layer(
        inputs, outputs, parts, "spherical", mutual=True, **own
    ),
}
ROUTED = ("capsules", "mutual")
"""Whose couplings are held against the true factors."""

_OTHERS = [{"layers": layers, "heads": heads, "lr": 0.01} for layers, heads in product((1, 2), ("all", "own"))]
SETTINGS = {
    "GCN": _OTHERS,
    "GAT": _OTHERS,
    "uniform": _OTHERS,
    "dynamic": _OTHERS,
    "capsules": [
        {"layers": 1, "heads": heads, "lr": 0.01, "concentration": concentration, **unit}
        for heads, concentration, unit in [
            ("all", 4.0, {}),
            ("own", 4.0, {}),
            ("own", 4.0, {"unit_votes": True}),
            ("own", 1.0, {"unit_votes": True}),
        ]
    ],
    "mutual": [
        {"layers": 1, "heads": "own", "lr": 0.01, "concentration": kappa, "unit_votes": True, "iterations": iterations}
        for kappa, iterations in ((4.0, 3), (4.0, 4), (4.0, 5), (1.0, 4))
    ],
}
"""As many for every network."""
TRIALS = 4
PART, DROPOUT, WEIGHT_DECAY = 16, 0.5, 5e-4
TRIAL_SEEDS, EPOCHS, PATIENCE = range(1000, 1003), 400, 50


class OwnHeads(nn.Module):
    """Parts (N, K * D) to scores (N, K * J): those of factor k from part k alone."""

    def __init__(self, factors: int, part: int, classes: int):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(factors, part, classes) / part**0.5)
        self.bias = nn.Parameter(torch.zeros(factors, classes))

    def forward(self, nodes: Tensor) -> Tensor:
        parts = nodes.unflatten(1, self.weight.shape[:2])  # (N, K, D)
        return (torch.einsum("nkd,kdj->nkj", parts, self.weight) + self.bias).flatten(1)


class Layers(nn.Module):
    """Features (N, F) to scores (N, J, K) of the J classes of each factor, through ``layers`` layers of a kind.

    Each layer gives PART numbers in each of K parts. ``heads`` says what a factor's classes are read from: ``"all"``
    numbers of a node, or those of its ``"own"`` part. ``own`` is for layers of capsules.
    """

    def __init__(
        self,
        name: str,
        inputs: int,
        classes: int,
        factors: int,
        layers: int,
        heads: str,
        dropout: float = DROPOUT,
        **own: Any,
    ):
        super().__init__()
        width, made = PART * factors, LAYERS[name]
        self.dropout = nn.Dropout(dropout)
        self.layers = nn.ModuleList(made(size, PART, factors, **own) for size in [inputs, *[width] * (layers - 1)])
        apart = heads == "own"
        self.heads = OwnHeads(factors, PART, classes) if apart else nn.Linear(width, classes * factors)
        self.factors = factors

    def nodes(self, graph: DGLGraph, feat: Tensor) -> Tensor:
        """What the layers make of each node."""
        for layer in self.layers:
            feat = F.elu(layer(graph, self.dropout(feat)).flatten(1))
        return feat

    def scores(self, feat: Tensor) -> Tensor:
        """The classes' scores, from what the layers have made."""
        return self.heads(self.dropout(feat)).unflatten(1, (self.factors, -1)).transpose(1, 2)

    def forward(self, graph: DGLGraph, feat: Tensor) -> Tensor:
        return self.scores(self.nodes(graph, feat))

    def couplings(self, graph: DGLGraph, feat: Tensor) -> list[Tensor]:
        """Of capsules: what each layer couples each edge with, (E, K) per layer."""
        found = []
        for layer in self.layers:
            feat, c = layer(graph, feat, get_coupling=True)
            feat = F.elu(feat.flatten(1))
            found.append(c.flatten(1))
        return found


def fit(name: str, settings: dict, seed: int, factors: int, epochs: int = EPOCHS) -> Fit:
    """Draw the seed's graph and train one network on its training nodes; the validation nodes choose the epoch."""
    data = factor_graph(seed, factors)
    torch.manual_seed(seed)
    graph = dgl.add_self_loop(data.graph)  # puts the loops behind the edges
    shape = {key: value for key, value in settings.items() if key != "lr"}
    model = Layers(name, data.features.shape[1], data.num_classes, factors, **shape)
    adam = torch.optim.Adam(model.parameters(), lr=settings["lr"], weight_decay=WEIGHT_DECAY)
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
    if name not in ROUTED:
        return found
    with torch.no_grad():
        layers = [held_against(c[: data.graph.num_edges()], data) for c in model.couplings(graph, data.features)]
    return dataclasses.replace(found, beside={"layers": layers, "concentration": concentrations(model)})


def held_against(c: Tensor, data: FactorGraph) -> dict:
    """How well couplings (E, K) tell the factor of each edge that is there because of one factor alone.

    Returns:
        ``score``, the adjusted mutual information between each edge's largest coupling and its factor: 0 by chance, 1
        where one tells the other; ``table`` (K, K), edges of each factor (rows) by capsule; ``edges`` that enter node
        0, as neighbour, factor, capsule.
    """
    which, factor = data.single()
    capsule = c[which].argmax(dim=1)
    size = data.num_factors
    table = torch.bincount(factor * c.shape[1] + capsule, minlength=size * c.shape[1]).view(size, -1)
    src, dst = (ends[which] for ends in data.graph.edges())
    own = dst == 0
    edges = torch.stack([src[own], factor[own], capsule[own]], dim=1)
    return {"score": information(factor, capsule), "table": table.tolist(), "edges": edges.tolist()}


def information(factor: Tensor, capsule: Tensor) -> float:
    """Adjusted mutual information of two numberings (M,) of edges: 0 by chance, 1 where one tells the other."""
    from sklearn.metrics import adjusted_mutual_info_score

    return float(adjusted_mutual_info_score(factor.numpy(), capsule.numpy()))


def told_how_it_was_drawn(data: FactorGraph) -> dict:
    """How much there is to find: micro-F1 of the test nodes and ``held_against``'s score, of ``beliefs``."""
    classes, causes = beliefs(data)
    which, factor = data.single()
    right = (classes.argmax(dim=2) == data.labels)[data.test].double().mean()
    return {"accuracy": float(right), "score": information(factor, causes[which].argmax(dim=1))}


def rows(
    factors: int,
    names: Sequence[str],
    seeds: int,
    on_share: Callable[[float], None],
    keep: Path | None = None,
    processes: int | None = None,
    epochs: int = EPOCHS,
) -> dict[str, dict]:
    """Choose some networks' settings on validation nodes, then train each on ``seeds`` other graphs and test it.

    Args:
        factors, seeds, on_share, keep: as in ``run``.
        names: of networks, keys of ``LAYERS``.
        processes: who makes trainings that aren't kept, see ``run_jobs``.
        epochs: at most so many.

    Returns:
        of each name a row, see ``table.row``; those of ``ROUTED`` with ``recovered``, how well each layer's couplings
        tell the factor of an edge, ``concentration``, kappa of each graph's layers, and ``first``, what
        ``held_against`` says of the first graph, layer by layer.
    """
    train = partial(fit, factors=factors, epochs=epochs)
    tried = {name: SETTINGS[name] for name in names}
    chosen = choose_and_test(train, tried, TRIAL_SEEDS, seeds, on_share, processes, keep)
    graphs = [factor_graph(seed, factors) for seed in range(seeds)]
    labels = [data.labels[data.test] for data in graphs]
    found = {}
    for name, (settings, fits) in chosen.items():
        right = [accuracy(*pair) for pair in zip(fits, labels, strict=True)]
        found[name] = row(name, fits, right, [settings])
        if name in ROUTED:
            layers = [one.beside["layers"] for one in fits]
            scores = [[of_seed[n]["score"] for of_seed in layers] for n in range(len(layers[0]))]
            found[name] |= {"recovered": {f"layer {n}": spread_of(each) for n, each in enumerate(scores, 1)}}
            found[name] |= {"first": layers[0]}
            found[name] |= {"concentration": [one.beside.get("concentration") for one in fits]}  # not of older ones
    return found


def run(factors: int, seeds: int, quick: bool, on_share: Callable[[float], None], keep: Path | None = None) -> dict:
    """``rows`` of all networks, and what they say.

    Args:
        factors: K, 4 to 12 in the paper.
        seeds: trainings with the chosen settings, 1 or more; each on a graph of its own, none of which was used for
            choosing.
        quick: a few epochs each, in this process: to see that it runs.
        on_share: told how much is done, from 0 to 1.
        keep: folder for trainings that have ended, see ``run_jobs``.

    Returns:
        ``factors``; ``rows``, one per network, those of ``ROUTED`` with ``recovered``; ``margins`` of these over the
        others; ``known``, what belief propagation finds that is told how the graphs were drawn; ``protocol``, in words;
        ``picture``, what ``graphcaps.viz.recovered`` draws, of mutual.
    """
    found = rows(factors, [*LAYERS], seeds, lambda x: on_share(0.95 * x), keep, *((1, 3) if quick else (None, EPOCHS)))
    known = []
    for seed in range(seeds):
        known.append(told_how_it_was_drawn(factor_graph(seed, factors)))
        on_share(0.95 + 0.05 * (seed + 1) / seeds)
    first = {name: found[name].pop("first") for name in ROUTED}["mutual"]
    recovered, alone = [*found["mutual"]["recovered"].values()], {key: found[key] for key in found if key != "mutual"}
    drawn = max(range(len(recovered)), key=lambda n: recovered[n]["mean"])
    of = counted(seeds, "graph") + ", mean +- standard deviation" * (seeds > 1)
    return {
        "factors": factors,
        "rows": [*found.values()],
        "margins": margins_of("capsules", alone) | margins_of("mutual", found),
        "known": {name: spread_of([each[name] for each in known]) for name in known[0]},
        "protocol": f"{of}. Settings: of {TRIALS} for each, the one with the highest validation score over "
        f"{len(TRIAL_SEEDS)} other graphs. Epoch: the lowest validation loss.",
        "picture": {"factors": factors, "layer": drawn + 1, "graph": 0, "node": 0, **first[drawn]},
    }
