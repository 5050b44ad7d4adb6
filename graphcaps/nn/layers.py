"""From child capsules to parent capsules: linear votes, then routing on a complete graph."""

from __future__ import annotations

import torch
from torch import nn

from .._dgl import DGLGraph, has_cuda
from ..errors import expect
from ..graph import complete_graph
from ..routing import LinearVotes, route
from ..routing.engines import check_names


class CapsuleLayer(nn.Module):
    """Fully connected capsules (DigitCaps of the 2017 paper): a matrix of its own for every child and parent.

    Votes and routing run in float32, also under autocast.

    Args:
        num_children, num_parents: I, J.
        child_dim, parent_dim: P, D.
        iterations: R >= 1.
        routing: name of the algorithm.
        engine: as in ``graphcaps.route``.

    Shapes:
        u (I, B, P) -> v (J, B, D)

    >>> CapsuleLayer(1152, 10)(torch.zeros(1152, 2, 8)).shape
    torch.Size([10, 2, 16])
    """

    def __init__(
        self,
        num_children: int,
        num_parents: int,
        child_dim: int = 8,
        parent_dim: int = 16,
        iterations: int = 3,
        routing: str = "dynamic",
        engine: str = "auto",
    ):
        super().__init__()
        check_names(routing, engine)
        whole = isinstance(iterations, int) and not isinstance(iterations, bool)
        expect(whole and iterations >= 1, "iterations", "an integer >= 1", iterations)
        self.num_children, self.num_parents = num_children, num_parents
        self.iterations, self.routing, self.engine = iterations, routing, engine
        self.weight = nn.Parameter(torch.empty(num_children * num_parents, child_dim, parent_dim))  # (E, P, D)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw weights so that, at uniform coupling, a parent's sum s is about as long as one child."""
        parent_dim = self.weight.shape[-1]
        nn.init.normal_(self.weight, std=self.num_parents / (self.num_children * parent_dim) ** 0.5)

    def graph(self, device: torch.device | str = "cpu") -> DGLGraph:
        """The graph the layer routes on: on ``device`` where the installed DGL can be there, else on the CPU."""
        on_device = torch.device(device).type == "cuda" and has_cuda()
        return complete_graph(self.num_children, self.num_parents, device if on_device else "cpu")

    def votes(self, u: torch.Tensor) -> LinearVotes:
        """The children's votes, not yet multiplied out."""
        return LinearVotes(u.float(), self.weight)

    def forward(self, u: torch.Tensor) -> torch.Tensor:
        with torch.autocast(u.device.type, enabled=False):
            return route(
                self.graph(u.device),
                self.votes(u),
                routing=self.routing,
                iterations=self.iterations,
                engine=self.engine,
            ).v

    def extra_repr(self) -> str:
        edges, child_dim, parent_dim = self.weight.shape
        return (
            f"{self.num_children} x {child_dim}-D -> {self.num_parents} x {parent_dim}-D, {edges} edges, "
            f"iterations={self.iterations}, routing={self.routing!r}, engine={self.engine!r}"
        )
