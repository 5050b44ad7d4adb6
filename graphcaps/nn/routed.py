"""What all layers of capsules for images share: their options, and how they are routed."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import torch

from .._dgl import DGLGraph, has_cuda
from ..errors import check_whole, expect
from ..routing import LinearVotes, MatrixVotes, route
from ..routing.engines import ROUTINGS, check_names


class Poses(NamedTuple):
    """Capsules whose pose doesn't say how sure they are: ``pose`` (I, B, 16), ``activation`` (I, B) in [0, 1]."""

    pose: torch.Tensor
    activation: torch.Tensor


def check_options(iterations: int, routing: str, engine: str, of_matrices: bool = False) -> None:
    """Raise ``InputError`` unless a layer can route so many times, with such an algorithm, on such an engine."""
    check_names(routing, engine, MatrixVotes if of_matrices else torch.Tensor)
    check_whole("iterations", iterations)


def check_children(u: torch.Tensor, num_children: int, dim: int) -> None:
    """Raise ``InputError`` unless u are floating point children (I, *, P), with what to do where the batch is first.

    Only the shape is looked at: (B, I, P) with B = I goes through, and every image's capsules are mixed with others'.
    """
    expect(isinstance(u, torch.Tensor), "u", "a tensor", type(u).__name__)
    shape, then = tuple(u.shape), ""
    fits = len(shape) >= 2 and (shape[0], shape[-1]) == (num_children, dim)
    # asked only then: torch.export would take the question for a limit of the batch
    if not fits and len(shape) == 3 and shape[1:] == (num_children, dim):
        then = "Capsules come first, then the batch: u.transpose(0, 1)"
    expect(fits, "u", f"(I={num_children}, *, P={dim})", shape, then)
    expect(u.is_floating_point(), "u", "floating point", u.dtype, "Convert it: u.float()")


def check_poses(capsules: Poses, num_children: int) -> None:
    """Raise ``InputError`` unless capsules are ``Poses`` of as many children."""
    wanted = "Poses(pose (I, B, 16), activation (I, B))"
    expect(isinstance(capsules, Poses), "capsules", wanted, type(capsules).__name__)
    check_children(capsules.pose, num_children, 16)


def graph_device(device: torch.device | str) -> torch.device | str:
    """``device`` where the installed DGL can have a graph there, else "cpu"."""
    return device if torch.device(device).type == "cuda" and has_cuda() else "cpu"


class RoutedLayer(Protocol):
    """What a layer of capsules is asked for when it is routed, drawn or counted."""

    iterations: int
    routing: str
    engine: str
    learned: Any
    """What its routing learns beside the votes, to be called for it, or None."""
    prior: torch.Tensor | None
    """Logits (E,) that the routing starts from, where it learns them."""

    def graph(self, device: torch.device | str = "cpu") -> DGLGraph:
        """The graph of votes."""

    def votes(self, u: Any) -> LinearVotes | MatrixVotes:
        """The children's votes, not yet multiplied out."""


def route_layer(layer: RoutedLayer, u: torch.Tensor) -> torch.Tensor:
    """The parents v (J, B, D) of a layer's children u (I, B, P), routed outside autocast as the layer's options say."""
    with torch.autocast(u.device.type, enabled=False):
        return route(layer.graph(u.device), layer.votes(u), iterations=layer.iterations, **options_of(layer, u)).v


def activation_of(u: torch.Tensor | Poses) -> torch.Tensor:
    """Activations (I, B) in [0, 1]: the lengths of u (I, B, P), or the poses' own."""
    return u.activation if isinstance(u, Poses) else torch.linalg.vector_norm(u.float(), dim=-1)


def options_of(layer: RoutedLayer, u: torch.Tensor | Poses) -> dict[str, Any]:
    """What ``route`` is given for a layer's children u (I, B, P) beside graph, votes and iterations.

    Where the routing uses activations, a child's is its length unless it has one of its own.
    """
    return {
        "routing": layer.routing,
        "engine": layer.engine,
        "activation": activation_of(u) if ROUTINGS[layer.routing].uses_activation else None,
        "prior": layer.prior,
        "parameters": layer.learned() if layer.learned is not None else None,
    }
