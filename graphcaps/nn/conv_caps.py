"""Convolutional capsules: a parent's children lie in a window of a grid, and all positions share the matrices.

The layer is that of Hinton, Sabour & Frosst 2018, "Matrix capsules with EM routing", with vectors routed by agreement.
As in the paper, a child's couplings compete over all its parents, of all types and *positions*. Other implementations
route each window separately, so that a child's couplings sum to 1 in each window that contains the child.
"""

import math

import torch
from torch import nn

from ..graph import local_grid, local_index
from ..graph.local import Pair, windows
from ..routing import Routing
from ..typed import Size, typed
from .routed import RoutedLayer, routing_for_images


class ConvCaps(RoutedLayer):
    """Convolutional capsules with a matrix for each offset in the window, child type and parent type.

    Precision and refused shapes are the same as for ``CapsuleLayer``. ``local_graph`` makes the graph, and
    ``local_index`` gives the matrix of each edge.

    Args:
        grid: (H, W), positions of the children, or one number for both.
        child_types, parent_types: number of capsules at each position; types are outermost, as in ``PrimaryCaps``.
        kernel, stride: size of a window and step to the next window, in positions; a pair or one number; no padding.
        child_dim, parent_dim, routing: as in ``CapsuleLayer``.

    Shapes:
        u (I, B, P) -> v (J, B, D), I = child_types * H * W, J = parent_types * h * w, (h, w) = ``out_grid``

    Raises:
        InputError: a size is not an integer >= 1, the kernel is larger than the grid, or the routing is unknown.

    >>> import torch
    >>> layer = ConvCaps((9, 9), child_types=16, parent_types=8, kernel=3, stride=2)
    >>> layer.out_grid, layer(torch.zeros(16 * 81, 2, 8)).shape
    ((4, 4), torch.Size([128, 2, 8]))
    """

    matrix: tuple[int, int] | None = None
    """(rows, columns) of a matrix; None: P x D."""

    @typed
    def __init__(
        self,
        grid: Pair,
        child_types: Size,
        parent_types: Size,
        kernel: Pair,
        stride: Pair = 1,
        child_dim: Size = 8,
        parent_dim: Size = 8,
        routing: Routing | str = "dynamic",
    ):
        grid, kernel, stride = windows(grid, kernel, stride)
        window, out_grid = (grid, kernel, stride, child_types, parent_types), local_grid(grid, kernel, stride)
        sizes = math.prod(grid) * child_types, math.prod(out_grid) * parent_types, child_dim, parent_dim
        matrices = (math.prod(kernel) * child_types * parent_types, *(self.matrix or (child_dim, parent_dim)))
        super().__init__(*sizes, matrices, routing_for_images(routing), parent_types, local_index(*window))
        self.grid, self.kernel_size, self.stride, self.child_types, self.parent_types = window
        self.graph_sizes = window
        self.out_grid = out_grid
        """(h, w): positions of the parents."""
        self._draw()

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, grid={self.grid}, kernel={self.kernel_size}, stride={self.stride}"

    def _draw(self) -> None:
        """Draw matrices so that, at uniform couplings, the sum of a parent's votes is about as long as one child."""
        degrees = self.links(torch.device("cpu")).src.bincount()
        spread = (1 / degrees[degrees > 0]).sum().item() / self.num_parents  # mean over parents of the sum of c^2
        nn.init.normal_(self.weight, std=(spread * self.weight.shape[-1]) ** -0.5)
