"""Capsules with positions: each child votes for the parents nearest to it.

Routing lets a child's votes compete over its out-edges. So it is the child that has k links, not the parent as in the
neighbourhoods of graph networks: every child chooses among k and starts undecided at 1 / k. With k links per parent, a
child could be in nobody's neighbourhood and not be heard, or in one alone and have nothing to choose. The price is that
a parent no child is near has no votes, and its capsule is zero.
"""

from __future__ import annotations

import numpy as np
import torch
from scipy.spatial import KDTree

from .._dgl import DGLGraph
from ..errors import check_whole, expect
from .bipartite import bipartite_graph

MOST_FOUND = 2**22  # neighbours that are looked for at a time


def nearest_graph(children: torch.Tensor, parents: torch.Tensor, k: int) -> DGLGraph:
    """Link each of I children to the k of J parents nearest to it (Euclidean); equally near ones in order of index.

    A k-d tree finds them: no (I, J) matrix is built. Several sets of points are one batch by
    ``dgl.batch([nearest_graph(...), ...])``.

    Args:
        children: (I, d) floating point, where the children are, d >= 1.
        parents: (J, d), where the parents are.
        k: parents of each child, 1 to J.

    Returns:
        DGLGraph on the CPU with I * k edges of type ``("child", "votes", "parent")``: child by child, its nearest
        parent first.

    Raises:
        InputError: shapes that don't fit, positions that are not finite, k outside 1 to J.

    >>> graph = nearest_graph(torch.tensor([[0.0], [9.0]]), torch.tensor([[8.0], [1.0], [5.0]]), k=2)
    >>> graph.edges(order="eid")
    (tensor([0, 0, 1, 1]), tensor([1, 2, 0, 2]))
    """
    places = {}
    for name, layer, points in (("children", "I", children), ("parents", "J", parents)):
        fits = isinstance(points, torch.Tensor) and points.dim() == 2 and points.is_floating_point()
        got = f"{tuple(points.shape)} {points.dtype}" if isinstance(points, torch.Tensor) else type(points).__name__
        expect(fits and points.shape[1] >= 1, name, f"({layer}, d), floating point", got)
        expect(bool(points.isfinite().all()), name, "finite positions", "NaN or infinity")
        places[name] = points.detach().cpu().double().numpy()
    dims = children.shape[1], parents.shape[1]
    expect(dims[0] == dims[1], "parents", f"d={dims[0]} numbers each as children", dims[1])
    check_whole("k", k, 1, len(parents), wanted=f"an integer from 1 to J={len(parents)}, the parents")
    nearest = _nearest(KDTree(places["parents"]), places["children"], k)  # (I, k)
    src = torch.arange(len(children)).repeat_interleave(k)
    return bipartite_graph(src, torch.from_numpy(nearest).flatten(), len(children), len(parents))


def _nearest(tree: KDTree, points: np.ndarray, k: int) -> np.ndarray:
    """(I, k) int64: for each of the points (I, d) the nearest in the tree, by distance, then by index.

    Of points equally far the tree gives any. A row is settled when what it found reaches farther than its k-th: then
    all that are as near as the k-th were found. Rows that aren't are asked again for twice as many.
    """
    nearest = np.empty((len(points), k), np.int64)
    rows, reach = np.arange(len(points)), min(k + 1, tree.n)
    while len(rows):
        unsettled = []
        for some in np.array_split(rows, -(-len(rows) * reach // MOST_FOUND)):
            distance, found = (values.reshape(len(some), reach) for values in tree.query(points[some], reach))
            order = np.lexsort((found, distance))[:, :k]
            nearest[some] = np.take_along_axis(found, order, axis=1)
            unsettled.append(some[distance[:, -1] == distance[:, k - 1]] if reach < tree.n else some[:0])
        rows, reach = np.concatenate(unsettled), min(2 * reach, tree.n)
    return nearest
