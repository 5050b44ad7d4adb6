"""The accuracy of a trained network after some edges of its last capsule layer are removed, without further training.

The strength of an edge is its mean coupling over the training images, after as many iterations as in training. Each
child keeps its k strongest edges. The prior of the other edges is set to -inf, so that their coupling is 0 in every
iteration. As controls, each child keeps k random edges, or its k weakest. If couplings are meaningful, the controls
must have lower accuracies.

Choose k by the accuracy on validation images, never by that on test images.
"""

from statistics import fmean

import torch
from torch import nn

from experiments import table
from experiments.run import Place
from graphcaps.errors import check_whole, expect, required
from graphcaps.images.analysis.accuracy import EVALUATION_BATCH, in_eval_mode
from graphcaps.images.data import Batches, load_images
from graphcaps.images.models import CapsNet, routing_network
from graphcaps.images.models.answers import is_correct, longest, overlaid
from graphcaps.images.training.run_folder import Run, load
from graphcaps.nn import CapsuleLayer
from graphcaps.nn.routed import route_layer
from graphcaps.progress import bar

DRAWS = 5
"""The number of random controls for each k."""


def strongest_edges(strength: torch.Tensor, k: int) -> torch.Tensor:
    """(I, J) bool: the k strongest edges of each child, for strengths (I, J). Of equal ones, the first is chosen."""
    order = strength.argsort(dim=1, descending=True, stable=True)[:, :k]
    return torch.zeros_like(strength, dtype=torch.bool).scatter(1, order, True)


@torch.no_grad()
def mean_coupling(model: CapsNet, batches: Batches) -> torch.Tensor:
    """(E,) float64: means over all images of the last layer's couplings, after as many iterations as in training."""
    total = torch.zeros(model.capsules.graph().num_edges(), dtype=torch.float64)
    with bar("couplings of the training images") as on_progress:
        for images, _ in in_eval_mode(model, batches, on_progress):
            routed = route_layer(model.capsules, model.children_of(overlaid(images)), coupling=True)
            c = required(routed.coupling, "routing", "one that returns its couplings", repr(model.capsules.routing))
            total += c.sum(dim=1).cpu()
    return total / batches.num_images


def prune(model: CapsNet, strength: torch.Tensor, keep: tuple[int, ...], val: Batches, test: Batches) -> list[dict]:
    """Count right answers with k edges per child, for each k of ``keep``, and with all edges. The network is unchanged.

    ``strength`` (E,) is the result of ``mean_coupling``. Raises ``InputError`` if the edges of the layer share
    matrices, or if a child has fewer than k edges.
    """
    layer, advice = model.capsules, "compact, paper and deep have one; in parts and matrix all positions share a matrix"
    wanted = "a last layer with a matrix per edge"
    expect(isinstance(layer, CapsuleLayer), "network", wanted, type(layer).__name__, advice)
    for k in keep:
        check_whole("keep", k, 1, layer.num_parents)
    ranks = torch.rand(DRAWS, len(strength), generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    orders = [order.view(-1, layer.num_parents) for order in (strength, *ranks, -strength)]
    few = sorted(set(keep) - {layer.num_parents})
    choices = [strongest_edges(order, k).flatten() for k in few for order in orders]
    choices.append(torch.ones(len(strength), dtype=torch.bool))
    scores: list[dict] = [{} for _ in choices]
    for part, batches in (("val", val), ("test", test)):
        for numbers, correct in zip(scores, _right_answers(model, choices, batches), strict=True):
            numbers |= {f"{part}_correct": correct, f"{part}_accuracy": correct / batches.num_images}
    rows: list[dict] = []
    for n, k in enumerate(few):
        strongest, *drawn, weakest = scores[n * len(orders) : (n + 1) * len(orders)]
        row = {"k": k, "edges": k * layer.num_children}
        rows.append(row | {"strongest": strongest, "random": drawn, "weakest": weakest})
    return [*rows, {"k": None, "edges": len(strength), "strongest": scores[-1], "random": [], "weakest": None}]


@torch.no_grad()
def _right_answers(model: CapsNet, choices: list[torch.Tensor], batches: Batches) -> list[int]:
    """The number of right answers of the network for each choice of edges, (E,) bool."""
    correct, layer, prior = torch.zeros(len(choices), dtype=torch.int64), model.capsules, model.capsules.prior
    whole = torch.zeros(len(choices[0])) if prior is None else prior
    priors = [nn.Parameter(whole.where(edges, -torch.inf)) for edges in choices]
    try:
        for images, labels in in_eval_mode(model, batches):
            u = model.children_of(overlaid(images))  # (I, B, P)
            for n, layer.prior in enumerate(priors):
                lengths = torch.linalg.vector_norm(layer(u), dim=-1).T  # (B, J)
                correct[n] += is_correct(longest(lengths, model.objects), labels).sum()
    finally:
        layer.prior = prior
    return correct.tolist()


def of_run(run: Run, place: Place, keep: tuple[int, ...]) -> dict:
    """Call ``prune`` on a run's network, with the data set of its training."""
    model, config = routing_network(load(run), str(run)), run.config
    splits = load_images(config.dataset, place.data, **config.of_images).for_augment(config.augment)
    train, val, test = (Batches(part, EVALUATION_BATCH) for part in (splits.train, splits.val, splits.test))
    strength = mean_coupling(model, train)
    return {
        "command": f"python -m experiments pruning RUN --keep {' '.join(map(str, keep))}",
        "model": config.model,
        "dataset": config.dataset,
        "train_images": train.num_images,
        "test_images": test.num_images,
        "rows": prune(model, strength, keep, val, test),
        "strength": [round(value, 6) for value in strength.tolist()],
    }


def markdown(result: dict) -> str:
    """A row per number of edges that a child keeps, with the accuracy of the controls."""
    rows = []
    for row in result["rows"]:
        best, drawn = row["strongest"], [scores["test_accuracy"] for scores in row["random"]]
        cells = {"edges per child": row["k"] or "all", "edges": row["edges"]}
        cells |= {f"{part} accuracy": f"{best[f'{part}_accuracy']:.2%}" for part in ("val", "test")}
        cells["wrong"] = f"{result['test_images'] - best['test_correct']:,} of {result['test_images']:,}"
        if drawn:
            cells["test, random"] = f"{fmean(drawn):.2%} ({min(drawn):.2%} to {max(drawn):.2%})"
            cells["test, weakest"] = f"{row['weakest']['test_accuracy']:.2%}"
        rows.append(cells)
    about = f"{result['model']} on {result['dataset']}, strength from {result['train_images']:,} images"
    return f"`{result['command']}`: {about}\n\n{table.table(rows)}"
