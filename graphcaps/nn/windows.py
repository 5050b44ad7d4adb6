"""Base of convolutional capsules with any kind of votes: windows on a grid, and the graph of votes."""

from __future__ import annotations

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
        matrix: (rows, columns) of a matrix; there is one for each place in the window, type of child and of parent.
        routing, parent_dim: as in ``RoutedLayer``.

    Raises:
        InputError: sizes that are no integers >= 1, a kernel larger than the grid.
    """

    index: torch.Tensor

    def __init__(
        self,
        grid: Pair,
        kernel: Pair,
        stride: Pair,
        child_types: int,
        parent_types: int,
        matrix: tuple[int, int],
        routing: Routing,
        parent_dim: int,
    ):
        rows, columns = as_pair("grid", grid)
        window = (rows, columns), as_pair("kernel", kernel), as_pair("stride", stride), child_types, parent_types
        index, out_grid = local_index(*window), local_grid(*window[:3])
        num_matrices = window[1][0] * window[1][1] * child_types * parent_types
        num_children, num_parents = child_types * rows * columns, parent_types * out_grid[0] * out_grid[1]
        super().__init__(num_children, num_parents, (num_matrices, *matrix), routing, parent_dim, parent_types)
        self.grid, self.kernel_size, self.stride, self.child_types, self.parent_types = self._window = window
        self.out_grid = out_grid
        """(h, w): positions of the parents."""
        self.register_buffer("index", index, persistent=False)  # (E,)
        self._draw()

    def graph(self, device: torch.device | str = "cpu") -> DGLGraph:
        """The graph of ``local_graph``, on ``device`` if the installed DGL can have it there, else on the CPU."""
        return local_graph(*self._window, graph_device(device))

    def _repr(self, sides: str, matrices: int) -> str:
        return f"{sides}, kernel={self.kernel_size}, stride={self.stride}, {len(self.index)} edges, {matrices} matrices"
