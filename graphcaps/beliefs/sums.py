"""Sums and products along edges for BeliefConv, which doesn't route. They are here because they use the kernels."""

from typing import Any

import torch
from torch import Tensor

from .._dgl import DGLGraph, ops
from ..algorithms.rule import Rule
from ..algorithms.votes import NodeVotes
from ..edges.second_derivative import once_differentiable
from ..graph import bipartite_graph, cached_per_structure, links
from ..kernels.fused import fused_sums
from ..routing import use_node_kernels


def sum_weighted(graph: DGLGraph, z: Tensor, weight: Tensor) -> Tensor:
    """(N_dst, K, D): for each node, the sum over its in-edges of weight (E, K) times the source's z (N_src, K, D)."""
    if use_node_kernels(z.unsqueeze(1)):
        # In a single iteration all couplings are 1 / K, so the weights are multiplied by K.
        return fused_sums(graph, NodeVotes(z.unsqueeze(1), weight.unsqueeze(1) * z.shape[1]), Rule(1))[0]
    ends = links(graph, z.device)
    along = weight.unsqueeze(-1) * z.index_select(0, ends.src)
    return z.new_zeros(ends.num_parents, *z.shape[1:]).index_add(0, ends.dst, along)


def products_of_ends(graph: DGLGraph, z: Tensor) -> Tensor:
    """(E, K): on each edge (u, v) the products <z_u, z_v> of z (N, K, D). Sources and destinations are the same."""
    if use_node_kernels(z.unsqueeze(1)):
        return _ProductsOfEnds.apply(z, graph)
    return _products(graph, z)


def _products(graph: DGLGraph, z: Tensor) -> Tensor:
    ends = links(graph, z.device)
    return (z.index_select(0, ends.src) * z.index_select(0, ends.dst)).sum(-1)


@cached_per_structure
def reversed_graph(graph: DGLGraph) -> DGLGraph:
    """Return a graph with the same edges, from parents to children."""
    src, dst = graph.edges(order="eid")
    return bipartite_graph(dst, src, graph.num_dst_nodes(), graph.num_src_nodes())


class _ProductsOfEnds(torch.autograd.Function):
    """``products_of_ends``, by DGL on a CPU. The gradient is two ``sum_weighted``, faster than DGL's or torch's."""

    @staticmethod
    def forward(ctx: Any, z: Tensor, graph: DGLGraph) -> Tensor:
        ctx.save_for_backward(z)
        ctx.graph = graph
        return _products(graph, z) if z.is_cuda else ops.u_dot_v(graph, z, z).squeeze(-1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (z,) = ctx.saved_tensors
        return sum_weighted(ctx.graph, z, grad) + sum_weighted(reversed_graph(ctx.graph), z, grad), None
