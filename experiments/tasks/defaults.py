"""What a default costs: ``CapsuleConv`` and ``CapsuleReadout`` as they route by default, beside equal couplings.

One setting for all, on graphs of many kinds: a row is a graph and a layout. In ``own`` each label is read from a
capsule of its own, in ``joined`` from all capsules, after a second layer where the task has one label. A default
should cost nothing on any row. Validation items choose the epoch, and the default; test items are read once.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from itertools import product
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from experiments import run, table
from experiments.data.archive import check_numbers, read_shaped
from experiments.data.cora import load_cora
from experiments.data.relations import Related, joined
from experiments.run import Place
from experiments.tasks import molecules, relations
from experiments.tasks.factors import OwnHeads
from graphcaps import dgl
from graphcaps.errors import check_name
from graphcaps.nn import CapsuleConv
from graphcaps.routing import Routing, Spherical, Uniform

ROUTINGS: dict[str, Callable[[], Routing]] = {
    "uniform": Uniform,
    "kappa from 0.1": lambda: Spherical(concentration=0.1),
    "kappa from 0.5": lambda: Spherical(concentration=0.5),
}
SEEDS, EPOCHS, PATIENCE, PART, PARTS, DROPOUT, LR, WEIGHT_DECAY = 3, 200, 30, 16, 8, 0.5, 0.01, 5e-4


def one_label(graph: dgl.DGLGraph, features: Tensor, labels: Tensor, *split: Tensor) -> Related:
    """A graph whose nodes have one label each."""
    pairs = torch.stack(graph.edges()).numpy()
    plain, kinds = joined(pairs, np.zeros((pairs.shape[1], 0), bool), len(labels))
    return Related(plain, features, kinds, (), torch.arange(len(labels)), labels[:, None], *split)


def cora(root: Path, seed: int) -> Related:
    data = load_cora(root)
    return one_label(data.graph, data.features, data.labels, data.train, data.val, data.test)


def from_dgl(name: str, root: Path, seed: int) -> Related:
    """A data set of DGL's, which downloads it into ``root/dgl`` where it isn't there; of ten splits the seed's."""
    graph = getattr(dgl.data, f"{name}Dataset")(raw_dir=str(root / "dgl"), verbose=False)[0]
    masks = [graph.ndata[f"{part}_mask"].view(graph.num_nodes(), -1) for part in ("train", "val", "test")]
    split = [mask[:, seed % mask.shape[1]].nonzero().flatten() for mask in masks]
    return one_label(graph, graph.ndata["feat"], graph.ndata["label"], *split)


def blog_catalog(root: Path, seed: int) -> Related:
    """Bloggers and the groups that each is in; features are 128 left singular vectors of the adjacency matrix."""
    path = root / "graphs" / "blogcatalog.npz"
    arrays = read_shaped(path, edges="2 M", groups_indptr="P", groups_indices="G")
    nodes = len(arrays["groups_indptr"]) - 1
    groups = check_numbers(path, "groups_indices", arrays["groups_indices"], 39)
    labels = torch.zeros(nodes, 39, dtype=torch.int64)
    labels[np.repeat(np.arange(nodes), np.diff(arrays["groups_indptr"])), groups] = 1
    edges = check_numbers(path, "edges", arrays["edges"], nodes)
    graph, kinds = joined(edges, np.zeros((edges.shape[1], 0), bool), nodes)
    torch.manual_seed(seed)
    ends, ones = torch.stack(graph.edges()), torch.ones(graph.num_edges())
    matrix = torch.sparse_coo_tensor(ends, ones, (nodes, nodes), check_invariants=False)
    features = torch.svd_lowrank(matrix, 128)[0] * nodes**0.5
    split = torch.randperm(nodes).tensor_split([round(0.6 * nodes), round(0.8 * nodes)])
    return Related(graph, features, kinds, (), torch.arange(nodes), labels, *split)


DATA: dict[str, Callable[[Path, int], Related]] = {
    **{name: made for name, made in relations.DATA.items() if "drawn" not in name},
    "Cora": cora,
    "Citeseer": functools.partial(from_dgl, "CiteseerGraph"),
    "Texas": functools.partial(from_dgl, "Texas"),
    "Wisconsin": functools.partial(from_dgl, "Wisconsin"),
    "BlogCatalog": blog_catalog,
}
ROWS = [
    *[(name, layout) for name in DATA for layout in (("own", "joined") if "factors" in name else ("joined",))],
    *[(name, "readout") for name in ("mutag", "proteins")],
]


