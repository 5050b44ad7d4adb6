"""Base of convolutional capsules with any kind of votes: windows on a grid, and the graph of votes."""

from __future__ import annotations

import math

import torch

from .._dgl import DGLGraph
from ..graph import local_graph, local_grid, local_index
from ..graph.local import Pair, as_pair
from ..routing import Routing
from .routed import RoutedLayer, graph_device


class WindowedCaps(RoutedLayer):
    """A layer whose parents see windows of a grid of children, with every type of one linked to all types of the other.

    Args:
        grid: (H, W) positions of the children, or one number for both.
        kernel, stride: size and step of the windows, (rows, columns) or one number for both.
        child_types, parent_types: kinds of capsule at each position, outermost in the capsules' order.
        child_dim, parent_dim: P, D.
        matrix: (rows, columns) of a matrix; there is one for each place in the window, type of child and of parent.
        routing: the routing, of which the layer holds a copy.

    Raises:
        InputError: sizes that are no integers >= 1, a kernel larger than the grid.
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
        """The graph of ``local_graph``, on ``device`` if the installed DGL can have it there, else on the CPU."""
        return local_graph(*self._window, graph_device(device))

    def extra_repr(self) -> str:
        below, above = (self.child_types, *self.grid), (self.parent_types, *self.out_grid)
        matrices, rows, columns = self.weight.shape
        return (
            f"{' x '.join(map(str, below))} -> {' x '.join(map(str, above))} capsules, kernel={self.kernel_size}, "
            f"stride={self.stride}, {matrices} matrices of {rows} x {columns}"
        )
