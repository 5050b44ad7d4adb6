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

import torch
from torch import nn

from experiments import networks, table
from experiments.data.related import Related
from experiments.data.relations import blog_catalog, from_dgl, load_cora
from experiments.networks import PART, Network, TwoLayers, capsules
from experiments.run import Place
from experiments.task import Task
from experiments.tasks import molecules, relations
from graphcaps import dgl
from graphcaps.nn import CapsuleConv
from graphcaps.routing import Routing, Spherical, Uniform

ROUTINGS: dict[str, Callable[[], Routing]] = {
    "uniform": Uniform,
    "kappa from 0.1": lambda: Spherical(concentration=0.1),
    "kappa from 0.5": lambda: Spherical(concentration=0.5),
}
EPOCHS, PARTS, DROPOUT = 200, 8, 0.5


DATA: dict[str, Callable[[Path, int], Related]] = {
    **relations.DATA,
    "Cora": lambda root, seed: load_cora(root),
    "Citeseer": lambda root, seed: from_dgl("CiteseerGraph", root / "dgl", seed),
    "Texas": lambda root, seed: from_dgl("Texas", root / "dgl", seed),
    "Wisconsin": lambda root, seed: from_dgl("Wisconsin", root / "dgl", seed),
    "BlogCatalog": lambda root, seed: blog_catalog(root / "graphs" / "blogcatalog.npz", seed),
}
CASES = [
    *[(name, layout) for name in DATA for layout in (("own", "joined") if "factors" in name else ("joined",))],
    *[(name, "readout") for name in ("mutag", "proteins")],
]


def routed(network: str, *sizes: int) -> CapsuleConv:
    return capsules(ROUTINGS[network](), *sizes)


def fit(place: Place, network: str, settings: dict, seed: int, quick: bool, data: str, layout: str) -> dict:
    """Train with one routing. The validation loss chooses the epoch. For molecules, the seed is the fold's number."""
    epochs = 3 if quick else EPOCHS
    if layout == "readout":
        graphs, epochs = molecules.load_graphs(data.upper(), place.data), min(epochs, molecules.EPOCHS[data])
        readout = partial(molecules.ClassCapsules, ROUTINGS[network]())
        return molecules.train(graphs, readout, molecules.SETTINGS[0], seed, epochs)
    related = DATA[data](place.data, seed)
    torch.manual_seed(seed)
    inputs, labels, classes = related.features.shape[1], related.labels.shape[1], related.num_classes
    if labels == 1 and related.items.dim() == 1:
        model: nn.Module = TwoLayers(partial(routed, network), inputs, classes, PART, PARTS, DROPOUT)
    else:
        parts = labels if related.own else PARTS
        layer = routed(network, inputs, PART, parts)
        model = Network([layer], PART * parts, classes, labels, layout == "own", DROPOUT)
    return networks.fit(model, related, dgl.add_self_loop(related.graph), epochs=epochs, lr=0.01, patience=30)


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
    cells=cells,
    index=2,
    score="score",
)
