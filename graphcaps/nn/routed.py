"""What all layers of capsules for images share: their interface, checks of their input, and the call that routes."""

from __future__ import annotations

import contextlib
from typing import Any, NamedTuple, Protocol

import torch

from .._dgl import DGLGraph, has_cuda
from ..errors import check_tensor, expect
from ..routing import LinearVotes, MatrixVotes, Parents, Routing
from ..routing.api import routed, uncompiled
from ..routing.engines.edges import Observer
from ..routing.names import as_routing


class Poses(NamedTuple):
    """Capsules with an activation beside the pose: ``pose`` (I, B, 16), ``activation`` (I, B) in [0, 1]."""

    pose: torch.Tensor
    activation: torch.Tensor


def routing_for_images(routing: Routing | str, **settings: Any) -> Routing:
    """The routing itself, or the one of that name with these settings.

    "spherical" starts nearly uniform, at 0.01: of digits at all places 97.6 % are right then, as with equal couplings,
    and 96.6 % from a concentration of 1. Its rate of 10 lets a few hundred steps of Adam at 0.001 move it away from
    there: log kappa changes by 0.01 a step, and so by ln 100, from 0.01 to 1, in 460 steps.
    """
    if routing == "spherical":
        settings = {"concentration": 0.01, "rate": 10} | settings
    return as_routing(routing, **settings)


def check_children(u: torch.Tensor, num_children: int, dim: int) -> None:
    """Raise ``InputError`` unless u are floating point children (I, *, P), with what to do where the batch is first.

    Only the shape is checked: (B, I, P) with B = I passes, and mixes the images.
    """
    check_tensor("u", u)
    shape, then = tuple(u.shape), ""
    fits = len(shape) >= 2 and (shape[0], shape[-1]) == (num_children, dim)
    # compared only on failure: torch.export would record the comparison as a limit of the batch size
    if not fits and len(shape) == 3 and shape[1:] == (num_children, dim):
        then = "Capsules come first, then the batch: u.transpose(0, 1)"
    expect(fits, "u", f"(I={num_children}, *, P={dim})", shape, then)


def check_poses(capsules: Poses, num_children: int) -> None:
    """Raise ``InputError`` unless capsules are ``Poses`` of as many children."""
    wanted = "Poses(pose (I, B, 16), activation (I, B))"
    expect(isinstance(capsules, Poses), "capsules", wanted, type(capsules).__name__)
    check_children(capsules.pose, num_children, 16)


def graph_device(device: torch.device | str) -> torch.device | str:
    """``device`` where the installed DGL can have a graph there, else "cpu"."""
    return device if torch.device(device).type == "cuda" and has_cuda() else "cpu"


class RoutedLayer(Protocol):
    """The interface of a layer of capsules."""

    routing: Routing
    prior: torch.Tensor | None
    """Logits (E,) that the routing starts from, where it learns them."""

    def graph(self, device: torch.device | str = "cpu") -> DGLGraph:
        """The graph of votes."""

    def votes(self, u: Any) -> LinearVotes | MatrixVotes:
        """The children's votes, not yet multiplied out."""


@uncompiled
def route_layer(
    layer: RoutedLayer,
    u: torch.Tensor | Poses,
    on_iteration: Observer | None = None,
    iterations: int | None = None,
    coupling: bool = False,
) -> Parents:
    """The parents of a layer's children u (I, B, P) or poses, routed outside autocast.

    ``iterations`` replaces the layer's, ``coupling`` says whether couplings are wanted. Where the routing uses activations, that of a child without one is its length.
    """
    given = u.pose if isinstance(u, Poses) else u
    check_tensor("u", given)
    device = given.device
    routing = layer.routing if iterations is None else layer.routing.with_iterations(iterations)
    # No autocast block unless autocast is on: torch.export would record it.
    autocast = torch.is_autocast_enabled(device.type)
    with torch.autocast(device.type, enabled=False) if autocast else contextlib.nullcontext():
        graph, votes = layer.graph(device), layer.votes(u)
        votes.check(graph)
        activation = activation_of(u) if routing.uses_activation else None
        return routed(graph, votes, routing, activation, layer.prior, on_iteration, coupling)


def activation_of(u: torch.Tensor | Poses) -> torch.Tensor:
    """Activations (I, B) in [0, 1]: the lengths of u (I, B, P), or the poses' own."""
    return u.activation if isinstance(u, Poses) else torch.linalg.vector_norm(u.float(), dim=-1)
