"""Which capsules are used: over a whole set of images, what is dead, what is starved, and who stays undecided.

Mitterreiter, Koch, Giesen & Laue 2023, "Why Capsule Neural Networks Do Not Scale" (arXiv 2301.01583), found that many
capsules of a CapsNet starve in training and that routing is far from a parse tree. The definitions here are ours:

    dead      the largest |u_i| or |v_j| of any image is at most 0.01: the capsule is never there
    starved   the largest relative coupling on any image and edge is at most 1.01. An edge's relative coupling is
              c_ij * (edges of child i), so 1 while undecided. The child never chooses, or the parent is never chosen,
              by more than 1 %. A child with less than two edges has nothing to choose, and a parent without edges
              can't be chosen: neither is starved
    entropy   H_i = -sum over j of c_ij ln c_ij, the mean over images; ln of the child's edges is undecided, 0 decided
    away      the share of all edges and images whose relative coupling is off 1 by more than 1 %: routing has moved it

all after the last routing iteration. ``capsule_usage_of_layers`` counts each of several routed layers; there a layer's
parents are the children of the next.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from .._dgl import DGLGraph
from ..data import Batches
from ..functional import coupling_entropy
from ..graph import links
from ..models import CapsNet
from ..models.answers import overlaid
from ..nn import ConvCaps, MatrixConvCaps
from ..nn.routed import Poses, RoutedLayer, activation_of, route_layer
from .accuracy import evaluating

NEVER_THERE = 0.01
NEVER_ABOVE = 1.01
UNMOVED = 0.01


@dataclass(frozen=True)
class CapsuleUsage:
    """What the capsules of a network did on ``num_images`` images; float64 tensors on the CPU."""

    num_images: int
    num_types: int
    """T types of child capsule; child i is of type i // (I / T)."""
    child_length: torch.Tensor
    """(I,) in [0, 1): the largest |u_i| of any image."""
    child_relative_coupling: torch.Tensor
    """(I,) in [0, J]: the largest relative coupling of its edges on any image."""
    entropy: torch.Tensor
    """(I,) in [0, undecided] nats: the mean over images."""
    parent_length: torch.Tensor
    """(J,) in [0, 1): the largest |v_j| of any image."""
    parent_relative_coupling: torch.Tensor
    """(J,) in [0, J]: the largest relative coupling of its edges on any image."""
    undecided: torch.Tensor
    """(I,) nats: the entropy of uniform couplings, ln of the number of the child's edges."""
    weighted_entropy: float
    """In [0, 1]: entropy / undecided, the mean over images and children that have a choice, each weighted by its length
    there: a child that isn't there has nothing to choose. 1 where none has a choice."""
    away: float
    """In [0, 1]: the share of couplings, over edges and images, that differ from uniform by more than 1 %."""

    @property
    def dead_children(self) -> torch.Tensor:
        """(I,) bool."""
        return self.child_length <= NEVER_THERE

    @property
    def starved_children(self) -> torch.Tensor:
        """(I,) bool."""
        return (self.child_relative_coupling <= NEVER_ABOVE) & (self.undecided > 0)

    @property
    def dead_parents(self) -> torch.Tensor:
        """(J,) bool."""
        return self.parent_length <= NEVER_THERE

    @property
    def starved_parents(self) -> torch.Tensor:
        """(J,) bool."""
        return (self.parent_relative_coupling <= NEVER_ABOVE) & (self.parent_relative_coupling > 0)

    def by_type(self, values: torch.Tensor) -> torch.Tensor:
        """(I,) numbers of the children as (T, capsules of a type)."""
        return values.unflatten(0, (self.num_types, -1))

    def to_json(self, class_names: tuple[str, ...]) -> str:
        """All numbers, per capsule, as JSON: what the tables are counted from, for thresholds of one's own."""
        found = {
            "images": self.num_images,
            "dead_at_most": NEVER_THERE,
            "starved_at_most": NEVER_ABOVE,
            "away_from_uniform": round(self.away, 6),
            "entropy_of_undecided_by_length": round(self.weighted_entropy, 6),
            "children": {
                "types": self.num_types,
                "largest_length": _rounded(self.child_length),
                "largest_relative_coupling": _rounded(self.child_relative_coupling),
                "mean_entropy": _rounded(self.entropy),
                "undecided_entropy": _rounded(self.undecided),
                "dead": _where(self.dead_children),
                "starved": _where(self.starved_children),
            },
            "parents": {
                "names": list(class_names),
                "largest_length": _rounded(self.parent_length),
                "largest_relative_coupling": _rounded(self.parent_relative_coupling),
                "dead": _where(self.dead_parents),
                "starved": _where(self.starved_parents),
            },
        }
        return json.dumps(found) + "\n"


def relative_entropy(entropy: torch.Tensor, undecided: torch.Tensor) -> float:
    """In [0, 1]: the mean of entropy / undecided, both (I,), over children that have a choice; 1 where none has."""
    choosing = undecided > 0
    return float((entropy / undecided)[choosing].mean()) if choosing.any() else 1.0


class RoutedBatch(NamedTuple):
    """What a network's capsules did on a batch, after the last routing iteration."""

    activation: torch.Tensor
    """(I, B) in [0, 1]: each child's activation, which is its length where it has no other."""
    c: torch.Tensor
    """(E, B)."""
    v: torch.Tensor
    """(J, B, D)."""


