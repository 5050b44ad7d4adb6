"""What a routing is: a module whose settings are its constructor's arguments, over the operations of ``edges``."""

from __future__ import annotations

import copy
import inspect
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ..errors import GraphcapsError, check_whole
from ..functional import squash
from .edges import EdgeOps


class Parents(NamedTuple):
    """What a routing gives: poses before the last squash (J, *, D), capsules v (J, *, D), activations (J, *)."""

    pose: Tensor
    v: Tensor
    activation: Tensor
    coupling: Tensor | None = None


class Routing(nn.Module):
    """A routing algorithm. Subclass it for one of your own; nothing has to be registered.

    ``forward`` is the algorithm. The constructor's arguments are its settings: keep each as an attribute of the same
    name, so that checkpoints and ``repr`` find it. What it learns are parameters, as in any module.

    >>> class OneStep(Routing):
    ...     def forward(self, edges, votes, prior, activation=None):
    ...         c = edges.child_softmax(prior)
    ...         return edges.weighted_sum(c, votes)
    >>> from graphcaps import complete_graph, route
    >>> route(complete_graph(3, 2), torch.ones(6, 5, 4), OneStep()).v.shape
    torch.Size([2, 5, 4])
    """

    iterations: int = 1
    """R, how often an observer is called."""
    unit_votes: bool = False
    """Whether votes are divided by their length before they are routed."""
    mutual: bool = False
    """Whether the two directions of an edge share their logits: in ``CapsuleConv`` alone."""
    uses_activation: bool = False
    """Whether children are weighed by their activations."""
    sums_votes: bool = True
    """Whether poses are sums of votes times couplings, as ``CapsuleConv`` expects them."""

    def forward(self, edges: EdgeOps, votes: Tensor, prior: Tensor, activation: Tensor | None = None) -> Any:
        """Route votes to the parents.

        Args:
            edges: the operations on the graph's edges (``graphcaps.routing.edges`` lists them).
            votes: u_hat (E, *, D), laid out as ``edges`` has them.
            prior: logits (E, *) that the routing starts from.
            activation: (I, *) in [0, 1], how sure each child is, or None for 1.

        Returns:
            ``Parents``, or the sums s (J, *, D) alone, which are then squashed.
        """
        raise NotImplementedError(f"{type(self).__name__}: expected a method forward(edges, votes, prior, activation)")

    def for_layer(self, num_children: int, num_parents: int, parent_dim: int, parent_types: int) -> Routing:
        """The routing that a layer of these sizes holds: a copy, with parameters of its own.

        Args:
            num_children, num_parents: I, J.
            parent_dim: D.
            parent_types: types of parents, outermost in their order; J / parent_types parents are of one type.
        """
        return copy.deepcopy(self)

    def reset_parameters(self) -> None:
        """Begin anew with what is learned."""

    def with_iterations(self, iterations: int) -> Routing:
        """The same routing with R iterations. Both share their parameters: to move or train one is to do so to both."""
        check_whole("iterations", iterations)
        other = copy.copy(self)
        other.iterations = iterations
        return other

    def settings(self) -> dict[str, Any]:
        """The constructor's arguments.

        Raises:
            GraphcapsError: one is not kept as an attribute of the same name.
        """
        names = [name for name in inspect.signature(type(self)).parameters if name not in ("args", "kwargs")]
        for name in names:
            if not hasattr(self, name):
                wanted = f"the setting '{name}' kept as an attribute, self.{name} = {name}"
                raise GraphcapsError(f"{type(self).__name__}: expected {wanted}, got none")
        return {name: getattr(self, name) for name in names}

    def extra_repr(self) -> str:
        return ", ".join(f"{name}={value!r}" for name, value in self.settings().items())


def squashed(s: Tensor, v: Tensor | None = None) -> Parents:
    """``Parents`` of sums s and capsules v = squash(s), whose activation is their length."""
    v = squash(s) if v is None else v
    return Parents(s, v, torch.linalg.vector_norm(v, dim=-1))
