"""Hidden relations: do a layer's learned couplings reveal the kinds of edges? The layer doesn't get the kinds.

A network of one layer is trained to classify the nodes of a graph, or pairs of nodes. The layer's couplings before and
after training are compared with the kinds of the edges. Two other methods are references. R-GCN (Schlichtkrull et al.
2018, https://arxiv.org/abs/1703.06103) gets the kinds, so its score in the task is an upper bound. k-means clusters the
edges by the features of their two ends, without training. Trained couplings must reveal the kinds better than it does.
Classical methods, without couplings, show what the task needs: those of ``experiments.propagation``, and a perceptron.
"""

import functools
from collections.abc import Callable
from pathlib import Path

import torch
from sklearn.cluster import KMeans
from torch import Tensor, nn
from torch.nn import functional as F

from experiments import networks, propagation
from experiments.data import relations
from experiments.data.related import Related
from experiments.networks import LAYERS, PART, Network, NodeLinear, information
from experiments.propagation import CORRECTED
from experiments.run import Place
from experiments.task import Networks, Task
from graphcaps import dgl
from graphcaps.nn import BeliefConv

HECO = {
    "ACM": (("pap", "psp"), "p_feat"),
    "DBLP": (("apa", "apcpa"), "a_feat"),
    "Freebase": (("mdm", "mwm", "mam"),),
    "AMiner": (("pap", "prp"),),
}
"""The kinds of edges in HeCo's graphs, and the file of features."""
DATA: dict[str, Callable[[Path, int], Related]] = {
    # Arguments: the folder of the data sets, and a seed.
    "HumanGO": lambda root, seed: relations.human_go(root / "graphs" / "humango.npz", seed),
    "UMLS": lambda root, seed: relations.umls(root / "graphs" / "umls.npz", seed),
    "AIFB": lambda root, seed: relations.aifb(root / "graphs" / "aifb", seed),
    **{
        name: lambda root, seed, name=name, of=of: relations.heco(root / "graphs" / "heco" / name.lower(), seed, *of)
        for name, of in HECO.items()
    },
    **{
        f"{k} factors, published": lambda root, seed, k=k: relations.published_factors(root / f"graphs/factors-{k}.npz")
        for k in (4, 8, 12)
    },
}


class RelationalConv(nn.Module):
    """R-GCN with one part per kind: the mean over a node and its in-neighbours along edges of that kind."""

    def __init__(self, inputs: int, outputs: int, kinds: int):
        super().__init__()
        self.linear, self.bias = nn.Linear(inputs, kinds * outputs, bias=False), nn.Parameter(torch.zeros(outputs))

    def forward(self, graph: dgl.DGLGraph, feat: Tensor) -> Tensor:
        shares = graph.edata["shares"].unsqueeze(2)  # (E, R, 1)
        return dgl.ops.u_mul_e_sum(graph, self.linear(feat).unflatten(1, (shares.shape[1], -1)), shares) + self.bias


class Twice(nn.Module):
    """Two layers of the same kind. Like ``BeliefConv``, they see further than a node's neighbours."""

    def __init__(self, network: str, inputs: int, outputs: int, parts: int):
        super().__init__()
        self.first = NETWORKS[network](inputs, outputs, parts)
        self.second = NETWORKS[network](outputs * parts, outputs, parts)

    def forward(self, graph: dgl.DGLGraph, feat: Tensor) -> Tensor:
        return self.second(graph, F.elu(self.first(graph, feat).flatten(1)))


NETWORKS: dict[str, Callable[..., nn.Module]] = LAYERS | {
    "unit votes": functools.partial(LAYERS["capsules"], unit_votes=True),
    "mutual": functools.partial(LAYERS["mutual"], unit_votes=True),
    "R-GCN, told": RelationalConv,
    "beliefs": BeliefConv,
    "GCN, twice": functools.partial(Twice, "GCN"),
    "GAT, twice": functools.partial(Twice, "GAT"),
    "SAGE": lambda inputs, outputs, parts: dgl.nn.pytorch.SAGEConv(inputs, outputs * parts, "mean"),
    "SAGE, twice": functools.partial(Twice, "SAGE"),
    "perceptron": NodeLinear,
    CORRECTED: NodeLinear,
}
# The networks in FURTHER see further than a node's neighbours. They are trained only on the graphs in FEATURES. On the
# others, a node's features are its row of the adjacency matrix. The task ``known`` has BeliefConv on those graphs.
FEATURES = ("HumanGO", "UMLS", "AIFB", *HECO)
FURTHER = ("beliefs", "GCN, twice", "GAT, twice", "SAGE, twice")
WITHOUT_COUPLINGS = ("GCN", "R-GCN, told", "GCN, twice", "GAT, twice", "SAGE", "SAGE, twice", "perceptron", CORRECTED)
FLOORS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    # Arguments: the features of an edge's two ends. Both directions of an edge have the same result.
    "k-means, products": lambda u, v: u * v,
    "k-means, distances": lambda u, v: torch.cat([(u - v).abs(), u + v], dim=1),
}
# Each network has three settings to choose from.
_OTHERS = [{"dropout": dropout, "lr": lr} for dropout, lr in ((0.2, 0.01), (0.2, 0.03), (0.5, 0.01))]
_ROUTED = [
    {"dropout": drop, "lr": 0.02, "concentration": kappa} for drop, kappa in ((0.2, 1.0), (0.2, 4.0), (0.5, 4.0))
]
_BELIEFS = [
    {"dropout": 0.2, "lr": lr, "iterations": iterations} for lr, iterations in ((0.01, 4), (0.03, 4), (0.03, 8))
]
SETTINGS = dict.fromkeys(NETWORKS, _OTHERS) | dict.fromkeys(("capsules", "unit votes", "mutual"), _ROUTED)
SETTINGS["beliefs"] = _BELIEFS
EPOCHS = 500
PARTS = 8
"""Number of parts of a node if labels have no parts of their own."""


