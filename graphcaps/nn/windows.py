"""Base of convolutional capsules, whatever their votes: windows on a grid, and the graph of votes."""

from __future__ import annotations

import torch
from torch import nn

from .._dgl import DGLGraph
from ..graph import local_graph, local_grid, local_index
from ..graph.local import Pair, as_pair
from .routed import graph_device


class WindowedCaps(nn.Module):
    """A layer whose parents see windows of a grid of children, every type of one all types of the other.

    Args:
        grid: (H, W) positions of the children, or one number for both.
        kernel, stride: of the windows, (rows, columns) or one number for both.
        child_types, parent_types: kinds of capsule at each position, outermost in the capsules' order.

    Raises:
        InputError: sizes that are no integers >= 1, a kernel larger than the grid.
    """

    index: torch.Tensor
    prior: torch.Tensor | None = None
    """No logits of edges are learned."""

    def __init__(self, grid: Pair, kernel: Pair, stride: Pair, child_types: int, parent_types: int):
        super().__init__()
        self.grid, self.kernel_size = as_pair("grid", grid), as_pair("kernel", kernel)
        self.stride = as_pair("stride", stride)
        self.child_types, self.parent_types = child_types, parent_types
        self.register_buffer("index", local_index(*self._window()), persistent=False)  # (E,)

    @property
    def num_matrices(self) -> int:
        """M: one for each place in the window, type of child and type of parent."""
        return self.kernel_size[0] * self.kernel_size[1] * self.child_types * self.parent_types

    @property
    def out_grid(self) -> tuple[int, int]:
        """(h, w): positions of the parents."""
        return local_grid(self.grid, self.kernel_size, self.stride)

    @property
    def num_children(self) -> int:
        """I."""
        return self.child_types * self.grid[0] * self.grid[1]

    @property
    def num_parents(self) -> int:
        """J."""
        return self.parent_types * self.out_grid[0] * self.out_grid[1]

    def graph(self, device: torch.device | str = "cpu") -> DGLGraph:
        """The graph the layer routes on: on ``device`` where the installed DGL can be there, else on the CPU."""
        return local_graph(*self._window(), graph_device(device))

    def _window(self) -> tuple[Pair, Pair, Pair, int, int]:
        return self.grid, self.kernel_size, self.stride, self.child_types, self.parent_types
