"""Which capsules are used: over a whole set of images, what is dead, what is starved, and who stays undecided.

Mitterreiter, Koch, Giesen & Laue 2023, "Why Capsule Neural Networks Do Not Scale" (arXiv 2301.01583), found that many
capsules of a CapsNet starve in training and that routing is far from a parse tree. The definitions here are ours:

    dead      the largest |u_i| or |v_j| of any image is at most 0.01: the capsule is never there
    starved   the largest pull on any image and edge is at most 1.01, where an edge's pull is c_ij * (edges of child i),
              so 1 while undecided: the child never chooses, or the parent is never chosen, by more than 1 %
    entropy   H_i = -sum over j of c_ij ln c_ij, the mean over images; ln J is undecided, 0 decided
    away      the share of all edges and images whose pull is off 1 by more than 1 %: couplings that routing has moved

all after the last routing iteration.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import torch

from .data import Batches
from .evaluation import evaluating
from .functional import coupling_entropy
from .graph import links
from .models import CapsNet
from .nn.layers import options_of, sureness
from .routing import route
from .task import overlaid

NEVER_THERE = 0.01
NEVER_ABOVE = 1.01
UNMOVED = 0.01


@dataclass(frozen=True)
class Census:
    """What the capsules of a network did on ``num_images`` images; float64 tensors on the CPU."""

    num_images: int
    num_types: int
    """T types of child capsule; child i is of type i // (I / T)."""
    child_length: torch.Tensor
    """(I,) in [0, 1): the largest |u_i| of any image."""
    child_pull: torch.Tensor
    """(I,) in [0, J]: the largest pull of its edges on any image."""
    entropy: torch.Tensor
    """(I,) in [0, ln J] nats: the mean over images."""
    parent_length: torch.Tensor
    """(J,) in [0, 1): the largest |v_j| of any image."""
    parent_pull: torch.Tensor
    """(J,) in [0, J]: the largest pull of its edges on any image."""
    undecided: float
    """ln J: the entropy of uniform couplings."""
    away: float
    """In [0, 1]: the share of couplings, over edges and images, that differ from uniform by more than 1 %."""

    @property
    def dead_children(self) -> torch.Tensor:
        """(I,) bool."""
        return self.child_length <= NEVER_THERE

    @property
    def starved_children(self) -> torch.Tensor:
        """(I,) bool."""
        return self.child_pull <= NEVER_ABOVE

    @property
    def dead_parents(self) -> torch.Tensor:
        """(J,) bool."""
        return self.parent_length <= NEVER_THERE

    @property
    def starved_parents(self) -> torch.Tensor:
        """(J,) bool."""
        return self.parent_pull <= NEVER_ABOVE

    def by_type(self, values: torch.Tensor) -> torch.Tensor:
        """(I,) numbers of the children as (T, capsules of a type)."""
        return values.unflatten(0, (self.num_types, -1))

    def to_json(self, class_names: tuple[str, ...]) -> str:
        """All numbers, per capsule, as JSON: what the tables are counted from, for thresholds of one's own."""
        found = {
            "images": self.num_images,
            "dead_at_most": NEVER_THERE,
            "starved_at_most": NEVER_ABOVE,
            "undecided_entropy": self.undecided,
            "away_from_uniform": round(self.away, 6),
            "children": {
                "types": self.num_types,
                "largest_length": _rounded(self.child_length),
                "largest_pull": _rounded(self.child_pull),
                "mean_entropy": _rounded(self.entropy),
                "dead": _where(self.dead_children),
                "starved": _where(self.starved_children),
            },
            "parents": {
                "names": list(class_names),
                "largest_length": _rounded(self.parent_length),
                "largest_pull": _rounded(self.parent_pull),
                "dead": _where(self.dead_parents),
                "starved": _where(self.starved_parents),
            },
        }
        return json.dumps(found) + "\n"


class RoutedBatch(NamedTuple):
    """What a network's capsules did on a batch, after the last routing iteration."""

    sure: torch.Tensor
    """(I, B) in [0, 1]: how sure each child is, its length or its activation."""
    c: torch.Tensor
    """(E, B)."""
    v: torch.Tensor
    """(J, B, D)."""


@torch.no_grad()
def routed(model: CapsNet, batches: Batches) -> Iterator[RoutedBatch]:
    """Route all images of ``batches`` in order, in eval mode; the network's mode is put back afterwards."""
    layer = model.capsules
    last: dict[str, torch.Tensor] = {}
    with evaluating(model):
        for images, _ in batches.in_order():
            u = model.children_of(overlaid(images))  # (I, B, P), or poses and activations
            options = {"iterations": layer.iterations, **options_of(layer, u)}
            graph = layer.graph(images.device)
            route(graph, layer.votes(u), on_iteration=lambda r, b, c, v, agreement: last.update(c=c, v=v), **options)
            yield RoutedBatch(sureness(u), **last)


def census(model: CapsNet, batches: Batches, on_share: Callable[[float], object] = lambda share: None) -> Census:
    """Route all images of ``batches`` in eval mode and count; memory is that of one batch.

    Args:
        model: on the device of the batches; its mode is put back afterwards.
        batches: the images, taken in order.
        on_share: called after each batch with the share of images done.
    """
    graph = model.capsules.graph()
    edges = links(graph)
    degree = torch.bincount(edges.src, minlength=edges.num_children)[edges.src]  # (E,)
    child_length, child_pull, entropy = torch.zeros(3, edges.num_children, dtype=torch.float64)
    parent_length, parent_pull = torch.zeros(2, edges.num_parents, dtype=torch.float64)
    seen = away = 0
    for sure, c, v in routed(model, batches):
        child_length = child_length.maximum(_largest(sure))
        parent_length = parent_length.maximum(_largest(torch.linalg.vector_norm(v, dim=-1)))
        pulls = c.cpu().double() * degree.unsqueeze(1)  # (E, B)
        pull, away = pulls.amax(dim=1), away + int(((pulls - 1).abs() > UNMOVED).sum())
        child_pull = child_pull.scatter_reduce(0, edges.src, pull, "amax")
        parent_pull = parent_pull.scatter_reduce(0, edges.dst, pull, "amax")
        entropy += coupling_entropy(graph, c).sum(dim=1).cpu().double()
        seen += sure.shape[1]
        on_share(seen / batches.num_images)
    counted = child_length, child_pull, entropy / seen, parent_length, parent_pull
    undecided = math.log(edges.num_parents)
    share = away / (seen * len(edges.src)) if len(edges.src) else 0.0
    return Census(seen, model.child_types, *counted, undecided=undecided, away=share)


def _largest(lengths: torch.Tensor) -> torch.Tensor:
    """(K, B) -> (K,) float64 on the CPU: each capsule's largest length in the batch."""
    return lengths.amax(dim=1).cpu().double()


def _rounded(values: torch.Tensor) -> list[float]:
    return [round(value, 6) for value in values.tolist()]


def _where(marked: torch.Tensor) -> list[int]:
    return marked.nonzero().flatten().tolist()
