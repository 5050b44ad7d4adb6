"""Networks of graph layers, and their training on the nodes or pairs of a ``Related`` graph."""

from collections.abc import Callable, Iterable
from functools import partial

import torch
from sklearn.metrics import adjusted_mutual_info_score, average_precision_score
from torch import Tensor, nn
from torch.nn import functional as F

from experiments import run
from experiments.data.related import Related
from graphcaps import dgl
from graphcaps.layer_common import dropped
from graphcaps.nn import CapsuleConv
from graphcaps.routing import Routing, Spherical

PART, DROPOUT, WEIGHT_DECAY, PATIENCE = 16, 0.5, 5e-4, 50
HIDDEN = 0.3
"""Share of the joined training pairs that a step predicts. Their edges aren't in the graph of that step."""


def capsules(routing: Routing | str, *sizes: int, drop: float = 0.0, **options) -> CapsuleConv:
    return CapsuleConv(*sizes, routing, vote_drop=drop, squash_output=False, **options)


def spherical(*sizes: int, drop: float = 0.0, mutual=False, unit_votes=False, **own) -> CapsuleConv:
    return capsules(Spherical(**own), *sizes, drop=drop, mutual=mutual, unit_votes=unit_votes)


class NodeLinear(nn.Linear):
    """The layer of a perceptron, which doesn't read the graph. Arguments are those of ``LAYERS``."""

    def __init__(self, inputs: int, outputs: int, parts: int, drop: float = 0.0):
        super().__init__(inputs, outputs * parts)

    def forward(self, graph: dgl.DGLGraph, feat: Tensor) -> Tensor:
        return feat @ self.weight.T + self.bias


LAYERS: dict[str, Callable[..., nn.Module]] = {
    # Arguments: number of a node's features, numbers in each part, number of parts, dropout of messages.
    "GCN": lambda inputs, outputs, parts, drop=0.0: dgl.nn.pytorch.GraphConv(inputs, outputs * parts),
    "GAT": lambda *sizes, drop=0.0: dgl.nn.pytorch.GATConv(*sizes, attn_drop=drop),
    "uniform": partial(capsules, "uniform"),
    "dynamic": partial(capsules, "dynamic"),
    "capsules": spherical,
    "mutual": partial(spherical, mutual=True),
}


class TwoLayers(nn.Module):
    """Two layers of one kind, for nodes with one label. They return scores (M, J, 1)."""

    def __init__(self, layer: Callable[..., nn.Module], inputs: int, classes: int, part: int, parts: int, drop: float):
        super().__init__()
        self.dropout = nn.Dropout(drop)
        self.first, self.second = layer(inputs, part, parts), layer(part * parts, classes, 1)

    def forward(self, graph: dgl.DGLGraph, feat: Tensor, items: Tensor) -> Tensor:
        hidden = F.elu(self.first(graph, dropped(self.dropout, feat)).flatten(1))
        return self.second(graph, self.dropout(hidden)).flatten(1)[items].unsqueeze(2)


class OwnHeads(nn.Module):
    """Map parts (N, K * D) of nodes to scores (N, K * J). The scores of label k depend only on part k."""

    def __init__(self, labels: int, classes: int):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(labels, PART, classes) / PART**0.5)
        self.bias = nn.Parameter(torch.zeros(labels, classes))

    def forward(self, nodes: Tensor) -> Tensor:
        parts = nodes.unflatten(1, self.weight.shape[:2])  # (N, K, D)
        return (torch.einsum("nkd,kdj->nkj", parts, self.weight) + self.bias).flatten(1)


