"""Usage of capsules over a set of images: dead, starved and undecided capsules.

Mitterreiter, Koch, Giesen & Laue 2023, "Why Capsule Neural Networks Do Not Scale" (arXiv 2301.01583), found that many
capsules of a CapsNet starve in training and that routing is far from a parse tree. graphcaps uses its own definitions,
all for the last routing iteration. The relative coupling of an edge is c_ij * (number of edges of child i). It is 1 if
the child's couplings are equal.

    dead      the largest |u_i| or |v_j| over all images is at most 0.01
    starved   the largest relative coupling over all images and edges of the capsule is at most 1.01. Children with
              fewer than two edges and parents without edges have no choice, so they don't count as starved
    entropy   H_i = -sum over j of c_ij ln c_ij, the mean over images: 0 if the child has chosen one parent,
              ln(number of edges) if its couplings are equal (undecided)
    away      the share of couplings, over all edges and images, whose relative coupling differs from 1 by more than 1 %
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..data import Batches
from ..errors import required
from ..graph import coupling_entropy, links
from ..models import CapsNet
from ..models.answers import overlaid
from ..nn import ConvCaps, MatrixConvCaps
from ..nn.routed import Poses, RoutedLayer, activation_of, route_layer
from .accuracy import OnProgress, in_eval_mode, no_progress

DEAD_AT_MOST = 0.01  # length
STARVED_AT_MOST = 1.01  # relative coupling
AWAY_ABOVE = 0.01  # difference of a relative coupling from 1


@dataclass(frozen=True)
class CapsuleUsage:
    """Usage of a layer's capsules over ``num_images`` images; float64 tensors on the CPU.

    Lengths are the largest over all images; relative couplings are the largest over all images and edges of the
    capsule. Child i has type i // (I / num_types). ``weighted_entropy`` is the mean of entropy / undecided over images
    and children with two edges or more, weighted by the child's length, because short children matter little.
    """

    num_images: int
    num_types: int
    child_length: Tensor  # (I,) in [0, 1)
    child_relative_coupling: Tensor  # (I,) in [0, J]
    entropy: Tensor  # (I,) in [0, undecided] nats, the mean over images
    parent_length: Tensor  # (J,) in [0, 1)
    parent_relative_coupling: Tensor  # (J,) in [0, J]
    undecided: Tensor  # (I,) nats, the entropy of equal couplings: ln(number of edges of the child)
    weighted_entropy: float  # in [0, 1]; 1 if no child has a choice
    away: float  # in [0, 1], the share of relative couplings that differ from 1 by more than 1 %

    @property
    def dead_children(self) -> Tensor:
        return self.child_length <= DEAD_AT_MOST

    @property
    def starved_children(self) -> Tensor:
        return (self.child_relative_coupling <= STARVED_AT_MOST) & (self.undecided > 0)

    @property
    def dead_parents(self) -> Tensor:
        return self.parent_length <= DEAD_AT_MOST

    @property
    def starved_parents(self) -> Tensor:
        return (self.parent_relative_coupling <= STARVED_AT_MOST) & (self.parent_relative_coupling > 0)

    def by_type(self, values: Tensor) -> Tensor:
        """Reshape numbers (I,) of the children to (T, capsules per type)."""
        return values.unflatten(0, (self.num_types, -1))

    def to_json(self, class_names: tuple[str, ...]) -> str:
        """All numbers as JSON, per capsule, so that you can apply your own thresholds."""
        children = {
            "types": self.num_types,
            "largest_length": self.child_length,
            "largest_relative_coupling": self.child_relative_coupling,
            "mean_entropy": self.entropy,
            "undecided_entropy": self.undecided,
            "dead": self.dead_children,
            "starved": self.starved_children,
        }
        parents = {
            "names": list(class_names),
            "largest_length": self.parent_length,
            "largest_relative_coupling": self.parent_relative_coupling,
            "dead": self.dead_parents,
            "starved": self.starved_parents,
        }
        numbers = {
            "images": self.num_images,
            "dead_at_most": DEAD_AT_MOST,
            "starved_at_most": STARVED_AT_MOST,
            "away_from_uniform": round(self.away, 6),
            "entropy_of_undecided_by_length": round(self.weighted_entropy, 6),
            "children": {name: _plain(values) for name, values in children.items()},
            "parents": {name: _plain(values) for name, values in parents.items()},
        }
        return json.dumps(numbers) + "\n"


def _plain(values: Any) -> Any:
    """The rounded numbers of a tensor, or the indices where a bool tensor is true; other values are unchanged."""
    if not isinstance(values, Tensor):
        return values
    if values.dtype == torch.bool:
        return values.nonzero().flatten().tolist()
    return [round(value, 6) for value in values.tolist()]


def relative_entropy(entropy: Tensor, undecided: Tensor) -> float:
    """Mean of entropy / undecided, both (I,), over children with two edges or more; 1 if there are none."""
    choosing = undecided > 0
    return float((entropy / undecided)[choosing].mean()) if choosing.any() else 1.0


class RoutedBatch(NamedTuple):
    """A layer's capsules on a batch, after the last routing iteration."""

    activation: Tensor  # (I, B) in [0, 1]; the length, for a child without an activation
    c: Tensor  # (E, B)
    v: Tensor  # (J, B, D)


