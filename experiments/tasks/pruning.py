"""What a trained network loses with fewer edges, without training again.

The strength of an edge of the last capsule layer is its mean coupling over the training images, after the trained
iterations. Each child keeps its k strongest edges, and the network routes on the graph that is left. Controls have as
many edges per child: random ones, and the weakest. If coupling means anything, they must do worse.

k is to be judged by the validation images; test images choose nothing.
"""

from __future__ import annotations

import copy

import torch
from torch import nn

from experiments.run import Place
from graphcaps import bipartite_graph, dgl
from graphcaps.analysis.accuracy import EVALUATION_BATCH, evaluating
from graphcaps.analysis.capsule_usage import routed_batches
from graphcaps.data import Batches, load_images
from graphcaps.errors import check_whole, expect
from graphcaps.models import CapsNet, routing_network
from graphcaps.models.answers import is_correct, longest, overlaid
from graphcaps.nn import CapsuleLayer
from graphcaps.progress import bar
from graphcaps.training.hardware import pick_device
from graphcaps.training.run_folder import Run, load

DRAWS, KEEP = 5, (1, 2, 3, 5)
"""Random controls for each k, and the k that are measured."""


def strongest_edges(strength: torch.Tensor, k: int) -> torch.Tensor:
    """Which of each child's out-edges are its k strongest, ascending; of equally strong ones the first.

    Args:
        strength: (I, J) of the edges of a complete graph.
        k: 1 to J.
    """
    order = strength.argsort(dim=1, descending=True, stable=True)[:, :k]
    first = strength.shape[1] * torch.arange(len(strength))[:, None]
    return (first + order).flatten().sort().values


class PrunedCaps(CapsuleLayer):
    """A copy of a ``CapsuleLayer`` with some of its edges: their matrices, and routing on the graph of them alone.

    Args:
        layer: the layer, whose graph is complete.
        edges: (E',) int64, ascending: which of the layer's edges.

    Shapes:
        u (I, B, P) -> v (J, B, D)
    """

    def __init__(self, layer: CapsuleLayer, edges: torch.Tensor):
        nn.Module.__init__(self)  # CapsuleLayer's would draw weights for all edges
        self.num_children, self.num_parents = layer.num_children, layer.num_parents
        self.routing = copy.deepcopy(layer.routing)
        self.weight = nn.Parameter(layer.weight.detach()[edges])
        self.prior = None if layer.prior is None else nn.Parameter(layer.prior.detach()[edges])
        ends = edges // layer.num_parents, edges % layer.num_parents
        self._graph = bipartite_graph(*ends, layer.num_children, layer.num_parents)

    def graph(self, device: torch.device | str = "cpu") -> dgl.DGLGraph:
        """The graph the layer routes on."""
        return self._graph.local_var()


def mean_coupling(model: CapsNet, batches: Batches) -> torch.Tensor:
    """The mean over all images of each coupling of the last capsule layer, after the trained iterations.

    Returns:
        (E,) float64 on the CPU, in [0, 1]; sums to 1 over each child's edges.
    """
    total, seen = torch.zeros(model.capsules.graph().num_edges(), dtype=torch.float64), 0
    with bar("couplings of the training images") as on_progress:
        for _, c, _ in routed_batches(model, batches):
            total += c.sum(dim=1).cpu()
            seen += c.shape[1]
            on_progress(seen / batches.num_images)
    return total / seen


def prune(model: CapsNet, strength: torch.Tensor, keep: tuple[int, ...], val: Batches, test: Batches) -> dict:
    """Count right answers with k edges per child, for each k of ``keep`` and with all edges; the network isn't changed.

    Args:
        model: on the CPU.
        strength: (E,) of each edge, as ``mean_coupling`` gives it.
        keep: numbers of edges per child, each >= 1; those that leave every child its edges are all edges.
        val, test: the images; each is taken through the network up to its children once.

    Returns:
        what ``table.pruning`` shows: sizes, and ``rows`` by k, all edges last.

    Raises:
        InputError: a layer whose edges share matrices, or a k that isn't a number of edges of a child.
    """
    layer, then = model.capsules, "compact, paper and deep have it; in parts and matrix a matrix is for all positions"
    expect(
        isinstance(layer, CapsuleLayer), "network", "a last layer with a matrix per edge", type(layer).__name__, then
    )
    for k in keep:
        check_whole("keep", k, 1, layer.num_parents)
    ranks = torch.rand(DRAWS, len(strength), generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    layers, sizes = [], {}
    for k in sorted(set(keep) - {layer.num_parents}):
        edges = [strongest_edges(by.view(-1, layer.num_parents), k) for by in (strength, *ranks, -strength)]
        layers += [PrunedCaps(layer, some) for some in edges]
        sizes[k] = len(edges[0])
    correct = {name: _correct(model, [*layers, layer], part) for name, part in (("val", val), ("test", test))}

    def score(n: int) -> dict:
        found = {f"{name}_correct": correct[name][n] for name in ("val", "test")}
        return found | {
            "val_accuracy": found["val_correct"] / val.num_images,
            "test_accuracy": found["test_correct"] / test.num_images,
        }

    rows: list[dict] = []
    for n, (k, edges) in enumerate(sizes.items()):
        strongest, *drawn, weakest = map(score, range(n * (DRAWS + 2), (n + 1) * (DRAWS + 2)))
        about = {"k": k, "edges": edges, "share": edges / len(strength)}
        rows.append(about | {"strongest": strongest, "random": drawn, "weakest": weakest})
    whole = {"k": None, "edges": len(strength), "share": 1.0}
    rows.append(whole | {"strongest": score(len(layers)), "random": [], "weakest": None})
    least = next(row["k"] for row in rows if row["strongest"]["val_correct"] >= rows[-1]["strongest"]["val_correct"])
    return {
        "val_images": val.num_images,
        "test_images": test.num_images,
        "edges": len(strength),
        "enough": least,  # the fewest edges that lose no validation image; None: all
        "rows": rows,
        "strength": [round(value, 6) for value in strength.tolist()],
    }


@torch.no_grad()
def _correct(model: CapsNet, layers: list[CapsuleLayer], batches: Batches) -> list[int]:
    """Right answers of the network with each of ``layers`` in the place of its last one."""
    correct = torch.zeros(len(layers), dtype=torch.int64)
    with evaluating(model):
        for images, labels in batches.in_order():
            u = model.children_of(overlaid(images))  # (I, B, P)
            for n, layer in enumerate(layers):
                lengths = torch.linalg.vector_norm(layer(u), dim=-1).T  # (B, J)
                correct[n] += is_correct(longest(lengths, model.objects), labels).sum().cpu()
    return correct.tolist()


def of_run(run: Run, place: Place, keep: tuple[int, ...] = KEEP) -> dict:
    """``prune`` of a run's network, on the data set that it was trained on."""
    device = pick_device("cpu")
    model, config = routing_network(load(run, device=device), str(run)), run.config
    splits = load_images(config.dataset, place.data, **config.of_images).for_augment(config.augment)
    train, val, test = (
        Batches(part, EVALUATION_BATCH, device=device) for part in (splits.train, splits.val, splits.test)
    )
    found = prune(model, mean_coupling(model, train), keep, val, test)
    command = f"python -m experiments pruning RUN --keep {' '.join(map(str, keep))}"
    about = {"command": command, "train_images": train.num_images}
    return {**about, "model": config.model, "dataset": config.dataset, **found}
