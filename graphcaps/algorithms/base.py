"""The base class of all routings. A routing is a torch module, and its constructor's arguments are its settings."""

from __future__ import annotations

import copy
import inspect
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn

from ..errors import GraphcapsError
from ..functional import squash
from ..tracing import exportable
from ..typed import Size, typed
from .rule import Rule

if TYPE_CHECKING:
    from ..engines.edges import Edges
else:
    Edges = Any  # the engines stand above the algorithms


@exportable
class Parents(NamedTuple):
    """The result of every routing, and of ``graphcaps.route``."""

    pose: Tensor
    """(J, *, D) of any length: in ``Inverted`` and ``EM`` the poses, in other routings the sums s."""
    v: Tensor
    """(J, *, D), the parent capsules: the pose scaled to the length of the activation."""
    activation: Tensor
    """(J, *) in [0, 1], the probability that each parent exists."""
    coupling: Tensor | None = None
    """(E, *), the couplings of the last iteration, detached. None if your own routing returns only sums."""


class Routing(nn.Module):
    """A routing algorithm. Subclass it to write your own; no registration is needed.

    ``forward`` is the algorithm. The constructor's arguments are the settings: keep each as an attribute of the same
    name, so that checkpoints and ``repr`` can read it. Learned tensors are parameters, as in any module.

    >>> class OneStep(Routing):
    ...     def forward(self, edges, votes, prior, activation=None):
    ...         c = edges.child_softmax(prior)
    ...         return squashed(edges.weighted_sum(c, votes), c)
    >>> from graphcaps import complete_graph, route
    >>> route(complete_graph(3, 2), torch.ones(6, 5, 4), OneStep()).coupling.shape
    torch.Size([6, 5])
    """

    iterations: int = 1
    """R, the number of iterations: ``forward`` calls ``edges.observe`` once in each."""
    uses_activation: bool = False
    """Whether the routing weights children by their activations."""
    sums_votes: bool = True
    """Whether poses are sums of votes times couplings, as ``CapsuleConv`` requires."""

    def forward(self, edges: Edges, votes: Any, prior: Tensor, activation: Tensor | None = None) -> Parents | Tensor:
        """Route votes to the parents.

        Args:
            edges: the operations on the graph's edges, an ``Edges`` of ``graphcaps.engines.edges``.
            votes: u_hat, one vote per edge, in the engine's own layout. Use only elementwise arithmetic, the last dim
                (D) and the operations of ``edges``: never index by dim.
            prior: the first logits, one number per edge in the engine's own layout, like votes.
            activation: (I, *) in [0, 1], the probability that each child exists, or None for 1.

        Returns:
            ``Parents``; or only the sums s (J, *, D): graphcaps then squashes them, and the result has no couplings.
        """
        raise NotImplementedError(f"{type(self).__name__}: expected a method forward(edges, votes, prior, activation)")

    def rule(self) -> Rule | None:
        """Return how logits follow from sums, for engines with kernels; None if only ``forward`` runs the routing."""
        return None

    def for_layer(self, num_children: int, num_parents: int, parent_dim: int, parent_types: int) -> Routing:
        """Return a copy for a layer of I children and J parents of D numbers, with its own parameters.

        The parents are sorted by type; there are J / ``parent_types`` of each. In layers for graphs, I is -1.
        """
        return copy.deepcopy(self)

    def reset_parameters(self) -> None:
        """Reset the learned parameters to their initial values."""

    @typed
    def with_iterations(self, iterations: Size) -> Routing:
        """Return a copy with R iterations. The two share parameters: moving or training one changes the other."""
        other = copy.copy(self)
        other.iterations = iterations
        return other

    def settings(self) -> dict[str, Any]:
        """Return the constructor's arguments by name; ``GraphcapsError`` if one isn't kept as an attribute."""
        names = list[str]()
        for kind in (kind for kind in type(self).__mro__ if "__init__" in vars(kind)):
            _, *parameters = inspect.signature(vars(kind)["__init__"]).parameters.values()
            names += [x.name for x in parameters if x.kind not in (x.VAR_POSITIONAL, x.VAR_KEYWORD)]
            if not any(x.kind == x.VAR_KEYWORD for x in parameters):  # the constructor of a base reads **settings
                break
        for name in names:
            if not hasattr(self, name):
                wanted = f"the setting '{name}' kept as an attribute, self.{name} = {name}"
                raise GraphcapsError(f"{type(self).__name__}: expected {wanted}, got none")
        return {name: getattr(self, name) for name in names}

    def extra_repr(self) -> str:
        return ", ".join(f"{name}={value!r}" for name, value in self.settings().items())


def squashed(s: Tensor, coupling: Tensor | None = None) -> Parents:
    """Return ``Parents`` for the sums s (J, *, D): v = squash(s), and its length is the activation."""
    v = squash(s)
    return Parents(s, v, torch.linalg.vector_norm(v, dim=-1), coupling)


def rule_of(routing: Routing) -> Rule | None:
    """Return the routing's rule, or None if a subclass, or the object, has a call of its own but not a rule."""
    order = (routing, *type(routing).__mro__)
    methods = "rule", "forward", "__call__"
    rule, *calls = (next(k for k, owner in enumerate(order) if name in vars(owner)) for name in methods)
    return routing.rule() if rule <= min(calls) else None


def per_parent(numbers: Tensor, like: Tensor) -> Tensor:
    """Return a number, or one per parent (J,), as a tensor like ``like`` (J, *) that broadcasts with it."""
    x = numbers.to(like)
    return x.reshape(-1, *[1] * (like.dim() - 1)) if x.dim() else x