@torch.no_grad()
def routed_batches(model: CapsNet, batches: Batches) -> Iterator[RoutedBatch]:
    """Route all images of ``batches`` in order, in eval mode; the network's mode is put back afterwards."""
    with evaluating(model):
        for images, _ in batches.in_order():
            yield _observed(model.capsules, model.children_of(overlaid(images)))


def _observed(layer: RoutedLayer, u: torch.Tensor | Poses) -> RoutedBatch:
    """What a layer makes of its children (I, B, P)."""
    last: dict[str, torch.Tensor] = {}
    route_layer(layer, u, on_iteration=lambda r, b, c, v, agreement: last.update(c=c, v=v))
    return RoutedBatch(activation_of(u), **last)


def capsule_usage(
    model: CapsNet, batches: Batches, on_progress: Callable[[float], object] = lambda share: None
) -> CapsuleUsage:
    """Route all images of ``batches`` in eval mode and count what the last layer does; memory is that of one batch.

    Args:
        model: on the device of the batches; its mode is put back afterwards.
        batches: the images, taken in order.
        on_progress: called after each batch with the share of images done.
    """
    tally = _Tally(model.capsules.graph(), model.child_types)
    for batch in routed_batches(model, batches):
        tally.add(batch)
        on_progress(tally.seen / batches.num_images)
    return tally.found()


@torch.no_grad()
def capsule_usage_of_layers(
    model: CapsNet, batches: Batches, on_progress: Callable[[float], object] = lambda share: None
) -> list[CapsuleUsage]:
    """The same of each routed layer, from below; the last is what ``capsule_usage`` counts."""
    seen = 0
    between = [layer for layer in model.between if isinstance(layer, (ConvCaps, MatrixConvCaps))]
    layers: list[Any] = [*between, model.capsules]
    types = [*(layer.child_types for layer in between), model.child_types]
    tallies = [_Tally(layer.graph(), count) for layer, count in zip(layers, types, strict=True)]
    with evaluating(model):
        for images, labels in batches.in_order():
            u = model.primary(model.stem(overlaid(images)))
            for layer, tally in zip(layers, tallies, strict=True):
                tally.add(_observed(layer, u))
                if layer is not model.capsules:
                    u = layer(u)
            seen += len(labels)
            on_progress(seen / batches.num_images)
    return [tally.found() for tally in tallies]


class _Tally:
    """What one layer's capsules did, batch after batch."""

    def __init__(self, graph: DGLGraph, num_types: int):
        self.graph, self.num_types, self.edges = graph, num_types, links(graph)
        self.degrees = torch.bincount(self.edges.src, minlength=self.edges.num_children)  # (I,)
        self.child_length, self.child_relative_coupling, self.entropy = torch.zeros(
            3, self.edges.num_children, dtype=torch.float64
        )
        self.parent_length, self.parent_relative_coupling = torch.zeros(2, self.edges.num_parents, dtype=torch.float64)
        self.seen = self.away = 0
        self.weighted = self.weights = 0.0

    def add(self, batch: RoutedBatch) -> None:
        src, dst = self.edges.src, self.edges.dst
        self.child_length = self.child_length.maximum(_largest(batch.activation))
        self.parent_length = self.parent_length.maximum(_largest(torch.linalg.vector_norm(batch.v, dim=-1)))
        relative = batch.c.cpu().double() * self.degrees[src].unsqueeze(1)  # (E, B)
        largest, self.away = relative.amax(dim=1), self.away + int(((relative - 1).abs() > UNMOVED).sum())
        self.child_relative_coupling = self.child_relative_coupling.scatter_reduce(0, src, largest, "amax")
        self.parent_relative_coupling = self.parent_relative_coupling.scatter_reduce(0, dst, largest, "amax")
        entropy = coupling_entropy(self.graph, batch.c).cpu().double()  # (I, B)
        self.entropy += entropy.sum(dim=1)
        choosing, there = self.degrees > 1, batch.activation.cpu().double()
        share = entropy[choosing] / self.degrees[choosing].double().log().unsqueeze(1)
        self.weighted += float((share * there[choosing]).sum())
        self.weights += float(there[choosing].sum())
        self.seen += batch.activation.shape[1]

    def found(self) -> CapsuleUsage:
        counted = (
            self.child_length,
            self.child_relative_coupling,
            self.entropy / self.seen,
            self.parent_length,
            self.parent_relative_coupling,
        )
        undecided = self.degrees.clamp_min(1).double().log()
        share = self.away / (self.seen * len(self.edges.src)) if len(self.edges.src) else 0.0
        weighted = self.weighted / self.weights if self.weights else 1.0
        return CapsuleUsage(
            self.seen, self.num_types, *counted, undecided=undecided, weighted_entropy=weighted, away=share
        )


def _largest(lengths: torch.Tensor) -> torch.Tensor:
    """(K, B) -> (K,) float64 on the CPU: each capsule's largest length in the batch."""
    return lengths.amax(dim=1).cpu().double()


def _rounded(values: torch.Tensor) -> list[float]:
    return [round(value, 6) for value in values.tolist()]


def _where(marked: torch.Tensor) -> list[int]:
    return marked.nonzero().flatten().tolist()
