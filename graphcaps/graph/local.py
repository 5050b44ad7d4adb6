"""The links and graphs between two capsule layers, each made once.

In a complete graph, each child votes for each parent. In the graph of a convolution, each child on a grid votes for the
parents whose windows contain it. Each of H x W positions has one child of every child type. Each of the h x w positions
at which a kernel fits without padding has one parent of every parent type. Child i = type * H * W + y * W + x, and
parents are numbered likewise. A child's couplings compete over the types *and positions* of its parents.

Edges are sorted by child, then by parent. The sizes of two layers are (I, J), or for a convolution (grid, kernel,
stride, child types, parent types).
"""

import functools
import math
from typing import Any

import torch

from .._dgl import DGLGraph
from ..errors import expect, reading
from ..tracing import run_untraced
from ..typed import Device, Size, typed
from .bipartite import graph_of_links
from .links import Links

Pair = Size | tuple[Size, Size]


@typed
def complete_graph(num_children: Size, num_parents: Size, device: Device = "cpu") -> DGLGraph:
    """Link each of I children to each of J parents; edge ``i * J + j`` goes from child i to parent j.

    The structure is cached, and every call returns a new graph without features.

    Args:
        num_children, num_parents: I, J >= 1, the numbers of capsules in the layers below and above.
        device: the graph's device. Devices other than "cpu" need a DGL that was built for them.

    Returns:
        DGLGraph with I * J edges of type ``("child", "votes", "parent")``.

    Raises:
        InputError: a count is not an integer >= 1.

    >>> complete_graph(1152, 10).num_edges()
    11520
    """
    return graph_of((num_children, num_parents), device)


@typed
def local_graph(
    grid: Pair,
    kernel: Pair,
    stride: Pair = 1,
    child_types: Size = 1,
    parent_types: Size = 1,
    device: Device = "cpu",
) -> DGLGraph:
    """Link each child to the parents of all types whose kernel covers its position.

    A kernel as large as the grid makes the complete graph. Children beyond the last window, or between windows, have no
    parents. The structure is cached, and every call returns a new graph without features.

    Args:
        grid, kernel, stride: (H, W), (rows, columns) and (down, across) >= 1, or one number for both. The parent at
            (y, x) sees the window of rows x columns children from (y * down, x * across) on.
        child_types, parent_types: numbers of children and of parents at each position, >= 1.
        device: the graph's device. Devices other than "cpu" need a DGL that was built for them.

    Returns:
        DGLGraph with ``child_types * parent_types * rows * columns * h * w`` edges.

    Raises:
        InputError: a size is not an integer >= 1, or the kernel is larger than the grid.

    >>> local_graph((9, 9), kernel=3, stride=2, child_types=16, parent_types=8)
    Graph(num_nodes={'child': 1296, 'parent': 128},
          num_edges={('child', 'votes', 'parent'): 18432},
          metagraph=[('child', 'parent', 'votes')])
    """
    return graph_of((*windows(grid, kernel, stride), child_types, parent_types), device)


@typed
def local_index(
    grid: Pair, kernel: Pair, stride: Pair = 1, child_types: Size = 1, parent_types: Size = 1
) -> torch.Tensor:
    """Return the number of each edge's weight matrix in ``local_graph`` of these arguments; positions share matrices.

    Returns:
        (E,) int64, for ``LinearVotes(u, weight, index)``:
        ``((dy * columns + dx) * child_types + child type) * parent_types + parent type``.

    >>> local_index((1, 3), kernel=(1, 2))  # children 0, 1, 1, 2 for parents 0, 0, 1, 1
    tensor([0, 1, 0, 1])
    """
    _, _, index = _local_edges(*windows(grid, kernel, stride), child_types, parent_types)
    return index.clone()


@typed
def local_grid(grid: Pair, kernel: Pair, stride: Pair = 1) -> tuple[int, int]:
    """(h, w): the number of positions at which a kernel fits into a grid, without padding.

    >>> local_grid((9, 8), kernel=3, stride=2)
    (4, 3)
    """
    (height, width), (rows, columns), (down, across) = windows(grid, kernel, stride)
    return (height - rows) // down + 1, (width - columns) // across + 1


def windows(grid: Pair, kernel: Pair, stride: Pair) -> tuple[tuple[int, int], tuple[int, int], tuple[int, int]]:
    """Check that a kernel fits into the grid, and return all three as pairs."""
    grid, kernel, stride = as_pair(grid), as_pair(kernel), as_pair(stride)
    fits = kernel[0] <= grid[0] and kernel[1] <= grid[1]
    expect(fits, "kernel", f"at most the grid, {grid[0]} x {grid[1]}", f"{kernel[0]} x {kernel[1]}")
    return grid, kernel, stride


def as_pair(size: Pair) -> tuple[int, int]:
    """Return ``size`` as (rows, columns)."""
    return (size[0], size[1]) if isinstance(size, (tuple, list)) else (size, size)


def graph_of(sizes: tuple[Any, ...], device: torch.device | str = "cpu") -> DGLGraph:
    """Return a new graph of two layers of these sizes, whose structure is made once."""
    return graph_of_links(links_of_layer(sizes, torch.device(device)))


@functools.lru_cache(maxsize=64)
def links_of_layer(sizes: tuple[Any, ...], device: torch.device) -> Links:
    """Return the links of ``graph_of(sizes)``, which need no DGL."""
    with reading("graph", f"edges between layers of sizes {sizes} that fit into the memory"):
        return run_untraced(lambda: _links_of_layer(sizes, device))


def _links_of_layer(sizes: tuple[Any, ...], device: torch.device) -> Links:
    with torch.inference_mode(False), torch.device("cpu"):
        if len(sizes) == 2:
            num_children, num_parents = sizes
            src = torch.arange(num_children).repeat_interleave(num_parents)
            dst = torch.arange(num_parents).repeat(num_children)
        else:
            grid, kernel, stride, child_types, parent_types = sizes
            num_children = child_types * math.prod(grid)
            num_parents = parent_types * math.prod(local_grid(grid, kernel, stride))
            src, dst, _ = _local_edges(*sizes)
        complete = Links(src, dst, num_children, num_parents).complete  # on the CPU, because meta has no numbers
        return Links(src.to(device), dst.to(device), num_children, num_parents, cache={"complete": complete})


@functools.lru_cache(maxsize=32)
def _local_edges(
    grid: tuple[int, int], kernel: tuple[int, int], stride: tuple[int, int], child_types: int, parent_types: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return the child, the parent and the matrix of each edge, (E,) on the CPU."""
    height, width = local_grid(grid, kernel, stride)
    with torch.device("cpu"):
        rows, columns = (_along_axis(*axis) for axis in zip((height, width), kernel, stride, strict=True))
        counts = len(rows), len(columns), child_types, parent_types
        down, across, child_type, parent_type = torch.cartesian_prod(*(torch.arange(count) for count in counts)).T
        (child_y, parent_y, dy), (child_x, parent_x, dx) = rows[down].T, columns[across].T
        child = (child_type * grid[0] + child_y) * grid[1] + child_x
        parent = (parent_type * height + parent_y) * width + parent_x
        index = ((dy * kernel[1] + dx) * child_types + child_type) * parent_types + parent_type
        order = torch.argsort(child * parent_types * height * width + parent)
        return child[order], parent[order], index[order]


def _along_axis(count: int, side: int, step: int) -> torch.Tensor:
    """Along one axis, each child's position, its parent's position and its offset in the window: (count * side, 3)."""
    parent, offset = torch.cartesian_prod(torch.arange(count), torch.arange(side)).T
    return torch.stack([parent * step + offset, parent, offset], dim=1)
