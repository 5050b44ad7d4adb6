"""Graphs with latent factors: predict a node's K classes, and compare couplings with the factors of the edges.

``experiments.data.factors`` draws the graphs. Six networks with equally many features per node are compared: GCN, GAT,
and ``CapsuleConv`` with four routings. These are equal couplings (uniform), the routing of the 2017 paper (dynamic),
spherical routing (capsules), and spherical routing whose logits both directions of an edge share (mutual). The
couplings of the last two are compared with the true factors of the edges. No network gets these factors. A node has one
class per factor, so the share of right classes is the micro-F1.

Settings are chosen on validation nodes. One of them, ``heads``, says from where a factor's classes are read: from all
features of a node, or from one of its K parts. A part is a capsule, a head of GAT, or 16 channels of GCN.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import product

import torch
from sklearn.metrics import adjusted_mutual_info_score
from torch import Tensor, nn
from torch.nn import functional as F

from experiments import run, table
from experiments.data.beliefs import beliefs
from experiments.data.factors import FactorGraph, factor_graph
from experiments.run import Place
from experiments.task import Task
from graphcaps import dgl
from graphcaps.nn import CapsuleConv
from graphcaps.routing import Routing, Spherical


def capsule_layer(inputs: int, outputs: int, caps: int, routing: Routing | str) -> CapsuleConv:
    return CapsuleConv(inputs, outputs, caps, routing, squash_output=False)


def spherical_layer(inputs: int, outputs: int, caps: int, mutual=False, unit_votes=False, **own) -> CapsuleConv:
    options = {"squash_output": False, "mutual": mutual, "unit_votes": unit_votes}
    return CapsuleConv(inputs, outputs, caps, Spherical(**own), **options)


LAYERS: dict[str, Callable[..., nn.Module]] = {
    # Arguments: number of a node's features, numbers in each part, number of parts.
    "GCN": lambda inputs, outputs, parts: dgl.nn.pytorch.GraphConv(inputs, outputs * parts),
    "GAT": lambda inputs, outputs, parts: dgl.nn.pytorch.GATConv(inputs, outputs, parts),
    "uniform": lambda *sizes: capsule_layer(*sizes, "uniform"),
    "dynamic": lambda *sizes: capsule_layer(*sizes, "dynamic"),
    "capsules": spherical_layer,
    "mutual": partial(spherical_layer, mutual=True),
}
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
BOUND = "belief propagation, told the generator's probabilities"
EPOCHS, PATIENCE = 400, 50
PART, DROPOUT, WEIGHT_DECAY = 16, 0.5, 5e-4


class OwnHeads(nn.Module):
    """Map parts (N, K * D) of nodes to scores (N, K * J). The scores of factor k depend only on part k."""

    def __init__(self, factors: int, part: int, classes: int):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(factors, part, classes) / part**0.5)
        self.bias = nn.Parameter(torch.zeros(factors, classes))

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
        self.heads = OwnHeads(labels, PART, classes) if own else nn.Linear(width, classes * labels)

    def forward(self, graph: dgl.DGLGraph, feat: Tensor, items: Tensor | None = None) -> Tensor:
        for layer in self.layers:
            feat = F.elu(layer(graph, self.dropout(feat)).flatten(1))
        feat = feat if items is None else gathered(feat, items)
        return self.heads(self.dropout(feat)).unflatten(1, (self.labels, -1)).transpose(1, 2)

    @torch.no_grad()
    def couplings(self, graph: dgl.DGLGraph, feat: Tensor) -> list[Tensor]:
        """The couplings (E, K) of each capsule layer."""
        couplings = []
        for layer in self.layers:
            feat, c = layer(graph, feat, get_coupling=True)
            feat = F.elu(feat.flatten(1))
            couplings.append(c.flatten(1))
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


def fit(place: Place, network: str, settings: dict, seed: int, quick: bool, factors: int) -> dict:
    """Train one network on the graph of the seed. The validation loss chooses the epoch."""
    data = factor_graph(seed, factors)
    if network == BOUND:
        return upper_bound(data)
    torch.manual_seed(seed)
    graph, shape = dgl.add_self_loop(data.graph), dict(settings)  # self-loops come after the other edges
    rates, width = {"lr": shape.pop("lr"), "weight_decay": WEIGHT_DECAY}, PART * factors
    count, own = shape.pop("layers"), shape.pop("heads") == "own"
    sizes = [data.features.shape[1], *[width] * (count - 1)]
    layers = (LAYERS[network](size, PART, factors, **shape) for size in sizes)
    model = Network(layers, width, data.num_classes, factors, own)

    def answers(part: Tensor) -> tuple[Tensor, Tensor]:
        return model(graph, data.features)[part], data.labels[part]

    def losses() -> list[Tensor]:
        return [F.cross_entropy(*answers(data.train))]

    rates |= {"epochs": 3 if quick else EPOCHS, "patience": PATIENCE}
    result = run.fit(model, losses, answers, data.val, data.test, **rates)
    if network in ROUTED:
        result["layers"] = [recovery(c[: data.graph.num_edges()], data) for c in model.couplings(graph, data.features)]
        result["concentration"] = concentrations(model)
    return result


def recovery(c: Tensor, data: FactorGraph) -> dict:
    """Measure how well couplings (E, K) reveal the factors of edges, for edges that only one factor generated.

    Returns:
        ``score``: the ``information`` of factors and capsules. An edge's capsule is the one with its largest coupling.
        ``table`` (K, K): the number of edges for each factor (row) and capsule (column). ``edges``: neighbour, factor
        and capsule of each edge into node 0.
    """
    which, factor = data.single()
    capsule = c[which].argmax(dim=1)
    size = data.labels.shape[1]
    counts = torch.bincount(factor * c.shape[1] + capsule, minlength=size * c.shape[1]).view(size, -1)
    src, dst = (ends[which] for ends in data.graph.edges())
    first = dst == 0
    edges = torch.stack([src[first], factor[first], capsule[first]], dim=1)
    return {"score": information(factor, capsule), "table": counts.tolist(), "edges": edges.tolist()}


def information(factor: Tensor, capsule: Tensor) -> float:
    """Adjusted mutual information of two labellings (M,) of edges: 0 by chance, 1 if they are the same partition."""
    return float(adjusted_mutual_info_score(factor.numpy(), capsule.numpy()))


def upper_bound(data: FactorGraph) -> dict:
    """Upper bounds for networks, by belief propagation: micro-F1 on the test nodes, and information of the causes."""
    classes, causes = beliefs(data)
    right = (classes.argmax(dim=2) == data.labels)[data.test].double().mean()
    return {"test": float(right), "layers": [recovery(causes, data)]}


def row(network: str, fits: list[dict], settings: Sequence[dict]) -> dict:
    """A row with the information of each layer's couplings. That of ``mutual`` has a picture of the first graph."""
    numbers = table.row(network, fits, settings)
    if "layers" in fits[0]:
        layers = [*zip(*(fit["layers"] for fit in fits), strict=True)]
        spreads = [table.spread([recovered["score"] for recovered in layer]) for layer in layers]
        numbers["recovered"] = {f"layer {n}": scores for n, scores in enumerate(spreads, 1)}
    if "concentration" in fits[0]:
        numbers["concentration"] = [fit["concentration"] for fit in fits]
    if network == "mutual":
        best = max(range(len(layers)), key=lambda n: spreads[n]["mean"])
        numbers["picture"] = {"layer": best + 1, "graph": 0, "node": 0, **layers[best][0]}
    return numbers


def cells(rows: Iterable[dict]) -> Iterator[dict[str, object]]:
    for row, texts in zip(rows, table.cells(rows), strict=True):
        layers = [f"{table.score(scores)} in {layer}" for layer, scores in row.get("recovered", {}).items()]
        yield {"factors": row["factors"], **texts, "information": ", ".join(layers) or "-"}


TASK = Task(
    "factors",
    fit,
    lambda factors: SETTINGS | {BOUND: [{}]},
    cases=({"factors": 4}, {"factors": 8}),
    seeds=lambda case, network: 10,
    trial_seeds=range(1000, 1003),
    row=row,
    cells=cells,
    score="micro-F1",
)
