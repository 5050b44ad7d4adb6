"""From child capsules to parent capsules: linear votes, then routing on a complete graph."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

from .._dgl import DGLGraph
from ..errors import check_whole
from ..graph import complete_graph
from ..routing import LinearVotes
from .routed import check_children, check_options, graph_device, route_layer
from .routing_parameters import learned_for


class CompleteCaps(nn.Module):
    """What fully connected layers share: every child has an edge to every parent, and a vote on it.

    A subclass has ``votes``, and ``extra_repr``; its arguments are those of ``CapsuleLayer``.

    Args:
        num_children, num_parents: I, J.
        weight: shape of the matrices, (matrices, rows, D).
    """

    prior: torch.Tensor | None

    def __init__(
        self,
        num_children: int,
        num_parents: int,
        weight: tuple[int, int, int],
        iterations: int,
        routing: str,
        engine: str,
        learned_prior: bool,
    ):
        super().__init__()
        check_options(iterations, routing, engine)
        check_whole("num_children", num_children)
        check_whole("num_parents", num_parents)
        self.num_children, self.num_parents = num_children, num_parents
        self.iterations, self.routing, self.engine = iterations, routing, engine
        self.weight = nn.Parameter(torch.empty(weight))
        self.learned = learned_for(routing, num_parents, num_parents, num_children, weight[-1])
        self.prior = nn.Parameter(torch.empty(num_children * num_parents)) if learned_prior else None  # (E,)
        self._draw()

    def reset_parameters(self) -> None:
        """Draw weights so that, at uniform coupling, a parent's sum s is about as long as one child.

        What the routing learns begins anew.
        """
        if self.learned is not None:
            self.learned.reset_parameters()
        self._draw()

    def _draw(self) -> None:
        parent_dim = self.weight.shape[-1]
        if self.prior is not None:
            nn.init.zeros_(self.prior)
        nn.init.normal_(self.weight, std=self.num_parents / (self.num_children * parent_dim) ** 0.5)

    def graph(self, device: torch.device | str = "cpu") -> DGLGraph:
        """The graph the layer routes on: on ``device`` where the installed DGL can be there, else on the CPU."""
        return complete_graph(self.num_children, self.num_parents, graph_device(device))

    def graph_recipe(self) -> tuple[Callable[..., DGLGraph], tuple] | None:
        """What makes the graph, and of what sizes; None where it may change."""
        return complete_graph, (self.num_children, self.num_parents)

    def votes(self, u: torch.Tensor) -> LinearVotes:
        """The children's votes, not yet multiplied out."""
        raise NotImplementedError

    def forward(self, u: torch.Tensor) -> torch.Tensor:
        """Route children u (I, B, P) to the parents v (J, B, D)."""
        return route_layer(self, u).v

    def options_repr(self) -> str:
        """How the layer is routed, for its repr."""
        prior = "" if self.prior is None else ", learned_prior=True"
        return f"iterations={self.iterations}, routing={self.routing!r}, engine={self.engine!r}{prior}"


class CapsuleLayer(CompleteCaps):
    """Fully connected capsules (DigitCaps of the 2017 paper): a matrix of its own for every child and parent.

    Votes and routing run in the weights' precision, float32 unless converted, also under autocast.

    Args:
        num_children, num_parents: I, J.
        child_dim, parent_dim: P, D.
        iterations: R >= 1.
        routing: name of the algorithm; what ``spherical``, ``inverted`` and ``em`` learn is in ``learned``.
        engine: as in ``graphcaps.route``.
        learned_prior: whether a logit for each edge is learned, which its routing starts from: the log priors of Sabour
            et al. 2017, the B of Mazzia et al. 2021. It starts at 0.

    Shapes:
        u (I, B, P) -> v (J, B, D)
        (B, I, P) is refused, unless B = I: then it can't be told apart, and mixes the images

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
        learned_prior: bool = False,
    ):
        edges = (num_children * num_parents, child_dim, parent_dim)
        super().__init__(num_children, num_parents, edges, iterations, routing, engine, learned_prior)

    def blank(self) -> torch.Tensor:
        """One image's children, all zero, on the layer's device."""
        return self.weight.new_zeros(self.num_children, 1, self.weight.shape[1])

    def votes(self, u: torch.Tensor) -> LinearVotes:
        """The children's votes, not yet multiplied out."""
        check_children(u, self.num_children, self.weight.shape[1])
        return LinearVotes(u.to(self.weight.dtype), self.weight)

    def extra_repr(self) -> str:
        edges, child_dim, parent_dim = self.weight.shape
        sizes = f"{self.num_children} x {child_dim}-D -> {self.num_parents} x {parent_dim}-D"
        return f"{sizes}, {edges} edges, {self.options_repr()}"
