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

from typing import Any

import torch
from torch import Tensor

from ...errors import required
from ...graph.couplings import entropy_of
from ...nn.routed import Poses, RoutedLayer, activation_of, route_layer
from ..data import Batches
from ..models import CapsNet
from ..models.answers import overlaid
from .accuracy import OnProgress, in_eval_mode

DEAD_AT_MOST = 0.01  # length
STARVED_AT_MOST = 1.01  # relative coupling
AWAY_ABOVE = 0.01  # difference of a relative coupling from 1


class Capsules:
    """The N children or the N parents of a layer. ``length`` in [0, 1) and ``relative_coupling`` in [0, J] are (N,).

    Lengths are the largest over all images, relative couplings the largest over all images and edges of the capsule.
    ``ends`` (E,) is the capsule at each edge, and ``choosing`` (N,) bool is True for capsules that may be starved.
    """

    def __init__(self, ends: Tensor, choosing: Tensor):
        self._ends, self._choosing = ends, choosing
        self.length, self.relative_coupling = torch.zeros(2, len(choosing), dtype=torch.float64)

    def add(self, lengths: Tensor, relative: Tensor) -> None:
        """Add lengths (N, B), and the largest relative coupling of each edge (E,)."""
        self.length = self.length.maximum(lengths.amax(dim=1).cpu())
        self.relative_coupling = self.relative_coupling.scatter_reduce(0, self._ends, relative, "amax")

    @property
    def dead(self) -> Tensor:
        return self.length <= DEAD_AT_MOST

    @property
    def starved(self) -> Tensor:
        return (self.relative_coupling <= STARVED_AT_MOST) & self._choosing


class CapsuleUsage:
    """Usage of a layer's capsules over ``num_images`` images; float64 tensors on the CPU, filled batch by batch."""

    def __init__(self, layer: RoutedLayer):
        self._layer, self.num_images = layer, 0
        self._edges = layer.links(torch.device("cpu"))
        self._degrees = torch.bincount(self._edges.src, minlength=self._edges.num_children)  # (I,)
        self.undecided = self._degrees.clamp_min(1).double().log()  # (I,) nats, the entropy of equal couplings
        self._choosing = self.undecided > 0
        self.children = Capsules(self._edges.src, self._choosing)
        self.parents = Capsules(self._edges.dst, self._edges.in_degrees > 0)
        self._entropies = torch.zeros_like(self.undecided)  # sums over images
        self._away, self._weighted, self._weights = 0, 0.0, 0.0

    def add(self, u: Tensor | Poses) -> None:
        """Route a batch of children u, (I, B, P) or ``Poses``. A user-defined routing must return its couplings."""
        routed, activation = route_layer(self._layer, u, coupling=True), activation_of(u)
        c = required(routed.coupling, "routing", "one that returns its couplings", repr(self._layer.routing))
        relative = c.cpu().double() * self._degrees[self._edges.src].unsqueeze(1)  # (E, B)
        largest = relative.amax(dim=1)
        self.children.add(activation, largest)
        self.parents.add(torch.linalg.vector_norm(routed.v, dim=-1), largest)
        entropy, weights = entropy_of(self._edges, c.cpu()).double(), activation.cpu().double()  # (I, B)
        self._entropies += entropy.sum(dim=1)
        self._weighted += float((entropy * weights)[self._choosing].div(self.undecided[self._choosing, None]).sum())
        self._weights += float(weights[self._choosing].sum())
        self._away += int(((relative - 1).abs() > AWAY_ABOVE).sum())
        self.num_images += activation.shape[1]

    @property
    def entropy(self) -> Tensor:
        """(I,) in [0, undecided] nats, the mean over images."""
        return self._entropies / self.num_images

    @property
    def relative_entropy(self) -> float:
        """Mean of entropy / undecided over children with two edges or more; 1 if there are none."""
        share = (self.entropy / self.undecided)[self._choosing]
        return float(share.mean()) if len(share) else 1.0

    @property
    def weighted_entropy(self) -> float:
        """Mean of entropy / undecided in [0, 1] over images and children with a choice; 1 if no child has one.

        Children are weighted by their lengths, because short children matter little.
        """
        return self._weighted / self._weights if self._weights else 1.0

    @property
    def away(self) -> float:
        """The share in [0, 1] of relative couplings that differ from 1 by more than 1 %."""
        return self._away / max(1, self.num_images * len(self._edges.src))


@torch.no_grad()
def capsule_usage(
    model: CapsNet, batches: Batches, on_progress: OnProgress | None = None, all_layers: bool = False
) -> list[CapsuleUsage]:
    """Measure the last layer, or with ``all_layers`` each routed layer, lowest first. The network runs in eval mode."""
    layers: list[Any] = [*model.between, model.capsules]
    usage = {layer: CapsuleUsage(layer) for layer in (layers if all_layers else layers[-1:])}
    for images, _ in in_eval_mode(model, batches, on_progress):
        u = model.primary(model.stem(overlaid(images)))
        for layer in layers:
            if layer in usage:
                usage[layer].add(u)
            if layer is not model.capsules:
                u = layer(u)
    return [*usage.values()]