def fit(place: Place, network: str, settings: dict, seed: int, quick: bool, data: str) -> dict:
    """Train one network and measure how well its couplings reveal the kinds. The validation loss chooses the epoch."""
    related, options = DATA[data](place.data, seed), dict(settings)
    if network in FLOORS:
        return {"trained": floor(network, seed, related)}
    if network in propagation.METHODS:
        return propagation.fit(related, **settings)
    torch.manual_seed(seed)
    sees_kinds, labels = network == "R-GCN, told", related.labels.shape[1]
    parts = related.kinds.shape[1] if sees_kinds else labels if related.own else PARTS
    graph = dgl.add_self_loop(related.graph)  # self-loops come after the other edges
    if sees_kinds:
        graph.edata["shares"] = shares(graph, related.kinds)
    dropout, lr = options.pop("dropout"), options.pop("lr")
    layer = NETWORKS[network](related.features.shape[1], PART, parts, **options)
    model = Network([layer], PART * parts, related.num_classes, labels, related.own, dropout)

    def recovered() -> dict[str, float]:
        if network in WITHOUT_COUPLINGS:
            return {}
        return recovery(model.eval().couplings(graph, related.features)[0], related)

    untrained = recovered()
    result = networks.fit(model, related, graph, epochs=3 if quick else EPOCHS, lr=lr)
    if network == CORRECTED:
        return result | propagation.best_corrected(model, related, graph)
    return result | {"trained": recovered(), "untrained": untrained}


def shares(graph: dgl.DGLGraph, kinds: Tensor) -> Tensor:
    """Weights (E + N, R) for means over in-edges: 1 / (number of in-edges of kind r at the edge's target), or 0.

    ``kinds`` (E, R) are the kinds of the edges. The N self-loops come after the edges and have all kinds.
    """
    present = torch.cat([kinds, torch.ones(graph.num_nodes(), kinds.shape[1])])
    heads = graph.edges()[1]
    counts = torch.zeros(graph.num_nodes(), kinds.shape[1]).index_add(0, heads, present)
    return present / counts[heads]


def recovery(c: Tensor, data: Related) -> dict[str, float]:
    """The information of all couplings and, unless items are pairs, that of edges without a training node."""
    if data.items.dim() == 2:
        return {"information": information(c, data)}
    unseen = ~torch.isin(torch.stack(data.graph.edges()), data.train).any(dim=0)
    return {"information": information(c, data), "unseen": information(c, data, unseen)}


def floor(network: str, seed: int, related: Related) -> dict:
    """Call ``recovery`` on k-means clusters of the edges, by the features of their two ends.

    If items are pairs, features are the nodes' rows of the adjacency matrix.
    """
    feat, edges = related.features, related.graph.edges()
    if related.items.dim() == 2:
        feat = torch.zeros_like(feat).index_put(edges, torch.ones(()))
    if feat.shape[1] > PART:
        torch.manual_seed(seed)
        feat = torch.pca_lowrank(feat, PART * 2)[0]
    seen = FLOORS[network](*(feat[ends] for ends in edges)).numpy()
    parts = related.labels.shape[1] if related.own else PARTS
    distances = KMeans(parts, n_init=3, random_state=seed).fit(seen).transform(seen)
    return recovery(-torch.from_numpy(distances), related)


def tried(data: str) -> Networks:
    trained = {name: settings for name, settings in SETTINGS.items() if data in FEATURES or name not in FURTHER}
    if data == "UMLS":  # its classes are those of pairs, which can't be propagated
        return {name: trained[name] for name in trained if name != CORRECTED} | dict.fromkeys(FLOORS, [{}])
    spread = {name: propagation.settings(name) for name in propagation.METHODS}
    return trained | spread | dict.fromkeys(FLOORS, [{}])


TASK = Task(
    "relations",
    fit,
    tried,
    cases=[{"data": data} for data in DATA],
    seeds=lambda case, network: 3 if case["data"] in HECO else 5,
    score="score",
)
