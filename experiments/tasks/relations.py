"""Hidden relations: are the kinds of edges, which no network is told, in the couplings that a layer has learned?

One layer of each network of ``factors.LAYERS`` is trained on a task of the nodes of a graph, or of pairs of them. Its
couplings are then compared with the kinds of the edges, as they are after training and as they were before it. R-GCN
(Schlichtkrull et al. 2018, https://arxiv.org/abs/1703.06103) is told the kinds: a ceiling for the task. k-means of what
the two ends of an edge have is told no task: a floor for the kinds.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import fmean

import torch
from sklearn.cluster import KMeans
from sklearn.metrics import average_precision_score
from torch import Tensor, nn
from torch.nn import functional as F

from experiments import run, table
from experiments.data import relations
from experiments.data.relations import Related
from experiments.run import Place
from experiments.tasks.factors import LAYERS, OwnHeads, information
from graphcaps import dgl
from graphcaps.errors import check_name
from graphcaps.nn import BeliefConv

DATA: dict[str, Callable[[Path, int], Related]] = {
    # from the folder of the data sets and a seed to a graph
    "HumanGO": lambda root, seed: relations.human_go(root / "graphs" / "humango.npz", seed),
    "UMLS": lambda root, seed: relations.umls(root / "graphs" / "umls.npz", seed),
    **{
        f"{k} factors, published": lambda root, seed, k=k: relations.published_factors(root / f"graphs/factors-{k}.npz")
        for k in (4, 8, 12)
    },
    **{f"{k} factors, drawn": lambda root, seed, k=k: relations.drawn_factors(seed, k) for k in (4, 8)},
}


class Told(nn.Module):
    """R-GCN whose kinds have a part of the result each: the mean over a node's in-edges of that kind and itself."""

    def __init__(self, inputs: int, outputs: int, kinds: int):
        super().__init__()
        self.linear, self.bias = nn.Linear(inputs, kinds * outputs, bias=False), nn.Parameter(torch.zeros(outputs))

    def forward(self, graph: dgl.DGLGraph, feat: Tensor) -> Tensor:
        shares = graph.edata["shares"].unsqueeze(2)  # (E, R, 1)
        return dgl.ops.u_mul_e_sum(graph, self.linear(feat).unflatten(1, (shares.shape[1], -1)), shares) + self.bias


class Twice(nn.Module):
    """Two layers of a kind, as a network that sees as far as beliefs do."""

    def __init__(self, network: str, inputs: int, outputs: int, parts: int):
        super().__init__()
        self.first = LAYERS[network](inputs, outputs, parts)
        self.second = LAYERS[network](outputs * parts, outputs, parts)

    def forward(self, graph: dgl.DGLGraph, feat: Tensor) -> Tensor:
        return self.second(graph, F.elu(self.first(graph, feat).flatten(1)))


NETWORKS: dict[str, Callable[..., nn.Module]] = LAYERS | {
    "unit votes": lambda *sizes, **own: LAYERS["capsules"](*sizes, unit_votes=True, **own),
    "mutual": lambda *sizes, **own: LAYERS["mutual"](*sizes, unit_votes=True, **own),
    "R-GCN, told": Told,
    "beliefs": lambda inputs, outputs, parts, iterations: BeliefConv(inputs, outputs, parts, iterations),
    "GCN, twice": functools.partial(Twice, "GCN"),
    "GAT, twice": functools.partial(Twice, "GAT"),
}
FEATURES = ("HumanGO", "UMLS")
FURTHER = ("beliefs", "GCN, twice", "GAT, twice")
"""Networks that see further than a node's neighbours. Where features are a row of the adjacency matrix (all but
``FEATURES``), beliefs are not tried: there `labels` gives them what is known of nodes instead."""
WITHOUT = ("GCN", "R-GCN, told", "GCN, twice", "GAT, twice")
"""Networks without couplings."""
FLOORS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    # what k-means sees of an edge, from the features of its ends; the same in both directions
    "k-means, products": lambda u, v: u * v,
    "k-means, distances": lambda u, v: torch.cat([(u - v).abs(), u + v], dim=1),
}
_OTHERS = [{"dropout": dropout, "lr": lr} for dropout, lr in ((0.2, 0.01), (0.2, 0.03), (0.5, 0.01))]
_ROUTED = [
    {"dropout": drop, "lr": 0.02, "concentration": kappa} for drop, kappa in ((0.2, 1.0), (0.2, 4.0), (0.5, 4.0))
]
ROUTED = ("capsules", "unit votes", "mutual")
"""Whose routing has settings of its own."""
_BELIEFS = [
    {"dropout": 0.2, "lr": lr, "iterations": iterations} for lr, iterations in ((0.01, 4), (0.03, 4), (0.03, 8))
]
SETTINGS = {name: _ROUTED if name in ROUTED else _OTHERS for name in NETWORKS} | {"beliefs": _BELIEFS}
"""As many for each network."""
SEEDS, TRIAL_SEEDS, EPOCHS, PATIENCE = 5, (1000,), 150, 50
PART, PARTS, WEIGHT_DECAY = 16, 8, 5e-4
"""Numbers of each part of a node, and parts where it isn't one for each label."""
HIDDEN = 0.3
"""Share of the training pairs whose edges are left out of a step that predicts them."""
FEWEST = 30
"""Pairs of nodes that a kind must have for its average precision to count."""
KEYS = ("information", "unseen", "precision")


