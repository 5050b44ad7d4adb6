"""Graphs with latent factors: predict a node's K classes, and compare couplings with the factors of the edges.

``experiments.data.factors`` draws the graphs. Six networks with equally many features per node are compared: GCN, GAT,
and ``CapsuleConv`` with four routings. These are equal couplings (uniform), the routing of the 2017 paper (dynamic),
spherical routing (capsules), and spherical routing whose logits both directions of an edge share (mutual). The
couplings of the last two are compared with the true factors of the edges. No network gets these factors. A node has one
class per factor, so the share of right classes is the micro-F1.

Settings are chosen on validation nodes. One of them, ``heads``, says from where a factor's classes are read: from all
features of a node, or from one of its K parts. A part is a capsule, a head of GAT, or 16 channels of GCN. Label
propagation and ``BeliefConv``, untrained, receive the edges and the same classes of training nodes.
"""

from itertools import product

import torch
from torch import Tensor

from experiments import networks, propagation
from experiments.data.beliefs import beliefs
from experiments.data.factors import factor_graph
from experiments.data.related import Related
from experiments.networks import LAYERS, PART, Network, concentrations, information, kinds_and_capsules
from experiments.run import Place
from experiments.task import Task
from graphcaps import dgl
from graphcaps.nn import BeliefConv

ROUTED = ("capsules", "mutual")
"""Networks whose couplings are compared with the true factors."""

_OTHERS = [{"layers": layers, "heads": heads, "lr": 0.01} for layers, heads in product((1, 2), ("all", "own"))]
_OWN = {"layers": 1, "heads": "own", "lr": 0.01}
SETTINGS = {network: _OTHERS for network in LAYERS if network not in ROUTED} | {
    "capsules": [
        {"layers": 1, "heads": "all", "lr": 0.01, "concentration": 4.0},
        _OWN | {"concentration": 4.0},
        _OWN | {"concentration": 4.0, "unit_votes": True},
        _OWN | {"concentration": 1.0, "unit_votes": True},
    ],
    "mutual": [
        _OWN | {"concentration": kappa, "unit_votes": True, "iterations": iterations}
        for kappa, iterations in ((4.0, 3), (4.0, 4), (4.0, 5), (1.0, 4))
    ],
}
"""For each network, four settings to choose from."""
COUNTED = "BeliefConv"
BOUND = "belief propagation, told the generator's probabilities"
EPOCHS = 400


def fit(place: Place, network: str, settings: dict, seed: int, quick: bool, factors: int) -> dict:
    """Train one network on the graph of the seed. The validation loss chooses the epoch."""
    data = factor_graph(seed, factors)
    if network == BOUND:
        return upper_bound(data)
    if network == propagation.SPREAD:
        return propagation.fit(data, **settings)
    if network == COUNTED:
        labels = propagation.trained(data)
        with torch.no_grad():
            h = BeliefConv.from_labels(data.graph, labels)(data.graph, labels)  # (N, K, C)
        return propagation.judged(h.transpose(1, 2), data)
    torch.manual_seed(seed)
    graph, options = dgl.add_self_loop(data.graph), dict(settings)  # self-loops come after the other edges
    lr, count, own = options.pop("lr"), options.pop("layers"), options.pop("heads") == "own"
    width = PART * factors
    sizes = [data.features.shape[1], *[width] * (count - 1)]
    layers = (LAYERS[network](size, PART, factors, **options) for size in sizes)
    model = Network(layers, width, data.num_classes, factors, own)
    result = networks.fit(model, data, graph, epochs=3 if quick else EPOCHS, lr=lr)
    if network in ROUTED:
        couplings = model.couplings(graph, data.features)
        result["recovered"] = {f"layer {n}": information(c, data) for n, c in enumerate(couplings, 1)}
        result["concentration"] = {f"layer {n}": kappa for n, kappa in enumerate(concentrations(model), 1)}
        best = max(result["recovered"], key=result["recovered"].get)
        c = couplings[int(best.split()[1]) - 1]
        result["picture"] = {"layer": best, "score": result["recovered"][best], "seed": seed, **causes_of(c, data)}
    return result


def causes_of(c: Tensor, data: Related) -> dict:
    """Causes and capsules of the edges that only one factor generated, for ``experiments.figure.recovered``.

    ``table`` (K, K): the number of edges for each factor (row) and capsule (column) with the largest coupling c (E, K).
    ``edges``: neighbour, factor and capsule of each edge into node 0.
    """
    which, factor, capsule = kinds_and_capsules(c, data)
    counts = torch.zeros(data.kinds.shape[1], c.shape[1], dtype=torch.int64)
    counts.index_put_((factor, capsule), torch.ones_like(factor), accumulate=True)
    src, dst = (ends[which] for ends in data.graph.edges())
    edges = torch.stack([src, factor, capsule], dim=1)[dst == 0]
    return {"table": counts.tolist(), "edges": edges.tolist()}


def upper_bound(data: Related) -> dict:
    """Upper bounds for networks, by belief propagation: micro-F1 on the test nodes, and information of the causes."""
    classes, causes = beliefs(data)
    right = (classes.argmax(dim=2) == data.labels)[data.test].double().mean()
    return {"test": float(right), "recovered": {"layer 1": information(causes, data)}}


TASK = Task(
    "factors",
    fit,
    lambda factors: SETTINGS | {propagation.SPREAD: propagation.SPREADS, COUNTED: [{}], BOUND: [{}]},
    cases=({"factors": 4}, {"factors": 8}),
    seeds=lambda case, network: 10,
    trial_seeds=range(1000, 1003),
    score="micro-F1",
)