@torch.no_grad()
def routed_batches(model: CapsNet, batches: Batches, on_progress: OnProgress = no_progress) -> Iterator[RoutedBatch]:
    """Route all images of ``batches`` in order, in eval mode; restore the network's mode at the end."""
    for images, _ in in_eval_mode(model, batches, on_progress):
        yield routed_batch(model.capsules, model.children_of(overlaid(images)))


def routed_batch(layer: RoutedLayer, u: Tensor | Poses) -> RoutedBatch:
    """Route a layer's children (I, B, P).

    Raises:
        InputError: the routing is user-defined and returns no couplings.
    """
    parents = route_layer(layer, u, coupling=True)
    c = required(parents.coupling, "routing", "one that returns its couplings", repr(layer.routing))
    return RoutedBatch(activation_of(u), c, parents.v)


def capsule_usage(model: CapsNet, batches: Batches, on_progress: OnProgress = no_progress) -> CapsuleUsage:
    """Measure the last layer on all images of ``batches`` in eval mode. Only one batch is in memory at a time."""
    tally = _Tally(model.capsules, model.child_types)
    for batch in routed_batches(model, batches, on_progress):
        tally.add(batch)
    return tally.usage()


@torch.no_grad()
def capsule_usage_of_layers(
    model: CapsNet, batches: Batches, on_progress: OnProgress = no_progress
) -> list[CapsuleUsage]:
    """``capsule_usage`` for each routed layer, lowest first. A layer's parents are the children of the next."""
    between = [layer for layer in model.between if isinstance(layer, (ConvCaps, MatrixConvCaps))]
    layers: list[Any] = [*between, model.capsules]
    types = [*(layer.child_types for layer in between), model.child_types]
    tallies = [_Tally(layer, count) for layer, count in zip(layers, types, strict=True)]
    for images, _ in in_eval_mode(model, batches, on_progress):
        u = model.primary(model.stem(overlaid(images)))
        for layer, tally in zip(layers, tallies, strict=True):
            tally.add(routed_batch(layer, u))
            if layer is not model.capsules:
                u = layer(u)
    return [tally.usage() for tally in tallies]


class _Tally:
    """Running maxima and sums for one layer's capsules, updated batch by batch."""

    def __init__(self, layer: RoutedLayer, num_types: int):
        self.graph, self.num_types = layer.graph(), num_types
        self.edges = links(self.graph)
        children, parents = self.edges.num_children, self.edges.num_parents
        self.degrees = torch.bincount(self.edges.src, minlength=children)  # (I,)
        self.child_length, self.child_coupling, self.entropy = torch.zeros(3, children, dtype=torch.float64)
        self.parent_length, self.parent_coupling = torch.zeros(2, parents, dtype=torch.float64)
        self.seen = self.away = 0
        self.weighted = self.weights = 0.0

    def add(self, batch: RoutedBatch) -> None:
        src, dst = self.edges.src, self.edges.dst
        self.child_length = self.child_length.maximum(batch.activation.amax(dim=1).cpu())
        self.parent_length = self.parent_length.maximum(torch.linalg.vector_norm(batch.v, dim=-1).amax(dim=1).cpu())
        relative = batch.c.cpu().double() * self.degrees[src].unsqueeze(1)  # (E, B)
        largest, self.away = relative.amax(dim=1), self.away + int(((relative - 1).abs() > AWAY_ABOVE).sum())
        self.child_coupling = self.child_coupling.scatter_reduce(0, src, largest, "amax")
        self.parent_coupling = self.parent_coupling.scatter_reduce(0, dst, largest, "amax")
        entropy = coupling_entropy(self.graph, batch.c).cpu().double()  # (I, B)
        self.entropy += entropy.sum(dim=1)
        choosing, there = self.degrees > 1, batch.activation.cpu().double()
        share = entropy[choosing] / self.degrees[choosing].double().log().unsqueeze(1)
        self.weighted += float((share * there[choosing]).sum())
        self.weights += float(there[choosing].sum())
        self.seen += batch.activation.shape[1]

    def usage(self) -> CapsuleUsage:
        return CapsuleUsage(
            num_images=self.seen,
            num_types=self.num_types,
            child_length=self.child_length,
            child_relative_coupling=self.child_coupling,
            entropy=self.entropy / self.seen,
            parent_length=self.parent_length,
            parent_relative_coupling=self.parent_coupling,
            undecided=self.degrees.clamp_min(1).double().log(),
            weighted_entropy=self.weighted / self.weights if self.weights else 1.0,
            away=self.away / max(1, self.seen * len(self.edges.src)),
        )
