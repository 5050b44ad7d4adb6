"""The base of all layers of capsules for images, the checks of their input, and the call that routes."""

from __future__ import annotations

import contextlib
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from .._dgl import DGLGraph, has_cuda
from ..errors import check_tensor, check_unit, expect
from ..routing import LinearVotes, MatrixVotes, Parents, Routing
from ..routing.api import routed, uncompiled
from ..routing.engines.edges import Observer
from ..routing.names import as_routing


class Poses(NamedTuple):
    """Capsules with an activation beside the pose: ``pose`` (I, B, 16), ``activation`` (I, B) in [0, 1]."""

    pose: Tensor
    activation: Tensor


class RoutedLayer(nn.Module):
    """Base of the layers of I children and J parents: it has matrices, a copy of a routing, and a graph of votes.

    Args:
        matrices: the shape of the weights, (matrices, rows, columns).
        parent_types: number of types of parents, outermost in their order.
        index: (E,) int64, the matrix of each edge; None: each edge has its own.
    """

    index: Any
    prior: Tensor | None
    """Logits (E,) that the routing starts from, if the layer learns them."""

    def __init__(
        self,
        num_children: int,
        num_parents: int,
        child_dim: int,
        parent_dim: int,
        matrices: tuple[int, int, int],
        routing: Routing,
        parent_types: int,
        index: Tensor | None = None,
    ):
        super().__init__()
        self.num_children, self.num_parents, self.child_dim = num_children, num_parents, child_dim
        self.weight = nn.Parameter(torch.empty(matrices))
        self.routing = routing.for_layer(num_children, num_parents, parent_dim, parent_types)
        self.prior = None
        self.register_buffer("index", index, persistent=False)

    def reset_parameters(self) -> None:
        """Draw the weights again, and reset the prior and what the routing has learned."""
        self.routing.reset_parameters()
        self._draw()

    def _draw(self) -> None:
        raise NotImplementedError

    def graph(self, device: torch.device | str = "cpu") -> DGLGraph:
        """The graph of votes, on ``device`` if the installed DGL can have it there, else on the CPU."""
        raise NotImplementedError

    def blank(self) -> Any:
        """One image's children, all zero, on the layer's device."""
        return self.weight.new_zeros(self.num_children, 1, self.child_dim)

    def votes(self, u: Any) -> LinearVotes | MatrixVotes:
        """The children's votes, not yet multiplied out."""
        check_children(u, self.num_children, self.child_dim)
        return LinearVotes(u.to(self.weight.dtype), self.weight, self.index)

    def forward(self, u: Any) -> Any:
        """Route children u (I, B, P) to the parents v (J, B, D)."""
        return route_layer(self, u).v


@uncompiled
def route_layer(
    layer: RoutedLayer,
    u: Tensor | Poses,
    on_iteration: Observer | None = None,
    iterations: int | None = None,
    coupling: bool = False,
) -> Parents:
    """The parents of a layer's children u (I, B, P) or poses, routed outside autocast.

    ``iterations`` replaces the layer's, ``coupling`` asks for the last couplings.
    """
    given = u.pose if isinstance(u, Poses) else u
    check_tensor("u", given)
    device = given.device
    routing = layer.routing if iterations is None else layer.routing.with_iterations(iterations)
    # No autocast block unless autocast is on: torch.export would record it.
    autocast = torch.is_autocast_enabled(device.type)
    with torch.autocast(device.type, enabled=False) if autocast else contextlib.nullcontext():
        activation = activation_of(u) if routing.uses_activation else None
        graph, votes = layer.graph(device), layer.votes(u)
        votes.check(graph)
        return routed(graph, votes, routing, activation, layer.prior, on_iteration, coupling)


def activation_of(u: Tensor | Poses) -> Tensor:
    """Activations (I, B) in [0, 1]: the lengths of u (I, B, P), or the poses' own."""
    return u.activation if isinstance(u, Poses) else torch.linalg.vector_norm(u.float(), dim=-1)


def routing_for_images(routing: Routing | str, **settings: Any) -> Routing:
    """The routing itself, or the one of that name with these settings.

    "spherical" starts nearly uniform, at 0.01: 97.6 % of digits at all places are then right, as with equal couplings,
    and 96.6 % with a start at 1. The rate of 10 lets a few hundred steps of Adam at 0.001 leave the start: log kappa
    changes by 0.01 a step, and so by ln 100, from 0.01 to 1, in 460 steps.
    """
    if routing == "spherical":
        settings = {"concentration": 0.01, "rate": 10} | settings
    return as_routing(routing, **settings)


def graph_device(device: torch.device | str) -> torch.device | str:
    """``device`` if the installed DGL can have a graph there, else "cpu"."""
    return device if torch.device(device).type == "cuda" and has_cuda() else "cpu"


def check_children(u: Tensor, num_children: int, dim: int) -> None:
    """Raise ``InputError`` unless u are floating point children (I, *, P), with the fix if the batch comes first."""
    check_tensor("u", u)
    shape, then = tuple(u.shape), ""
    fits = len(shape) >= 2 and (shape[0], shape[-1]) == (num_children, dim)
    # This is compared only on failure: torch.export would record the comparison as a limit of the batch size
    if not fits and len(shape) == 3 and shape[1:] == (num_children, dim):
        then = "Capsules come first, then the batch: u.transpose(0, 1)"
    expect(fits, "u", f"(I={num_children}, *, P={dim})", shape, then)


def check_centres(centres: Tensor) -> None:
    expect(centres.dim() == 2 and centres.shape[1] == 2, "centres", "(positions, 2)", tuple(centres.shape))
    check_unit("centres", centres, "They are shares of the image: pixels / its size")
