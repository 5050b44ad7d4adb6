"""Cora: classify papers by their words and citations. The networks have two layers and differ in the kind of layer.

``CapsuleConv`` has equal couplings (uniform), the routing of the 2017 paper (dynamic), or spherical routing, whose
kappa starts at 0.5 and is learned (capsules). GCN (Kipf & Welling 2017, https://arxiv.org/abs/1609.02907) and GAT
(Velickovic et al. 2018, https://arxiv.org/abs/1710.10903) are DGL's layers. Label propagation reads edges
and classes alone. Correct and Smooth (Huang et al. 2021, ICLR) improves a perceptron.
"""

from dataclasses import replace
from functools import partial

import torch

from experiments import networks, propagation
from experiments.data.relations import load_cora
from experiments.run import Place
from experiments.task import Task
from graphcaps import dgl

LAYERS = {name: networks.LAYERS[name] for name in ("GCN", "GAT", "uniform", "dynamic")}
LAYERS[propagation.CORRECTED] = networks.NodeLinear
LAYERS["capsules"] = partial(networks.LAYERS["capsules"], concentration=0.5)
# Each network has four settings to choose from. The first settings of GCN and of GAT are those of their papers.
_HEADS = [
    {"width": 8, "heads": 8, "dropout": 0.6, "lr": lr, "weight_decay": decay}
    for lr, decay in [(0.005, 5e-4), (0.005, 1e-3), (0.01, 5e-4), (0.01, 1e-3)]
]
_GCN = [
    {"width": width, "heads": 1, "dropout": dropout, "lr": 0.01, "weight_decay": 5e-4}
    for width, dropout in [(16, 0.5), (16, 0.8), (64, 0.5), (64, 0.8)]
]
SETTINGS = {name: _GCN if name in ("GCN", propagation.CORRECTED) else _HEADS for name in LAYERS}
EPOCHS = 500


def fit(place: Place, network: str, settings: dict, seed: int, quick: bool) -> dict:
    """Train one network. The validation loss chooses the epoch."""
    data = load_cora(place.data)
    if network == propagation.SPREAD:
        return propagation.fit(data, **settings)
    data = replace(data, features=data.features.to_sparse_coo().coalesce())
    torch.manual_seed(seed)
    layer = partial(LAYERS[network], drop=settings["dropout"])
    sizes = settings["width"], settings["heads"], settings["dropout"]
    model = networks.TwoLayers(layer, data.features.shape[1], data.num_classes, *sizes)
    rates = {name: settings[name] for name in ("lr", "weight_decay")}
    graph = dgl.add_self_loop(data.graph)
    result = networks.fit(model, data, graph, epochs=3 if quick else EPOCHS, **rates)
    return result | (propagation.best_corrected(model, data, graph) if network == propagation.CORRECTED else {})


NETWORKS = SETTINGS | {propagation.SPREAD: propagation.SPREADS}
TASK = Task("cora", fit, lambda: NETWORKS, seeds=lambda case, network: 20, trial_seeds=range(1000, 1003))
