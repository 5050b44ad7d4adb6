"""The links between two capsule layers as a bipartite DGLGraph: children vote for parents along the edges."""

from __future__ import annotations

import torch
from numpy.typing import ArrayLike

from .. import _dgl
from .._dgl import DGLGraph
from ..errors import reading
from ..tracing import run_untraced
from ..typed import Count, typed
from .links import Links

EDGE_TYPE = ("child", "votes", "parent")


@typed
def bipartite_graph(
    src: torch.Tensor | ArrayLike, dst: torch.Tensor | ArrayLike, num_children: Count, num_parents: Count
) -> DGLGraph:
    """Link child ``src[e]`` to parent ``dst[e]`` for each edge e; duplicates and isolated capsules are allowed.

    Args:
        src, dst: (E,) int32 or int64 in [0, I) and [0, J): the child and the parent of each edge.
        num_children, num_parents: I, J >= 0.

    Returns:
        DGLGraph with E edges of type ``("child", "votes", "parent")``, whose ids are in the order given.

    Raises:
        InputError: lengths differ, or indices are not int32 or int64 or lie outside the layers.

    >>> bipartite_graph([0, 0, 2], [1, 0, 1], num_children=3, num_parents=2).num_edges()
    3
    """
    with reading("src", "integers (E,)"):
        src = torch.as_tensor(src).clone()  # the graph keeps its edges if the caller's array changes
    with reading("dst", "integers (E,)"):
        dst = torch.as_tensor(dst).clone()
    src, dst = (end if end.numel() else end.long() for end in (src, dst))
    Links.of(src, dst, num_children, num_parents)  # checks the ends
    return _dgl.dgl.heterograph({EDGE_TYPE: (src, dst.to(src.dtype))}, {"child": num_children, "parent": num_parents})


def graph_of_links(links: Links) -> DGLGraph:
    """Return a new graph of votes along links, whose structure is made once."""
    ends = links.src, links.dst, links.num_children, links.num_parents
    return links.cached("graph", lambda: run_untraced(lambda: bipartite_graph(*ends))).local_var()