class Network(nn.Module):
    """A layer, and the scores (M, J, L) of J classes of the L labels of items; of a pair, from its nodes' product."""

    def __init__(
        self, network: str, inputs: int, parts: int, classes: int, labels: int, own: bool, dropout: float, **k
    ):
        super().__init__()
        self.dropout, self.labels = nn.Dropout(dropout), labels
        self.layer = NETWORKS[network](inputs, PART, parts, **k)
        self.heads = OwnHeads(labels, PART, classes) if own else nn.Linear(PART * parts, classes * labels)
        self.asked = {"get_attention" if network == "GAT" else "get_coupling": True}

    def forward(self, graph: dgl.DGLGraph, feat: Tensor, items: Tensor) -> Tensor:
        nodes = F.elu(self.layer(graph, self.dropout(feat)).flatten(1))[items]
        if items.dim() == 2:  # as long as each other, since a product of small numbers is hard to learn from
            nodes = (F.normalize(nodes, dim=2) * nodes.shape[2] ** 0.5).prod(dim=1)
        return self.heads(self.dropout(nodes)).unflatten(1, (self.labels, -1)).transpose(1, 2)

    @torch.no_grad()
    def couplings(self, graph: dgl.DGLGraph, feat: Tensor) -> Tensor:
        """(E, K), of GAT each head's share of what its heads give an edge."""
        c = self.layer(graph, feat, **self.asked)[1].flatten(1)
        return c / c.sum(dim=1, keepdim=True)


def fit(place: Place, network: str, settings: dict, seed: int, data: str, epochs: int) -> dict:
    """Train one network and say how well its couplings give away kinds; the validation items choose the epoch."""
    found = DATA[data](place.data, seed)
    torch.manual_seed(seed)
    told, (sizes, classes) = network == "R-GCN, told", (found.labels.shape[1], int(found.labels.max()) + 1)
    parts = len(found.names) if told else sizes if found.own else PARTS
    graph, edges = dgl.add_self_loop(found.graph), found.graph.num_edges()  # puts the loops behind the edges
    if told:
        graph.edata["shares"] = shares(graph, found.kinds)
    shape = {name: value for name, value in settings.items() if name != "lr"}
    model = Network(network, found.features.shape[1], parts, classes, sizes, found.own, **shape)

    def scores(part: Tensor, seen: dgl.DGLGraph = graph) -> Tensor:
        return model(seen, found.features, found.items[part])

    def losses() -> list[Tensor]:
        part, seen = shown(found, graph)
        return [F.cross_entropy(scores(part, seen), found.labels[part])]

    def recovered() -> dict | None:
        if network in WITHOUT:
            return None
        return recovery(model.eval().couplings(graph, found.features)[:edges], found, seed)

    untrained = recovered()
    result = run.fit(
        model,
        losses,
        lambda: (scores(found.val), found.labels[found.val]),
        lambda: scores(found.test),
        lr=settings["lr"],
        weight_decay=WEIGHT_DECAY,
        epochs=epochs,
        patience=PATIENCE,
    )
    del result["predicted"]
    with torch.no_grad():
        val, test = (measured(scores(part), found.labels[part]) for part in (found.val, found.test))
    return result | {"val_accuracy": val, "test": test, "trained": recovered(), "untrained": untrained}