class Network(nn.Module):
    """Scores (M, J, L) of items, from one layer of capsules, or two where items have one label."""

    def __init__(self, routing: str, data: Related, layout: str):
        super().__init__()
        self.labels, classes = data.labels.shape[1], int(data.labels.max()) + 1
        parts = self.labels if data.own else PARTS

        def layer(inputs: int, outputs: int, caps: int) -> CapsuleConv:
            return CapsuleConv(inputs, outputs, caps, ROUTINGS[routing](), squash_output=False)

        self.dropout, self.layers = nn.Dropout(DROPOUT), nn.ModuleList([layer(data.features.shape[1], PART, parts)])
        if self.labels == 1 and data.items.dim() == 1:
            self.layers.append(layer(PART * parts, classes, 1))
            self.heads: nn.Module = nn.Identity()
        else:
            own = layout == "own"
            self.heads = OwnHeads(parts, PART, classes) if own else nn.Linear(PART * parts, classes * self.labels)

    def forward(self, graph: dgl.DGLGraph, feat: Tensor, items: Tensor) -> Tensor:
        for number, layer in enumerate(self.layers):
            feat = layer(graph, self.dropout(F.elu(feat) if number else feat)).flatten(1)
        nodes = F.elu(feat)[items] if len(self.layers) == 1 else feat[items]
        if items.dim() == 2:
            nodes = (F.normalize(nodes, dim=2) * nodes.shape[2] ** 0.5).prod(dim=1)
        return self.heads(self.dropout(nodes) if len(self.layers) == 1 else nodes).unflatten(1, (self.labels, -1)).mT


def fit(place: Place, network: str, data: str, layout: str, seed: int, epochs: int) -> dict:
    """Train with one routing; the lowest validation loss chooses the epoch. Of molecules the seed is the fold."""
    if layout == "readout":
        return _molecules(place, network, data, seed, epochs)
    found = DATA[data](place.data, seed)
    torch.manual_seed(seed)
    graph, feat = dgl.add_self_loop(found.graph), found.features
    model = Network(network, found, layout)

    def scores(part: Tensor, seen: dgl.DGLGraph = graph) -> Tensor:
        return model(seen, feat, found.items[part])

    def losses() -> list[Tensor]:
        part, seen = relations.shown(found, graph)
        return [F.cross_entropy(scores(part, seen), found.labels[part])]

    result = run.fit(
        model,
        losses,
        lambda: (scores(found.val), found.labels[found.val]),
        lambda: scores(found.test),
        lr=LR,
        weight_decay=WEIGHT_DECAY,
        epochs=epochs,
        patience=PATIENCE,
    )
    del result["predicted"]
    with torch.no_grad():
        val, test = (relations.measured(scores(part), found.labels[part]) for part in (found.val, found.test))
    kappas = [float(part.kappa.detach()) for part in model.modules() if isinstance(part, Spherical)]
    return result | {"val_accuracy": val, "test": test, "concentration": kappas}


def _molecules(place: Place, network: str, data: str, fold: int, epochs: int) -> dict:
    """Of one fold, with the settings that ``molecules`` tries first."""
    graphs, epochs = molecules.load_graphs(data.upper(), place.data), min(epochs, molecules.EPOCHS[data])

    def readout(width: int, classes: int) -> molecules.ClassCapsules:
        return molecules.ClassCapsules(width, classes, ROUTINGS[network]())

    _, result = molecules.train(graphs, readout, molecules.SETTINGS[0], fold, 0, epochs)
    return result | {"test": run.accuracy(result, torch.from_numpy(graphs.labels[graphs.folds[fold]]))}


def rows(place: Place, only: Sequence[str] = (), seeds: int | None = None, quick: bool = False) -> list[dict]:
    """For each graph and layout a row of each routing, of ``seeds`` trainings with the same settings."""
    made, seeds, epochs = [], seeds or (1 if quick else SEEDS), 3 if quick else EPOCHS
    known = dict.fromkeys(data for data, _ in ROWS)
    for name in only:
        check_name("task", name, [*known])
    for data, layout in (row for row in ROWS if not only or row[0] in only):
        starts = range(molecules.FOLDS if layout == "readout" and not quick else seeds)
        trials = [
            {"network": routing, "data": data, "layout": layout, "seed": seed, "epochs": epochs}
            for routing, seed in product(ROUTINGS, starts)
        ]
        fits = iter(run.run(fit, trials, place, f"{data}, {layout}"))
        for routing in ROUTINGS:
            own = [next(fits) for _ in starts]
            row = table.row(routing, own, [each["test"] for each in own], [{}])
            kept = {
                "val": [each["val_accuracy"] for each in own],
                "kappas": [each.get("concentration") for each in own],
            }
            made.append({"data": data, "layout": layout, **row, **kept})
    return made
