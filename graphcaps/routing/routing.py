"""The base of all routings: a module whose settings are its constructor's arguments, over operations on edges."""

from __future__ import annotations

import copy
import inspect
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ..errors import GraphcapsError, check_whole
from ..functional import squash
from .rule import Rule


class Parents(NamedTuple):
    """The result of every routing, and of ``graphcaps.route``."""

    pose: Tensor
    """(J, *, D) of any length: for most routings the sums s, for ``Inverted`` and ``EM`` the poses."""
    v: Tensor
    """(J, *, D), the parent capsules: the pose at the length of its activation."""
    activation: Tensor
    """(J, *) in [0, 1], how sure each parent is that it exists."""
    coupling: Tensor | None = None
    """c (E, *), detached, of the last iteration. None if a routing of your own returns sums alone."""


class Routing(nn.Module):
    """A routing algorithm. Subclass it to write your own; nothing has to be registered.

    ``forward`` is the algorithm. The constructor's arguments are its settings: keep each as an attribute of the same
    name, so that checkpoints and ``repr`` can read it. What the routing learns are parameters, as in any module.

    >>> class OneStep(Routing):
    ...     def forward(self, edges, votes, prior, activation=None):
    ...         c = edges.child_softmax(prior)
    ...         return squashed(edges.weighted_sum(c, votes), c)
    >>> from graphcaps import complete_graph, route
    >>> route(complete_graph(3, 2), torch.ones(6, 5, 4), OneStep()).coupling.shape
    torch.Size([6, 5])
    """

    iterations: int = 1
    """R, iterations of routing: the number of times that ``forward`` calls ``edges.observe``."""
    uses_activation: bool = False
    """Whether children are weighted by their activations."""
    sums_votes: bool = True
    """Whether poses are sums of votes times couplings, as ``CapsuleConv`` expects them."""

    def forward(self, edges: Any, votes: Any, prior: Tensor, activation: Tensor | None = None) -> Parents | Tensor:
        """Route votes to the parents.

        Args:
            edges: the operations on the graph's edges: an ``Edges`` of ``graphcaps.routing.engines.edges``.
            votes: u_hat (E, *, D) in the layout of ``edges``.
            prior: logits (E, *) that the routing starts from, in the layout of ``edges``.
            activation: (I, *) in [0, 1], how sure each child is, or None for 1.

        Returns:
            ``Parents`` with the couplings in the layout of ``edges``; or the sums s (J, *, D) alone, which are then
            squashed and have no couplings to show.
        """
        raise NotImplementedError(f"{type(self).__name__}: expected a method forward(edges, votes, prior, activation)")

    def rule(self) -> Rule | None:
        """How logits follow from sums, for engines that run whole iterations in kernels; None: by ``forward`` alone."""
        return None

    def for_layer(self, num_children: int, num_parents: int, parent_dim: int, parent_types: int) -> Routing:
        """A copy for a layer of these sizes, with its own parameters.

        Args:
            num_children, num_parents: I, J.
            parent_dim: D.
            parent_types: number of types of parents, outermost in their order; J / parent_types parents share one.
        """
        return copy.deepcopy(self)

    def reset_parameters(self) -> None:
        """Set what is learned back to its start."""

    def with_iterations(self, iterations: int) -> Routing:
        """The same routing with R iterations. Both share their parameters: moving or training one changes the other."""
        check_whole("iterations", iterations)
        other = copy.copy(self)
        other.iterations = iterations
        return other

    def settings(self) -> dict[str, Any]:
        """The constructor's arguments.

        Raises:
            GraphcapsError: an argument is not kept as an attribute of the same name.
        """
        names = [name for name in inspect.signature(type(self)).parameters if name not in ("args", "kwargs")]
        for name in names:
            if not hasattr(self, name):
                wanted = f"the setting '{name}' kept as an attribute, self.{name} = {name}"
                raise GraphcapsError(f"{type(self).__name__}: expected {wanted}, got none")
        return {name: getattr(self, name) for name in names}

    def extra_repr(self) -> str:
        return ", ".join(f"{name}={value!r}" for name, value in self.settings().items())


def squashed(s: Tensor, coupling: Tensor | None = None) -> Parents:
    """``Parents`` of sums s (J, *, D): v = squash(s), whose length is the activation."""
    v = squash(s)
    return Parents(s, v, torch.linalg.vector_norm(v, dim=-1), coupling)


def rule_of(routing: Routing) -> Rule | None:
    """The routing's rule, unless a subclass has overridden ``forward`` and kept the rule of its base."""
    order = type(routing).__mro__
    definer = {name: next(i for i, kind in enumerate(order) if name in vars(kind)) for name in ("forward", "rule")}
    return routing.rule() if definer["rule"] <= definer["forward"] else None
