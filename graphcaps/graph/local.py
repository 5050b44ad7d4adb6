"""Graphs of convolutional capsules: on a grid, each child votes for the parents whose windows contain it.

Each of H x W positions has one child of every child type. Each of the h x w positions at which a kernel fits without
padding has one parent of every parent type. Child i = type * H * W + y * W + x, and parents are numbered likewise.
A child's couplings compete over the types *and positions* of its parents.
"""

import functools

import torch

from .._dgl import DGLGraph
from ..errors import expect
from ..tracing import run_untraced
from ..typed import Device, Size, typed
from .bipartite import bipartite_graph, complete_graph
from .links import Links

Pair = Size | tuple[Size, Size]


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

    Edges are sorted by child, then by parent. A kernel as large as the grid makes the complete graph. Children beyond
    the last window, or between windows, have no parents. The structure is cached; every call returns a new graph.

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
    return _local(*_checked(grid, kernel, stride), child_types, parent_types, str(device)).local_var()


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
    return _local_ends(*_checked(grid, kernel, stride), child_types, parent_types)[0][2].clone()


@typed
def local_grid(grid: Pair, kernel: Pair, stride: Pair = 1) -> tuple[int, int]:
    """(h, w): the number of positions at which a kernel fits into a grid, without padding.

    >>> local_grid((9, 8), kernel=3, stride=2)
    (4, 3)
    """
    (height, width), (rows, columns), (down, across) = _checked(grid, kernel, stride)
    return (height - rows) // down + 1, (width - columns) // across + 1


def graph_of(sizes: tuple[int, ...], device: torch.device | str = "cpu") -> DGLGraph:
    """Return ``complete_graph(*sizes)``, or with eight sizes ``local_graph`` of grid, kernel, stride and types."""
    if len(sizes) == 2:
        return complete_graph(*sizes, device=device)
    height, width, rows, columns, down, across, child_types, parent_types = sizes
    return local_graph((height, width), (rows, columns), (down, across), child_types, parent_types, device)


@functools.lru_cache(maxsize=64)
def links_of_layer(sizes: tuple[int, ...], device: torch.device) -> Links:
    """Return the links of ``graph_of(sizes)``, which need no DGL."""
    return run_untraced(lambda: _links_of(sizes, device))


def _links_of(sizes: tuple[int, ...], device: torch.device) -> Links:
    with torch.inference_mode(False):
        if len(sizes) == 2:
            src = torch.arange(sizes[0], device=device).repeat_interleave(sizes[1])
            dst = torch.arange(sizes[1], device=device).repeat(sizes[0])
            return Links(src, dst, *sizes, cache={"complete": True})
        height, width, rows, columns, down, across, *types = sizes
        (src, dst, _), counts = _local_ends((height, width), (rows, columns), (down, across), *types)
        complete = Links(src, dst, *counts).complete  # computed on the CPU, because meta has no numbers
        return Links(src.to(device), dst.to(device), *counts, cache={"complete": complete})


def as_pair(size: Pair) -> tuple[int, int]:
    """Return ``size`` as (rows, columns)."""
    return (size[0], size[1]) if isinstance(size, (tuple, list)) else (size, size)


def _checked(grid: Pair, kernel: Pair, stride: Pair) -> tuple[tuple[int, int], tuple[int, int], tuple[int, int]]:
    grid, kernel, stride = as_pair(grid), as_pair(kernel), as_pair(stride)
    fits = kernel[0] <= grid[0] and kernel[1] <= grid[1]
    expect(fits, "kernel", f"at most the grid, {grid[0]} x {grid[1]}", f"{kernel[0]} x {kernel[1]}")
    return grid, kernel, stride


@functools.lru_cache(maxsize=32)
def _local(
    grid: tuple[int, int],
    kernel: tuple[int, int],
    stride: tuple[int, int],
    child_types: int,
    parent_types: int,
    device: str,
) -> DGLGraph:
    (src, dst, _), counts = _local_ends(grid, kernel, stride, child_types, parent_types)
    return bipartite_graph(src, dst, *counts).to(device)


@functools.lru_cache(maxsize=32)
def _local_ends(
    grid: tuple[int, int], kernel: tuple[int, int], stride: tuple[int, int], child_types: int, parent_types: int
) -> tuple[tuple[torch.Tensor, torch.Tensor, torch.Tensor], tuple[int, int]]:
    """Return the child, the parent and the matrix of each edge, (E,) on the CPU, and the numbers of both layers."""
    height, width = local_grid(grid, kernel, stride)
    with torch.device("cpu"):
        rows, columns = (_windows(*axis) for axis in zip((height, width), kernel, stride, strict=True))
        counts = len(rows), len(columns), child_types, parent_types
        down, across, child_type, parent_type = torch.cartesian_prod(*(torch.arange(count) for count in counts)).T
        (child_y, parent_y, dy), (child_x, parent_x, dx) = rows[down].T, columns[across].T
        child = (child_type * grid[0] + child_y) * grid[1] + child_x
        parent = (parent_type * height + parent_y) * width + parent_x
        index = ((dy * kernel[1] + dx) * child_types + child_type) * parent_types + parent_type
        num_children, num_parents = child_types * grid[0] * grid[1], parent_types * height * width
        order = torch.argsort(child * num_parents + parent)
        return (child[order], parent[order], index[order]), (num_children, num_parents)


def _windows(count: int, side: int, step: int) -> torch.Tensor:
    """Along one axis, each child's position, its parent's position and its offset in the window: (count * side, 3)."""
    parent, offset = torch.cartesian_prod(torch.arange(count), torch.arange(side)).T
    return torch.stack([parent * step + offset, parent, offset], dim=1)