def shown(data: Related, graph: dgl.DGLGraph) -> tuple[Tensor, dgl.DGLGraph]:
    """The training items of a step, and the graph to answer them on: of pairs, some, whose edges are left out."""
    if data.items.dim() == 1:
        return data.train, graph
    edges = data.graph.num_edges()
    hidden = torch.rand(edges // 2) < HIDDEN
    present = torch.cat([~hidden, ~hidden, torch.ones(graph.num_edges() - edges).bool()])
    part = torch.cat([data.train[: edges // 2][hidden], data.train[edges // 2 :]])
    return part, dgl.edge_subgraph(graph, present, relabel_nodes=False, store_ids=False)


def shares(graph: dgl.DGLGraph, kinds: Tensor) -> Tensor:
    """(E + N, R), for each kind 1 / (a node's in-edges of this kind), from kinds (E, R) of the edges before N loops."""
    present = torch.cat([kinds, torch.ones(graph.num_nodes(), kinds.shape[1])])
    heads = graph.edges()[1]
    counts = torch.zeros(graph.num_nodes(), kinds.shape[1]).index_add(0, heads, present)
    return present / counts[heads]


def measured(scores: Tensor, labels: Tensor) -> float:
    """Of scores (M, J, L) and labels (M, L): micro-F1 of J classes, average precision (micro) of yes and no."""
    if scores.shape[1] > 2:
        return (scores.argmax(dim=1) == labels).double().mean().item()
    return float(average_precision_score(labels.flatten().numpy(), (scores[:, 1] - scores[:, 0]).flatten().numpy()))


def recovery(c: Tensor, data: Related, seed: int) -> dict:
    """How well couplings (E, K) give away the kinds of the edges.

    Returns:
        ``information``, the adjusted mutual information of each edge's largest coupling and its kind, of edges that
        have one kind; ``unseen``, the same where neither end is a training node, None where items are pairs;
        ``precisions``, by kind, the average precision of one capsule's couplings: of the capsule that is best on one
        half of the pairs, measured on the other; ``precision``, their mean.
    """
    one, kind, capsule = data.kinds.sum(dim=1) == 1, data.kinds.int().argmax(dim=1), c.argmax(dim=1)
    found: dict = {"information": information(kind[one], capsule[one]), "unseen": None}
    if data.items.dim() == 1:
        seen = torch.isin(torch.stack(data.graph.edges()), data.train).any(dim=0)
        found["unseen"] = information(kind[one & ~seen], capsule[one & ~seen])
    half = torch.rand(len(c) // 2, generator=torch.Generator().manual_seed(seed)).repeat(2) < 0.5
    chosen, measured = (torch.stack([precisions(k, data.kinds[part]) for k in c[part].T]) for part in (half, ~half))
    best = measured.gather(0, chosen.argmax(dim=0, keepdim=True))[0].tolist()
    enough = (data.kinds.sum(dim=0) >= 2 * FEWEST).tolist()
    found["precisions"] = {name: each for name, each, some in zip(data.names, best, enough, strict=True) if some}
    return found | {"precision": fmean(found["precisions"].values())}


def precisions(scores: Tensor, kinds: Tensor) -> Tensor:
    """(R,), average precision of each kind, from scores (E,) and bool kinds (E, R); as scikit-learn's, equal scores
    together.

    >>> precisions(torch.tensor([0.4, 0.3, 0.2]), torch.tensor([[True, False], [False, True], [True, False]]))
    tensor([0.8333, 0.5000])
    """
    ordered, order = scores.sort(descending=True)
    rank = torch.unique_consecutive(ordered, return_counts=True)[1].cumsum(0)  # of the last of equal scores
    hits = kinds[order].float().cumsum(0)[rank - 1]
    return (hits.diff(dim=0, prepend=torch.zeros_like(hits[:1])) * hits / rank[:, None]).sum(dim=0) / hits[-1]


def floor(place: Place, network: str, seed: int, data: str) -> dict:
    """``recovery`` of clusters of edges, by their ends' features, or their rows of the adjacency matrix."""
    found = DATA[data](place.data, seed)
    feat, edges = found.features, found.graph.edges()
    if found.items.dim() == 2:
        feat = torch.zeros_like(feat).index_put(edges, torch.ones(()))
    if feat.shape[1] > PART:
        torch.manual_seed(seed)
        feat = torch.pca_lowrank(feat, PART * 2)[0]
    seen = FLOORS[network](*(feat[ends] for ends in edges)).numpy()
    parts = found.labels.shape[1] if found.own else PARTS
    distances = KMeans(parts, n_init=3, random_state=seed).fit(seen).transform(seen)
    return {"trained": recovery(-torch.from_numpy(distances), found, seed)}


def rows(place: Place, only: Sequence[str] = (), seeds: int | None = None, quick: bool = False) -> list[dict]:
    """A row for each graph and network: settings are chosen on validation items, then ``seeds`` trainings tested."""
    made, seeds, epochs = [], seeds or (1 if quick else SEEDS), 3 if quick else EPOCHS
    for name in only:
        check_name("task", name, list(DATA))
    for data in only or DATA:
        tried = {name: each for name, each in SETTINGS.items() if data in FEATURES or name not in FURTHER}
        chosen = run.choose_and_test(fit, tried, TRIAL_SEEDS, seeds, place, data=data, epochs=epochs)
        for network, (settings, fits) in chosen.items():
            row = table.row(network, fits, [each["test"] for each in fits], [settings])
            made.append({"data": data, **row, **{state: spreads(fits, state) for state in ("trained", "untrained")}})
        for network in FLOORS:
            jobs = [{"network": network, "seed": seed, "data": data} for seed in range(seeds)]
            clusters = run.run(floor, jobs, place, f"{data}: {network}")
            made.append({"data": data, "name": network, "trained": spreads(clusters, "trained")})
    return made


def spreads(fits: Sequence[dict], state: str) -> dict[str, dict] | None:
    """Means and standard deviations of what ``recovery`` gave, and of ``precisions`` the means by kind."""
    found = [each[state] for each in fits]
    if found[0] is None:
        return None
    made = {key: table.spread([each[key] for each in found]) for key in KEYS if found[0][key] is not None}
    kinds = [name for name in found[0]["precisions"] if all(name in each["precisions"] for each in found)]
    return made | {"precisions": {name: fmean(each["precisions"][name] for each in found) for name in kinds}}
