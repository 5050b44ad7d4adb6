"""What a trained network loses with fewer edges, without training again.

The strength of an edge of the last capsule layer is its mean coupling over images, after the trained iterations. Each
child keeps its k strongest edges, and the network routes on the graph that is left. Controls have as many edges per
child: random ones, and the weakest. If coupling means anything, they must do worse.

Strength comes from training images, which k loses nothing from validation images; test images choose nothing.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass

import torch

from ..data import Batches
from ..errors import expect
from ..graph import links, strongest_edges
from ..models import CapsNet
from ..models.objects import longest, overlaid, right
from ..nn import CapsuleLayer, PrunedCaps
from .accuracy import evaluating
from .capsule_usage import routed_batches

DRAWS = 5
"""Random controls for each k."""


@dataclass(frozen=True)
class Score:
    """Right answers on the validation and on the test images."""

    val_correct: int
    test_correct: int


@dataclass(frozen=True)
class Row:
    """The network with at most ``k`` edges per child."""

    k: int | None
    """None: all."""
    edges: int
    strongest: Score
    random: tuple[Score, ...] = ()
    """One for each draw; none beside all edges."""
    weakest: Score | None = None


@dataclass(frozen=True)
class Pruning:
    """Rows by k, all edges last; the accuracies are shares of ``val_images`` and ``test_images``."""

    strength: torch.Tensor
    """(E,) float64, of each edge."""
    val_images: int
    test_images: int
    rows: tuple[Row, ...]

    @property
    def enough(self) -> Row:
        """The row with the fewest edges that loses no validation image to all edges."""
        return next(row for row in self.rows if row.strongest.val_correct >= self.rows[-1].strongest.val_correct)

    def as_dict(self) -> dict:
        """All numbers, plain: what the picture is drawn from."""

        def shares(score: Score) -> dict:
            correct = {"val_correct": score.val_correct, "test_correct": score.test_correct}
            val, test = score.val_correct / self.val_images, score.test_correct / self.test_images
            return {**correct, "val_accuracy": val, "test_accuracy": test}

        rows = [
            {
                "k": row.k,
                "edges": row.edges,
                "share": row.edges / len(self.strength),
                "strongest": shares(row.strongest),
                "random": [shares(score) for score in row.random],
                "weakest": row.weakest and shares(row.weakest),
            }
            for row in self.rows
        ]
        return {
            "val_images": self.val_images,
            "test_images": self.test_images,
            "edges": len(self.strength),
            "enough": self.enough.k,
            "rows": rows,
            "strength": [round(value, 6) for value in self.strength.tolist()],
        }

    def to_json(self, **about: str | int) -> str:
        """``as_dict`` as JSON, with what the numbers are of."""
        return json.dumps({**about, **self.as_dict()}, indent=1) + "\n"


def check_keep(model: CapsNet, keep: tuple[int, ...]) -> None:
    """Raise ``InputError`` where a child of the last capsule layer is to keep more edges than any child has.

    Or where children share their matrices, so that there is nothing to leave out.
    """
    prunes, kind = isinstance(model.capsules, CapsuleLayer), type(model.capsules).__name__
    then = "compact, paper and deep have it; in parts and matrix a matrix is for all positions"
    expect(prunes, "network", "a last layer with a matrix per edge", f"{kind}, whose matrices edges share", then)
    most = int(torch.bincount(links(model.capsules.graph()).src).max())
    for k in keep:
        expect(k <= most, "keep", f"numbers from 1 to {most}, the edges that a child has, and all", k)


def mean_coupling(
    model: CapsNet, batches: Batches, on_share: Callable[[float], object] = lambda share: None
) -> torch.Tensor:
    """The mean over all images of each coupling of the last capsule layer, after the trained iterations.

    Args:
        model: on the device of the batches.
        batches: the images, taken in order.
        on_share: called after each batch with the share of images done.

    Returns:
        (E,) float64 on the CPU, in [0, 1]; sums to 1 over each child's edges.
    """
    total, seen = torch.zeros(model.capsules.graph().num_edges(), dtype=torch.float64), 0
    for _, c, _ in routed_batches(model, batches):
        total += c.sum(dim=1).cpu()
        seen += c.shape[1]
        on_share(seen / batches.num_images)
    return total / seen


def prune(
    model: CapsNet,
    strength: torch.Tensor,
    keep: tuple[int, ...],
    val: Batches,
    test: Batches,
    *,
    seed: int = 0,
    on_share: Callable[[float], object] = lambda share: None,
) -> Pruning:
    """Count right answers with k edges per child, for each k of ``keep`` and with all edges; the network isn't changed.

    Args:
        model: on the device of the batches.
        strength: (E,) of each edge, as ``mean_coupling`` gives it.
        keep: numbers of edges per child, each >= 1; those that leave every child its edges are all edges.
        val, test: the images; each is taken through the network up to its children once.
        seed: of the random controls.
        on_share: called after each batch with the share of images done.

    Raises:
        InputError: a k below 1 or above the edges of a child, or not one strength per edge.
    """
    check_keep(model, keep)
    layer = model.capsules
    assert isinstance(layer, CapsuleLayer), "others are refused"
    graph = layer.graph()
    ranks = torch.rand(DRAWS, graph.num_edges(), generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    cut: dict[int, list[PrunedCaps]] = {}
    for k in sorted(set(keep)):
        kept = [strongest_edges(graph, by, k)[1] for by in (strength, *ranks, -strength)]
        if len(kept[0]) < graph.num_edges():
            cut[k] = [PrunedCaps(layer, edges) for edges in kept]
    layers: list[CapsuleLayer] = [*(pruned for kinds in cut.values() for pruned in kinds), layer]
    images = val.num_images + test.num_images
    of_val = _correct(model, layers, val, lambda seen: on_share(seen / images))
    of_test = _correct(model, layers, test, lambda seen: on_share((val.num_images + seen) / images))
    scores = [Score(*counts) for counts in zip(of_val, of_test, strict=True)]
    rows = []
    for n, (k, (pruned, *_)) in enumerate(cut.items()):
        strongest, *drawn, weakest = scores[n * (DRAWS + 2) : (n + 1) * (DRAWS + 2)]
        rows.append(Row(k, len(pruned.weight), strongest, tuple(drawn), weakest))
    rows.append(Row(None, graph.num_edges(), scores[-1]))
    return Pruning(strength, val.num_images, test.num_images, tuple(rows))


@torch.no_grad()
def _correct(
    model: CapsNet, layers: list[CapsuleLayer], batches: Batches, on_seen: Callable[[int], object]
) -> list[int]:
    """Right answers of the network with each of ``layers`` in the place of its last one."""
    correct, seen = torch.zeros(len(layers), dtype=torch.int64), 0
    with evaluating(model):
        for images, labels in batches.in_order():
            u = model.children_of(overlaid(images))  # (I, B, P)
            for n, layer in enumerate(layers):
                lengths = torch.linalg.vector_norm(layer(u), dim=-1).T  # (B, J)
                correct[n] += right(longest(lengths, model.objects), labels).sum().cpu()
            seen += len(labels)
            on_seen(seen)
    return correct.tolist()
