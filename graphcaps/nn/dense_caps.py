"""From child capsules to parent capsules: linear votes, then routing on a complete graph."""

from __future__ import annotations

import torch
from torch import nn

from .._dgl import DGLGraph
from ..errors import check_flag, check_whole
from ..graph import complete_graph
from ..routing import LinearVotes, Routing
from .routed import check_children, graph_device, route_layer, routing_for_images


class CompleteCaps(nn.Module):
    """Base of fully connected layers: every child has an edge to every parent.

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
        routing: Routing | str,
        learned_prior: bool,
    ):
        super().__init__()
        check_whole("num_children", num_children)
        check_whole("num_parents", num_parents)
        check_flag("learned_prior", learned_prior)
        self.num_children, self.num_parents = num_children, num_parents
        self.weight = nn.Parameter(torch.empty(weight))
        self.routing = routing_for_images(routing).for_layer(num_children, num_parents, weight[-1], num_parents)
        self.prior = nn.Parameter(torch.empty(num_children * num_parents)) if learned_prior else None  # (E,)
        self._draw()

    def reset_parameters(self) -> None:
        """Draw weights so that, at uniform coupling, a parent's sum s is about as long as one child.

        Resets what the routing has learned, too.
        """
        self.routing.reset_parameters()
        self._draw()

    def _draw(self) -> None:
        parent_dim = self.weight.shape[-1]
        if self.prior is not None:
            nn.init.zeros_(self.prior)
        nn.init.normal_(self.weight, std=self.num_parents / (self.num_children * parent_dim) ** 0.5)

    def graph(self, device: torch.device | str = "cpu") -> DGLGraph:
        """The graph the layer routes on: on ``device`` where the installed DGL can be there, else on the CPU."""
        return complete_graph(self.num_children, self.num_parents, graph_device(device))

    def votes(self, u: torch.Tensor) -> LinearVotes:
        """The children's votes, not yet multiplied out."""
        raise NotImplementedError

    def forward(self, u: torch.Tensor) -> torch.Tensor:
        """Route children u (I, B, P) to the parents v (J, B, D)."""
        return route_layer(self, u).v


class CapsuleLayer(CompleteCaps):
    """Fully connected capsules (DigitCaps of the 2017 paper): a matrix of its own for every child and parent.

    Votes and routing run in the weights' precision, float32 unless converted, also under autocast.

    Args:
        num_children, num_parents: I, J.
        child_dim, parent_dim: P, D.
        routing: a routing such as ``Dynamic(3)``, of which the layer holds a copy, or the name of one.
        learned_prior: whether a logit for each edge is learned, which its routing starts from: the log priors of Sabour
            et al. 2017, the B of Mazzia et al. 2021. It starts at 0.

    Shapes:
        u (I, B, P) -> v (J, B, D)
        (B, I, P) is refused, unless B = I: then it passes, and mixes the images

    >>> CapsuleLayer(1152, 10)(torch.zeros(1152, 2, 8)).shape
    torch.Size([10, 2, 16])
    """

    def __init__(
        self,
        num_children: int,
        num_parents: int,
        child_dim: int = 8,
        parent_dim: int = 16,
        routing: Routing | str = "dynamic",
        learned_prior: bool = False,
    ):
        edges = (num_children * num_parents, child_dim, parent_dim)
        super().__init__(num_children, num_parents, edges, routing, learned_prior)

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
        return f"{sizes}, {edges} edges" + ", learned_prior=True" * (self.prior is not None)
