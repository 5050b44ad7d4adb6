"""Fewer edges: each child keeps those it uses most."""

from __future__ import annotations

import torch

from .._dgl import DGLGraph, dgl
from ..errors import check_whole, expect
from .bipartite import check_graph
from .links import links


def strongest_edges(graph: DGLGraph, strength: torch.Tensor, k: int) -> tuple[DGLGraph, torch.Tensor]:
    """Keep each child's k strongest out-edges, equally strong ones in order of edge id; nodes all stay.

    Args:
        graph: as ``route`` takes it, E edges, but no message-flow block; a batch stays one.
        strength: (E,) real numbers without NaN, such as each edge's mean coupling over a data set.
        k: edges that a child keeps, >= 1; a child with no more than k keeps all.

    Returns:
        The pruned graph with the features of what stays, and the kept edges' ids in ``graph``, ascending, (E',) int64
        on the CPU: edge e of the pruned graph is ``kept[e]`` of ``graph``.

    Raises:
        InputError: a block, not one strength per edge, NaN among them, or k below 1.

    >>> from graphcaps import complete_graph
    >>> pruned, kept = strongest_edges(complete_graph(2, 3), torch.tensor([0.2, 0.5, 0.3, 0.4, 0.4, 0.2]), k=1)
    >>> pruned.num_edges(), kept
    (2, tensor([1, 3]))
    """
    check_graph(graph)
    expect(not graph.is_block, "graph", "no message-flow block", "one", "Prune the graph it was sampled from")
    check_whole("k", k)
    wanted = f"a real tensor (E={graph.num_edges()},)"
    got = f"{tuple(strength.shape)} {strength.dtype}" if isinstance(strength, torch.Tensor) else type(strength).__name__
    fits = (
        isinstance(strength, torch.Tensor) and strength.shape == (graph.num_edges(),) and strength.is_floating_point()
    )
    expect(fits, "strength", wanted, got)
    expect(not bool(strength.isnan().any()), "strength", "numbers", "NaN")
    src = links(graph).src
    order = strength.detach().cpu().argsort(descending=True, stable=True)
    order = order[src[order].argsort(stable=True)]  # child by child, the strongest edge first
    degree = src.bincount(minlength=graph.num_src_nodes())
    first = degree.cumsum(0) - degree  # (I,)
    rank = torch.arange(len(order)) - first[src[order]]
    kept = order[rank < k].sort().values
    dropped = order[rank >= k].to(graph.device, graph.idtype)
    return dgl.remove_edges(graph, dropped), kept
