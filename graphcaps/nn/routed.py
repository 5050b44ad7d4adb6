"""What all layers of capsules for images share: their options, and how they are routed."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import torch
from packaging.version import Version

from .._dgl import DGLGraph, has_cuda
from ..errors import check_whole, expect
from ..graph import Links
from ..routing import LinearVotes, MatrixVotes, Routed, route
from ..routing.edge_ops import Observer
from ..routing.engines import ROUTINGS, check_names, engine_names

# Older ones trace ``structure`` only in part. There every layer is called apart.
TRACES = Version(torch.__version__).release >= (2, 9)


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

    def graph_recipe(self) -> tuple[Callable[..., DGLGraph], tuple] | None:
        """What makes the graph, and of what sizes, for compiled code; None where the graph may change."""

    def votes(self, u: Any) -> LinearVotes | MatrixVotes:
        """The children's votes, not yet multiplied out."""


def route_layer(
    layer: RoutedLayer, u: torch.Tensor | Poses, squash_output: bool = True, on_iteration: Observer | None = None
) -> Routed:
    """The parents of a layer's children u (I, B, P) or poses, routed outside autocast as the layer's options say."""
    if torch.compiler.is_dynamo_compiling() and not (TRACES and _traced(layer, u)):
        from ..routing.compiled import apart

        return apart(route_layer, layer, u, squash_output, on_iteration)
    device = _numbers(u).device
    # Where there is none to leave, none is: an exported program would have it as a block of its own.
    autocast = torch.is_autocast_enabled(device.type)
    with torch.autocast(device.type, enabled=False) if autocast else contextlib.nullcontext():
        graph, votes, options = graph_of(layer, device), layer.votes(u), options_of(layer, u)
        options |= {"squash_output": squash_output, "on_iteration": on_iteration}
        return route(graph, votes, iterations=layer.iterations, **options)


def graph_of(layer: RoutedLayer, device: torch.device) -> DGLGraph | Links:
    """The graph that a layer is routed on; inside ``torch.compile`` its edges, a constant."""
    recipe = layer.graph_recipe() if torch.compiler.is_dynamo_compiling() and TRACES else None
    if recipe is None:
        return layer.graph(device)
    from ..routing.compiled import structure

    return structure(*recipe, device)


def _traced(layer: RoutedLayer, u: torch.Tensor | Poses) -> bool:
    """Whether ``torch.compile`` goes through the layer's routing, by ``torch``; else it is called apart."""
    if layer.graph_recipe() is None or layer.engine not in ("auto", "torch"):
        return False
    votes = MatrixVotes if isinstance(u, Poses) else LinearVotes
    faster = _numbers(u).device.type == "cpu" and "fused" in engine_names(layer.routing, votes)
    return layer.engine == "torch" or not faster


def _numbers(u: torch.Tensor | Poses) -> torch.Tensor:
    return u.pose if isinstance(u, Poses) else u


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
