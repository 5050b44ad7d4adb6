"""The entropy of couplings: how undecided children are."""

from __future__ import annotations

import torch

from .._dgl import DGLGraph
from ..errors import check_tensor, check_unit, expect
from .bipartite import check_graph
from .links import links


def coupling_entropy(graph: DGLGraph, c: torch.Tensor | None = None) -> torch.Tensor:
    """Entropy of each child's couplings, H_i = -sum over its out-edges of c ln c, in nats.

    It is ln of the number of out-edges for an undecided child (uniform), 0 for one that has chosen one parent or has no
    edges.

    Args:
        graph: bipartite graph with E edges.
        c: (E, *) couplings in [0, 1]; default: ``graph.edata["c"]``.

    Returns:
        (I, *) in [0, ln J].

    Raises:
        InputError: no couplings, not one per edge or, on the CPU, outside [0, 1].

    >>> from graphcaps import complete_graph
    >>> coupling_entropy(complete_graph(1, 4), torch.full((4,), 0.25))
    tensor([1.3863])
    """
    check_graph(graph)
    if c is None:
        expect("c" in graph.edata, "graph", 'edata "c"', sorted(graph.edata), "Pass c, or route with return_graph=True")
        c = graph.edata["c"]
    check_tensor("c", c)
    edges = links(graph, c.device)
    expect(c.dim() >= 1 and len(c) == len(edges.src), "c", f"(E={len(edges.src)}, *)", tuple(c.shape))
    check_unit("c", c, "They are couplings, not logits")
    entropy = c.new_zeros(edges.num_children, *c.shape[1:])
    return entropy.index_add(0, edges.src, torch.special.entr(c))  # (I, *)