class Network(nn.Module):
    """Apply layers one after the other, and map nodes to scores (M, J, L) of the J classes of each of L labels.

    Each layer returns ``width`` numbers for a node, in equal parts. With ``own``, a label's classes are read only from
    its own part, otherwise from all parts. The M items are all nodes, or ``items``: nodes (M,) or pairs (M, 2) of them.
    """

    def __init__(
        self, layers: Iterable[nn.Module], width: int, classes: int, labels: int, own: bool, dropout: float = DROPOUT
    ):
        super().__init__()
        self.layers, self.dropout, self.labels = nn.ModuleList(layers), nn.Dropout(dropout), labels
        self.heads = OwnHeads(labels, classes) if own else nn.Linear(width, classes * labels)

    def forward(self, graph: dgl.DGLGraph, feat: Tensor, items: Tensor | None = None) -> Tensor:
        for layer in self.layers:
            feat = F.elu(layer(graph, self.dropout(feat)).flatten(1))
        feat = feat if items is None else gathered(feat, items)
        return self.heads(self.dropout(feat)).unflatten(1, (self.labels, -1)).transpose(1, 2)

    @torch.no_grad()
    def couplings(self, graph: dgl.DGLGraph, feat: Tensor) -> list[Tensor]:
        """The couplings (E, K) of each layer. For GAT, they are the heads' shares of the edge's attention."""
        couplings = []
        for layer in self.layers:
            attention = isinstance(layer, dgl.nn.pytorch.GATConv)
            feat, c = layer(graph, feat, **{"get_attention" if attention else "get_coupling": True})
            feat, c = F.elu(feat.flatten(1)), c.flatten(1)
            couplings.append(c / c.sum(dim=1, keepdim=True))
        return couplings


def gathered(nodes: Tensor, items: Tensor) -> Tensor:
    """Features (M, F) of items. The features of a pair are the elementwise product of its two nodes' features."""
    if items.dim() == 1:
        return nodes[items]
    # Give all vectors the same length first, because products of small numbers are hard to learn from.
    return (F.normalize(nodes[items], dim=2) * nodes.shape[1] ** 0.5).prod(dim=1)


def concentrations(model: nn.Module) -> list[float]:
    """Kappa of each layer with spherical routing."""
    return [float(part.kappa.detach()) for part in model.modules() if isinstance(part, Spherical)]


def fit(
    model: nn.Module,
    data: Related,
    graph: dgl.DGLGraph,
    *,
    epochs: int,
    lr: float,
    weight_decay: float = WEIGHT_DECAY,
    patience: int = PATIENCE,
) -> dict:
    """Call ``run.fit`` on the items of a graph."""

    def answers(part: Tensor, seen: dgl.DGLGraph = graph) -> tuple[Tensor, Tensor]:
        return model(seen, data.features, data.items[part]), data.labels[part]

    def losses() -> list[Tensor]:
        return [F.cross_entropy(*answers(*visible(data, graph)))]

    rates = {"lr": lr, "weight_decay": weight_decay, "epochs": epochs, "patience": patience}
    return run.fit(model, losses, answers, data.val, data.test, score=measured, **rates)


def visible(data: Related, graph: dgl.DGLGraph) -> tuple[Tensor, dgl.DGLGraph]:
    """The training items of a step, and the graph of that step.

    If items are nodes, these are all training nodes and the whole graph. If items are pairs, they are all unrelated
    pairs and a random share of the joined pairs, whose edges are removed from the graph.
    """
    if data.items.dim() == 1:
        return data.train, graph
    edges = data.graph.num_edges()
    hidden = torch.rand(edges // 2) < HIDDEN
    present = torch.cat([~hidden, ~hidden, torch.ones(graph.num_edges() - edges).bool()])
    part = torch.cat([data.train[: edges // 2][hidden], data.train[edges // 2 :]])
    return part, dgl.edge_subgraph(graph, present, relabel_nodes=False, store_ids=False)


def measured(scores: Tensor, labels: Tensor) -> float:
    """Micro-F1 of scores (M, J, L) for labels (M, L). For J = 2, the micro average precision of class 1."""
    if scores.shape[1] > 2:
        return run.accuracy(scores, labels)
    return float(average_precision_score(labels.flatten().numpy(), (scores[:, 1] - scores[:, 0]).flatten().numpy()))


def information(c: Tensor, data: Related, among: Tensor | None = None) -> float:
    """How well couplings c (E, K) reveal the kinds of edges: 0 by chance, 1 if each kind has capsules of its own.

    This is the adjusted mutual information of kind and capsule, over edges with one kind, or those ``among`` (E,) bool.
    An edge's capsule is the one with its largest coupling. Couplings of self-loops may follow.
    """
    _, kind, capsule = kinds_and_capsules(c, data, among)
    return float(adjusted_mutual_info_score(kind.numpy(), capsule.numpy()))


def kinds_and_capsules(c: Tensor, data: Related, among: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
    """The numbers of the edges that ``information`` counts, their kinds, and their capsules, each (n,)."""
    counted = data.kinds.sum(dim=1) == 1
    which = (counted if among is None else counted & among).nonzero().flatten()
    return which, data.kinds[which].int().argmax(dim=1), c[which].argmax(dim=1)
