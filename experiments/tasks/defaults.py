"""Does default routing cost accuracy? ``CapsuleConv`` and ``CapsuleReadout`` with it are compared with the same layers
with equal couplings.

Settings are the same for all graphs. A row is a graph and a layout. With layout ``own``, each label is read from its
own capsule. With ``joined``, all labels are read from all capsules, and tasks with one label have a second layer. With
``readout``, whole graphs are classified. A good default costs nothing in any row. The epoch and the default are chosen
on validation items.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from experiments import table
from experiments.data.cora import load_cora
from experiments.data.relations import Related, joined, read_archive
from experiments.run import Place
from experiments.task import Task
from experiments.tasks import molecules, relations
from experiments.tasks.factors import Network, capsule_layer, concentrations
from graphcaps import dgl
from graphcaps.routing import Routing, Spherical, Uniform

ROUTINGS: dict[str, Callable[[], Routing]] = {
    "uniform": Uniform,
    "kappa from 0.1": lambda: Spherical(concentration=0.1),
    "kappa from 0.5": lambda: Spherical(concentration=0.5),
}
EPOCHS, PART, PARTS, DROPOUT = 200, 16, 8, 0.5
RATES = {"lr": 0.01, "weight_decay": 5e-4, "patience": 30}


def one_label(graph: dgl.DGLGraph, features: Tensor, labels: Tensor, *split: Tensor) -> Related:
    """Make a graph whose nodes have one label each."""
    pairs = torch.stack(graph.edges()).numpy()
    plain, kinds = joined(pairs, np.zeros((pairs.shape[1], 0), bool), len(labels))
    return Related(plain, features, kinds, (), torch.arange(len(labels)), labels[:, None], *split)


def cora(root: Path, seed: int) -> Related:
    data = load_cora(root)
    return one_label(data.graph, data.features, data.labels, data.train, data.val, data.test)


def from_dgl(name: str, root: Path, seed: int) -> Related:
    """A graph of DGL, from ``root/dgl``. If it isn't there, DGL downloads it. The seed picks one of its splits."""
    graph = getattr(dgl.data, f"{name}Dataset")(raw_dir=str(root / "dgl"), verbose=False)[0]
    masks = [graph.ndata[f"{part}_mask"].view(graph.num_nodes(), -1) for part in ("train", "val", "test")]
    split = [mask[:, seed % mask.shape[1]].nonzero().flatten() for mask in masks]
    return one_label(graph, graph.ndata["feat"], graph.ndata["label"], *split)


def blog_catalog(root: Path, seed: int) -> Related:
    """Bloggers. Labels are their groups, and features are 128 left singular vectors of the adjacency matrix."""
    arrays = read_archive(root / "graphs" / "blogcatalog.npz")
    starts, edges = arrays["groups_indptr"], arrays["edges"].astype(np.int64)
    nodes = len(starts) - 1
    labels = torch.zeros(nodes, 39, dtype=torch.int64)
    labels[np.repeat(np.arange(nodes), np.diff(starts)), arrays["groups_indices"].astype(np.int64)] = 1
    graph, kinds = joined(edges, np.zeros((edges.shape[1], 0), bool), nodes)
    torch.manual_seed(seed)
    ends, ones = torch.stack(graph.edges()), torch.ones(graph.num_edges())
    matrix = torch.sparse_coo_tensor(ends, ones, (nodes, nodes), check_invariants=False)
    features = torch.svd_lowrank(matrix, 128)[0] * nodes**0.5
    split = torch.randperm(nodes).tensor_split([round(0.6 * nodes), round(0.8 * nodes)])
    return Related(graph, features, kinds, (), torch.arange(nodes), labels, *split)


DATA: dict[str, Callable[[Path, int], Related]] = {
    **{name: read for name, read in relations.DATA.items() if "drawn" not in name},
    "Cora": cora,
    "Citeseer": partial(from_dgl, "CiteseerGraph"),
    "Texas": partial(from_dgl, "Texas"),
    "Wisconsin": partial(from_dgl, "Wisconsin"),
    "BlogCatalog": blog_catalog,
}
CASES = [
    *[(name, layout) for name in DATA for layout in (("own", "joined") if "factors" in name else ("joined",))],
    *[(name, "readout") for name in ("mutag", "proteins")],
]


class TwoLayers(nn.Module):
    """Two layers for nodes with one label. They return scores (M, J, 1)."""

    def __init__(self, routing: Callable[[], Routing], inputs: int, classes: int):
        super().__init__()
        self.dropout = nn.Dropout(DROPOUT)
        self.first = capsule_layer(inputs, PART, PARTS, routing())
        self.second = capsule_layer(PART * PARTS, classes, 1, routing())

    def forward(self, graph: dgl.DGLGraph, feat: Tensor, items: Tensor) -> Tensor:
        hidden = F.elu(self.first(graph, self.dropout(feat)).flatten(1))
        return self.second(graph, self.dropout(hidden)).flatten(1)[items].unsqueeze(2)


def fit(place: Place, network: str, settings: dict, seed: int, quick: bool, data: str, layout: str) -> dict:
    """Train with one routing. The validation loss chooses the epoch. For molecules, the seed is the fold's number."""
    routing, epochs = ROUTINGS[network], 3 if quick else EPOCHS
    if layout == "readout":
        graphs, epochs = molecules.load_graphs(data.upper(), place.data), min(epochs, molecules.EPOCHS[data])
        readout = partial(molecules.ClassCapsules, routing=routing())
        return molecules.train(graphs, readout, molecules.SETTINGS[0], seed, epochs)
    related = DATA[data](place.data, seed)
    torch.manual_seed(seed)
    inputs, labels, classes = related.features.shape[1], related.labels.shape[1], int(related.labels.max()) + 1
    if labels == 1 and related.items.dim() == 1:
        model: nn.Module = TwoLayers(routing, inputs, classes)
    else:
        parts = labels if related.own else PARTS
        layer = capsule_layer(inputs, PART, parts, routing())
        model = Network([layer], PART * parts, classes, labels, layout == "own", DROPOUT)
    result = relations.fit_items(model, related, dgl.add_self_loop(related.graph), epochs, RATES)
    return result | {"concentration": concentrations(model)}


def row(network: str, fits: list[dict], settings: list[dict]) -> dict:
    val, kappas = ([fit.get(key) for fit in fits] for key in ("val_accuracy", "concentration"))
    return table.row(network, fits, settings) | {"val": val, "kappas": kappas}


def cells(rows: Iterable[dict]) -> Iterator[dict[str, object]]:
    uniform = {(row["data"], row["layout"]): row["test"] for row in rows if row["name"] == "uniform"}
    for row in rows:
        case, score = (row["data"], row["layout"]), table.percent(row["test_mean"], row["test_sd"])
        gap = table.lead(row["test"], uniform[case], molecules.OVERLAP if row["layout"] == "readout" else 0.0)
        text = score if row["name"] == "uniform" else f"{score}, {gap}"
        yield {"graph": row["data"], "layout": row["layout"], row["name"]: text}


TASK = Task(
    "defaults",
    fit,
    lambda data, layout: dict.fromkeys(ROUTINGS, [{}]),
    cases=[{"data": data, "layout": layout} for data, layout in CASES],
    seeds=lambda case, network: molecules.FOLDS if case["layout"] == "readout" else 3,
    row=row,
    cells=cells,
    index=2,
    score="score",
)
