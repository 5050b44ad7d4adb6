"""Cora: classify papers by their words and citations. The networks have two layers and differ in the kind of layer.

``CapsuleConv`` has equal couplings (uniform), the routing of the 2017 paper (dynamic), or spherical routing, whose
kappa starts at 0.5 and is learned (capsules). GCN (Kipf & Welling 2017, https://arxiv.org/abs/1609.02907) and GAT
(Velickovic et al. 2018, https://arxiv.org/abs/1710.10903) are DGL's layers.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from experiments import run
from experiments.data.cora import load_cora
from experiments.run import Place
from experiments.task import Task
from graphcaps import dgl
from graphcaps.nn import CapsuleConv
from graphcaps.routing import Routing, Spherical

LAYERS: dict[str, Callable[[int, int, int, float], nn.Module]] = {
    # Arguments: number of a node's features, numbers of each head, number of heads, dropout of messages.
    "GCN": lambda inputs, outputs, heads, drop: dgl.nn.pytorch.GraphConv(inputs, outputs * heads),
    "GAT": lambda inputs, outputs, heads, drop: dgl.nn.pytorch.GATConv(inputs, outputs, heads, attn_drop=drop),
    "uniform": lambda *sizes: capsule_layer(*sizes, routing="uniform"),
    "dynamic": lambda *sizes: capsule_layer(*sizes, routing="dynamic"),
    "capsules": lambda *sizes: capsule_layer(*sizes, routing=Spherical(concentration=0.5)),
}
# Each network has four settings to choose from. The first settings of GCN and of GAT are those of their papers.
_HEADS = [
    {"width": 8, "heads": 8, "dropout": 0.6, "lr": lr, "weight_decay": decay}
    for lr, decay in [(0.005, 5e-4), (0.005, 1e-3), (0.01, 5e-4), (0.01, 1e-3)]
]
_GCN = [
    {"width": width, "heads": 1, "dropout": dropout, "lr": 0.01, "weight_decay": 5e-4}
    for width, dropout in [(16, 0.5), (16, 0.8), (64, 0.5), (64, 0.8)]
]
SETTINGS = {name: _GCN if name == "GCN" else _HEADS for name in LAYERS}
EPOCHS, PATIENCE = 500, 50


def capsule_layer(inputs: int, outputs: int, caps: int, drop: float, routing: Routing | str) -> CapsuleConv:
    return CapsuleConv(inputs, outputs, caps, vote_drop=drop, squash_output=False, routing=routing)


class WordDropout(nn.Module):
    """Dropout on the nonzero entries of a sparse matrix (N, F): the same as dropout on all entries, but faster."""

    def __init__(self, words: Tensor, dropout: float):
        super().__init__()
        self.words, self.dropout = words.to_sparse_coo().coalesce(), nn.Dropout(dropout)

    def forward(self) -> Tensor:
        values = self.dropout(self.words.values())
        return torch.sparse_coo_tensor(self.words.indices(), values, self.words.shape, check_invariants=False)


class TwoLayers(nn.Module):
    """Map words (N, F) to class scores (N, J) with two layers of one kind."""

    def __init__(self, network: str, words: Tensor, num_classes: int, width: int, heads: int, dropout: float):
        super().__init__()
        layer = LAYERS[network]
        self.words = WordDropout(words, dropout)
        self.first = layer(words.shape[1], width, heads, dropout)
        self.dropout = nn.Dropout(dropout)
        self.second = layer(width * heads, num_classes, 1, dropout)

    def forward(self, graph: dgl.DGLGraph) -> Tensor:
        hidden = F.elu(self.first(graph, self.words()).flatten(1))
        return self.second(graph, self.dropout(hidden)).flatten(1)


def fit(place: Place, network: str, settings: dict, seed: int, quick: bool) -> dict:
    """Train one network. The validation loss chooses the epoch."""
    data = load_cora(place.data)
    torch.manual_seed(seed)
    graph, shape = dgl.add_self_loop(data.graph), dict(settings)
    rates = {name: shape.pop(name) for name in ("lr", "weight_decay")}
    model = TwoLayers(network, data.features, data.num_classes, **shape)

    def answers(part: Tensor) -> tuple[Tensor, Tensor]:
        return model(graph)[part], data.labels[part]

    def losses() -> list[Tensor]:
        return [F.cross_entropy(*answers(data.train))]

    rates |= {"epochs": 3 if quick else EPOCHS, "patience": PATIENCE}
    return run.fit(model, losses, answers, data.val, data.test, **rates)


TASK = Task("cora", fit, lambda: SETTINGS, seeds=lambda case, network: 20, trial_seeds=range(1000, 1003))
