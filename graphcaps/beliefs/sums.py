"""Sums and products along edges for ``BeliefConv``, which doesn't route, by the kernels if they support them."""

from typing import Any

import torch
from torch import Tensor

from .. import kernels
from ..algorithms.rule import Rule
from ..algorithms.votes import NodeVotes
from ..edges.second_derivative import once_differentiable
from ..graph import Links
from ..routing import asked_engine


def sum_weighted(links: Links, z: Tensor, weight: Tensor) -> Tensor:
    """(N_dst, K, D): for each node, the sum over its in-edges of weight (E, K) times the source's z (N_src, K, D)."""
    # In a single iteration all couplings are 1 / K, so the weights are multiplied by K.
    votes = NodeVotes(z, weight * z.shape[1])
    if _supported(links, votes):
        return kernels.sums(links, votes, Rule(1)).s
    along = weight.unsqueeze(-1) * z.index_select(0, links.src)
    return z.new_zeros(links.num_parents, *z.shape[1:]).index_add(0, links.dst, along)


def products_of_ends(links: Links, z: Tensor) -> Tensor:
    """(E, K): on each edge (u, v) the products <z_u, z_v> of z (N, K, D). Sources and destinations are the same."""
    if _supported(links, NodeVotes(z)) and not torch.compiler.is_compiling():
        return _ProductsOfEnds.apply(z, links)
    return _products(links, z)


def _supported(links: Links, votes: NodeVotes) -> bool:
    return asked_engine() in ("auto", "fused") and not kernels.needs(links, votes, Rule(1))


def _products(links: Links, z: Tensor) -> Tensor:
    return (z.index_select(0, links.src) * z.index_select(0, links.dst)).sum(-1)


class _ProductsOfEnds(torch.autograd.Function):
    """``products_of_ends`` with a gradient of two ``sum_weighted``, which is faster than torch's."""

    @staticmethod
    def forward(ctx: Any, z: Tensor, links: Links) -> Tensor:
        ctx.save_for_backward(z)
        ctx.edges = links
        return _products(links, z)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (z,) = ctx.saved_tensors
        return sum_weighted(ctx.edges, z, grad) + sum_weighted(ctx.edges.turned, z, grad), None
