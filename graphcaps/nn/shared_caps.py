"""Fully connected capsules whose matrices all positions share, and which are told where each child is."""

from __future__ import annotations

import torch
from torch import nn

from .._dgl import DGLGraph
from ..errors import check_whole, expect
from ..graph import complete_graph
from ..routing import LinearVotes
from .routed import check_options, graph_device, route_layer
from .routing_parameters import learned_for


class SharedCaps(nn.Module):
    """Fully connected capsules with one matrix for each type of child and parent, as in matrix capsules' last layer.

    Hinton, Sabour & Frosst 2018, "Matrix capsules with EM routing", section 4, adds the position of a child to two
    numbers of its vote. Here the child's row and column, in [-1, 1] of the image, are appended to its pose:

        u_hat_ij = [u_i, |u_i| row_i, |u_i| column_i] W_tj

    Differs:
        Added to votes, coordinates would say the same of every image at equal couplings, since vector capsules'
        votes aren't weighed by activations. Times the child's length, they say where the parts are that are there;
        the matrix chooses which numbers of the vote they move.

    Votes and routing run in the weights' precision, float32 unless converted, also under autocast.

    Args:
        child_types: T, kinds of capsule, outermost in their order, as ``PrimaryCaps`` gives them.
        centres: (positions, 2), row and column of the centre of each position's field, in [0, 1] of the image.
        num_parents: J.
        child_dim, parent_dim: P, D.
        iterations: R >= 1.
        routing: name of the algorithm; ``em`` and ``inverted`` have parameters of their own, ``learned``.
        engine: as in ``graphcaps.route``.

    Shapes:
        u (I, B, P) -> v (J, B, D), I = T * positions

    >>> SharedCaps(8, torch.rand(64, 2), num_parents=10)(torch.zeros(512, 2, 8)).shape
    torch.Size([10, 2, 16])
    """

    places: torch.Tensor

    def __init__(
        self,
        child_types: int,
        centres: torch.Tensor,
        num_parents: int,
        child_dim: int = 8,
        parent_dim: int = 16,
        iterations: int = 3,
        routing: str = "dynamic",
        engine: str = "auto",
    ):
        super().__init__()
        check_options(iterations, routing, engine)
        check_whole("child_types", child_types)
        expect(centres.dim() == 2 and centres.shape[1] == 2, "centres", "(positions, 2)", tuple(centres.shape))
        self.num_children, self.num_parents = child_types * len(centres), num_parents
        self.iterations, self.routing, self.engine = iterations, routing, engine
        places = (2 * centres - 1).float().repeat(child_types, 1).unsqueeze(1)
        self.register_buffer("places", places, persistent=False)  # (I, 1, 2)
        self.weight = nn.Parameter(torch.empty(child_types, num_parents, child_dim + 2, parent_dim))  # (T, J, P + 2, D)
        self.learned = learned_for(routing, num_parents, num_parents, self.num_children, parent_dim)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw weights so that, at uniform coupling, a parent's sum s is about as long as one child."""
        parent_dim = self.weight.shape[-1]
        nn.init.normal_(self.weight, std=self.num_parents / (self.num_children * parent_dim) ** 0.5)

    def graph(self, device: torch.device | str = "cpu") -> DGLGraph:
        """The graph the layer routes on: on ``device`` where the installed DGL can be there, else on the CPU."""
        return complete_graph(self.num_children, self.num_parents, graph_device(device))

    def blank(self) -> torch.Tensor:
        """One image's children, all zero, on the layer's device."""
        return self.weight.new_zeros(self.num_children, 1, self.weight.shape[2] - 2)

    def votes(self, u: torch.Tensor) -> LinearVotes:
        """The children's votes with their places, not yet multiplied out."""
        u = u.to(self.weight.dtype)
        lengths = torch.linalg.vector_norm(u, dim=-1, keepdim=True)  # (I, B, 1)
        return LinearVotes(torch.cat([u, lengths * self.places.to(u.dtype)], dim=-1), self.weight)

    def forward(self, u: torch.Tensor) -> torch.Tensor:
        """Route children u (I, B, P) to the parents v (J, B, D)."""
        return route_layer(self, u)

    def extra_repr(self) -> str:
        types, _, child_dim, parent_dim = self.weight.shape
        return (
            f"{self.num_children} x {child_dim - 2}-D of {types} types -> {self.num_parents} x {parent_dim}-D, "
            f"iterations={self.iterations}, routing={self.routing!r}, engine={self.engine!r}"
        )
