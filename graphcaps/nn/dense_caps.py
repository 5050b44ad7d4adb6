"""From child capsules to parent capsules: linear votes, then routing on a complete graph."""

from __future__ import annotations

import torch
from torch import nn

from .._dgl import DGLGraph
from ..errors import check_flag, check_whole
from ..graph import complete_graph
from ..routing import Routing
from .routed import RoutedLayer, graph_device, routing_for_images


class CompleteCaps(RoutedLayer):
    """Base of fully connected layers: every child has an edge to every parent.

    Its arguments are those of ``RoutedLayer`` and ``CapsuleLayer``.
    """

    def __init__(
        self,
        num_children: int,
        num_parents: int,
        child_dim: int,
        parent_dim: int,
        matrices: tuple[int, int, int],
        routing: Routing,
        learned_prior: bool = False,
        index: torch.Tensor | None = None,
    ):
        check_whole("num_children", num_children)
        check_whole("num_parents", num_parents)
        check_flag("learned_prior", learned_prior)
        sizes = num_children, num_parents, child_dim, parent_dim
        super().__init__(*sizes, matrices, routing, num_parents, index)
        self.prior = nn.Parameter(torch.empty(num_children * num_parents)) if learned_prior else None  # (E,)
        self._draw()

    def _draw(self) -> None:
        """Draw matrices that make a parent's sum about as long as one child, at uniform coupling."""
        if self.prior is not None:
            nn.init.zeros_(self.prior)
        nn.init.normal_(self.weight, std=self.num_parents / (self.num_children * self.weight.shape[-1]) ** 0.5)

    def graph(self, device: torch.device | str = "cpu") -> DGLGraph:
        """The complete graph, on ``device`` if the installed DGL can have it there, else on the CPU."""
        return complete_graph(self.num_children, self.num_parents, graph_device(device))


class CapsuleLayer(CompleteCaps):
    """Fully connected capsules (DigitCaps of the 2017 paper) with a separate matrix for every child and parent.

    Votes and routing run in the weights' precision, float32 unless converted, also under autocast.

    Args:
        num_children, num_parents: I, J.
        child_dim, parent_dim: P, D.
        routing: a routing such as ``Dynamic(3)``, of which the layer holds a copy, or the name of one.
        learned_prior: whether the layer learns a logit for each edge, from which its routing starts: the log priors of
            Sabour et al. 2017, the B of Mazzia et al. 2021. They start at 0.

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
        matrices = (num_children * num_parents, child_dim, parent_dim)
        sizes = num_children, num_parents, child_dim, parent_dim
        super().__init__(*sizes, matrices, routing_for_images(routing), learned_prior)

    def extra_repr(self) -> str:
        edges, child_dim, parent_dim = self.weight.shape
        sizes = f"{self.num_children} x {child_dim}-D -> {self.num_parents} x {parent_dim}-D"
        return f"{sizes}, {edges} edges" + ", learned_prior=True" * (self.prior is not None)
