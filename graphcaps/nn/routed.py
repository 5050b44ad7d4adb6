"""The base class of all capsule layers for images, their input checks, and the function that routes them."""

import functools
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from .._dgl import DGLGraph, has_cuda
from ..algorithms.by_name import as_routing
from ..algorithms.observers import Observer
from ..errors import check_tensor, check_unit, expect
from ..functional import at_least_float32
from ..graph import Links, graph_of, links_of_layer
from ..layer_common import HasConstants
from ..routing import LinearVotes, MatrixVotes, Parents, Routing, route_links
from ..tracing import autocast_dtype, exportable, outside_autocast, uncompiled


@exportable
class Poses(NamedTuple):
    """Matrix capsules: ``pose`` (I, B, 16) and ``activation`` (I, B) in [0, 1]."""

    pose: Tensor
    activation: Tensor


class RoutedLayer(HasConstants):
    """Base of the layers with I children and J parents. It holds the matrices and a copy of a routing.

    Each child votes for each parent, unless a subclass has other ``graph_sizes``.

    Args:
        matrices: the shape of the weights, (matrices, rows, columns).
        parent_types: number of parent types; parents are ordered by type first. None: each parent has its own type.
        index: (E,) int64, the number of each edge's matrix; None: each edge has its own.
        learned_prior: whether the layer learns a logit for each edge, from which its routing starts.
    """

    index: Any

    def __init__(
        self,
        num_children: int,
        num_parents: int,
        child_dim: int,
        parent_dim: int,
        matrices: tuple[int, int, int],
        routing: Routing,
        parent_types: int | None = None,
        index: Tensor | None = None,
        learned_prior: bool = False,
    ):
        super().__init__()
        self.num_children, self.num_parents = num_children, num_parents
        self.graph_sizes: tuple[Any, ...] = num_children, num_parents  # the argument of graph_of
        self.child_dim, self.parent_dim = child_dim, parent_dim
        self.weight = nn.Parameter(torch.empty(matrices))
        self.routing = routing.for_layer(num_children, num_parents, parent_dim, parent_types or num_parents)
        self.prior = nn.Parameter(torch.empty(num_children * num_parents)) if learned_prior else None  # (E,)
        self.add_constant("index", index)

    def reset_parameters(self) -> None:
        """Draw the weights again, and reset the prior and the routing's parameters."""
        self.routing.reset_parameters()
        self._draw()

    def _draw(self) -> None:
        """Draw matrices so that, at uniform couplings, the sum of a parent's votes is about as long as one child."""
        if self.prior is not None:
            nn.init.zeros_(self.prior)
        nn.init.normal_(self.weight, std=self.num_parents / (self.num_children * self.weight.shape[-1]) ** 0.5)

    def graph(self, device: torch.device | str = "cpu") -> DGLGraph:
        """The graph of votes, on ``device`` if the installed DGL supports it, else on the CPU."""
        supported = torch.device(device).type == "cuda" and has_cuda()
        return graph_of(self.graph_sizes, device if supported else "cpu")

    def links(self, device: torch.device) -> Links:
        """The links of ``graph``, which need no DGL."""
        if torch.compiler.is_dynamo_compiling():
            from .constant_links import constant_links

            return constant_links(self.graph_sizes, device)
        return links_of_layer(self.graph_sizes, device)

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

    def extra_repr(self) -> str:
        sizes = f"{self.num_children} x {self.child_dim}-D -> {self.num_parents} x {self.parent_dim}-D"
        matrices, rows, columns = self.weight.shape
        prior = ", learned_prior=True" * (self.prior is not None)
        return f"{sizes}, {matrices} matrices of {rows} x {columns}{prior}"


def _is_traceable(layer: RoutedLayer, u: Any, on_iteration: Any = None, iterations: Any = None, coupling: bool = False):
    return on_iteration is None and iterations is None


@functools.partial(uncompiled, unless=_is_traceable)
def route_layer(
    layer: RoutedLayer,
    u: Tensor | Poses,
    on_iteration: Observer | None = None,
    iterations: int | None = None,
    coupling: bool = False,
) -> Parents:
    """Route a layer's children, u (I, B, P) or ``Poses``, to its parents, outside autocast.

    Under autocast, kernels on a GPU multiply in autocast's dtype; their sums, couplings and results are float32.
    ``iterations`` replaces the layer's own number. With ``coupling`` the result includes the last couplings.
    """
    device = check_tensor("u", u.pose if isinstance(u, Poses) else u).device
    routing = layer.routing if iterations is None else layer.routing.with_iterations(iterations)
    half = autocast_dtype(device)
    with outside_autocast(device):
        activation = activation_of(u) if routing.uses_activation else None
        links, votes = layer.links(device), layer.votes(u)
        return route_links(links, votes, routing, activation, layer.prior, on_iteration, coupling, half)


def activation_of(u: Tensor | Poses) -> Tensor:
    """Activations (I, B) in [0, 1]: the lengths of u (I, B, P), or the activations of ``Poses``."""
    return u.activation if isinstance(u, Poses) else torch.linalg.vector_norm(at_least_float32(u), dim=-1)


def routing_for_images(routing: Routing | str, **settings: Any) -> Routing:
    """Return the routing itself, or make the routing of that name with these settings.

    For images, "spherical" starts at concentration 0.01, which is nearly uniform. Accuracy on digits anywhere in the
    frame is then 97.6 %, instead of 96.6 % with a start at 1. With Adam at 0.001 and ``rate=10``, log kappa changes by
    0.01 a step, so kappa gets from 0.01 to 1 in 460 steps.
    """
    if routing == "spherical":
        settings = {"concentration": 0.01, "rate": 10} | settings
    return as_routing(routing, **settings)


def check_children(u: Tensor, num_children: int, dim: int) -> None:
    """Raise ``InputError`` unless u is floating point of shape (I, *, P); suggest the fix if the batch comes first."""
    check_tensor("u", u)
    shape, advice = tuple(u.shape), ""
    fits = len(shape) >= 2 and (shape[0], shape[-1]) == (num_children, dim)
    # Compare the batch's size only on failure: torch.export would record the comparison as a constraint on that size.
    if not fits and len(shape) == 3 and shape[1:] == (num_children, dim):
        advice = "Capsules come first, then the batch: u.transpose(0, 1)"
    expect(fits, "u", f"(I={num_children}, *, P={dim})", shape, advice)


def check_centres(centres: Tensor) -> None:
    check_tensor("centres", centres)
    expect(centres.dim() == 2 and centres.shape[1] == 2, "centres", "(positions, 2)", tuple(centres.shape))
    check_unit("centres", centres, "Divide pixels by the image's size")
