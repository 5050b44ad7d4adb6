"""Convolutional capsules: each parent is routed to from a window of a grid, by matrices that all positions share.

The layer of Hinton, Sabour & Frosst 2018, "Matrix capsules with EM routing", with vectors routed by agreement. As
there, a child's couplings compete over all its parents, of all types and *positions*. Code that cuts the grid into
windows and routes each by itself normalises inside one position: there a child gives all of itself to each window.
"""

from __future__ import annotations

import math

import torch
from torch import nn

from .._dgl import DGLGraph
from ..graph import local_graph, local_grid, local_index
from ..graph.local import Pair, as_pair
from ..routing import Routing
from .routed import RoutedLayer, graph_device, routing_for_images


class WindowedCaps(RoutedLayer):
    """Base of ``ConvCaps`` and ``MatrixConvCaps``, with the arguments of the former.

    ``matrix`` is (rows, columns) of a matrix; there is one for each place in the window, type of child and of parent.
    """

    def __init__(
        self,
        grid: Pair,
        kernel: Pair,
        stride: Pair,
        child_types: int,
        parent_types: int,
        child_dim: int,
        parent_dim: int,
        matrix: tuple[int, int],
        routing: Routing,
    ):
        grid, kernel, stride = as_pair("grid", grid), as_pair("kernel", kernel), as_pair("stride", stride)
        window, out_grid = (grid, kernel, stride, child_types, parent_types), local_grid(grid, kernel, stride)
        sizes = math.prod(grid) * child_types, math.prod(out_grid) * parent_types, child_dim, parent_dim
        matrices = (math.prod(kernel) * child_types * parent_types, *matrix)
        super().__init__(*sizes, matrices, routing, parent_types, local_index(*window))
        self.grid, self.kernel_size, self.stride, self.child_types, self.parent_types = self._window = window
        self.out_grid = out_grid
        """(h, w): positions of the parents."""
        self._draw()

    def graph(self, device: torch.device | str = "cpu") -> DGLGraph:
        return local_graph(*self._window, graph_device(device))

    def extra_repr(self) -> str:
        below, above = (self.child_types, *self.grid), (self.parent_types, *self.out_grid)
        matrices, rows, columns = self.weight.shape
        return (
            f"{' x '.join(map(str, below))} -> {' x '.join(map(str, above))} capsules, kernel={self.kernel_size}, "
            f"stride={self.stride}, {matrices} matrices of {rows} x {columns}"
        )


class ConvCaps(WindowedCaps):
    """Convolutional capsules: a matrix for each offset in the window, type of child and type of parent.

    Votes and routing run in the weights' precision, float32 unless converted, also under autocast. The graph is
    ``local_graph``, the matrix of each edge ``local_index``.

    Args:
        grid: (H, W), positions of the children, or one number for both.
        child_types, parent_types: number of capsules at each position; types are outermost, as in ``PrimaryCaps``.
        kernel, stride: a window's size and the steps to the next one, in positions, pairs or one number; no padding.
        child_dim, parent_dim: P, D.
        routing: a routing such as ``Dynamic(3)``, of which the layer holds a copy, or the name of one.

    Shapes:
        u (I, B, P) -> v (J, B, D), I = child_types * H * W, J = parent_types * h * w, (h, w) = ``out_grid``
        (B, I, P) is refused, unless B = I: then it passes, and mixes the images

    Raises:
        InputError: sizes that are no integers >= 1, a kernel larger than the grid, an unknown routing.

    >>> layer = ConvCaps((9, 9), child_types=16, parent_types=8, kernel=3, stride=2)
    >>> layer.out_grid, layer(torch.zeros(16 * 81, 2, 8)).shape
    ((4, 4), torch.Size([128, 2, 8]))
    """

    def __init__(
        self,
        grid: Pair,
        child_types: int,
        parent_types: int,
        kernel: Pair,
        stride: Pair = 1,
        child_dim: int = 8,
        parent_dim: int = 8,
        routing: Routing | str = "dynamic",
    ):
        sizes = child_types, parent_types, child_dim, parent_dim
        super().__init__(grid, kernel, stride, *sizes, (child_dim, parent_dim), routing_for_images(routing))

    def _draw(self) -> None:
        """Draw matrices that make a parent's sum about as long as one child, at uniform coupling.

        Squash shortens the sum, and routing makes up for that: in the untrained preset ``deep`` on MNIST the median
        lengths are 0.73 below the layers, and 0.75 and 0.84 above, after three iterations.
        """
        degrees = self.graph().out_degrees()
        spread = (1 / degrees[degrees > 0]).sum().item() / self.num_parents  # mean over parents of the sum of c^2
        nn.init.normal_(self.weight, std=(spread * self.weight.shape[-1]) ** -0.5)
