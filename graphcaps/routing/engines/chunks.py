"""Sums and products along edges, computed in chunks of edges, for nodes that send the same votes along all their edges.

The votes of a chunk are gathered, used and freed, so the votes of all edges never exist at once. The gradient of each
operation uses the other operation, so gradients of any order exist. Both are written in torch, for any device.
"""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from ...graph import Links

MAX_NUMBERS = 2**24  # the most numbers in a chunk's votes


def sum_along(z: Tensor, weight: Tensor, ends: Links) -> Tensor:
    """(N_dst, *, D): for each node, the sum over its in-edges of weight (E, *) times the source's z (N_src, *, D)."""
    return _Sum.apply(z, weight, ends)


def products_along(z: Tensor, v: Tensor, ends: Links) -> Tensor:
    """(E, *): on each edge the product of its source's z (N_src, *, D) and its destination's v (N_dst, *, D)."""
    return _Products.apply(z, v, ends)


def _reversed(ends: Links) -> Links:
    return Links(ends.dst, ends.src, ends.num_parents, ends.num_children, complete=False)


def _chunks(ends: Links, like: Tensor) -> Iterator[slice]:
    """Return slices of edges. One row of ``like`` (N, *) per edge of a slice is at most MAX_NUMBERS numbers."""
    step = max(1, MAX_NUMBERS // max(1, like[:1].numel()))
    return (slice(at, at + step) for at in range(0, len(ends.src), step))


class _Sum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, z: Tensor, weight: Tensor, ends: Links) -> Tensor:
        ctx.save_for_backward(z, weight)
        ctx.ends = ends
        total = z.new_zeros(ends.num_parents, *z.shape[1:])
        for at in _chunks(ends, z):
            total.index_add_(0, ends.dst[at], weight[at].unsqueeze(-1) * z.index_select(0, ends.src[at]))
        return total

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        (z, weight), ends = ctx.saved_tensors, ctx.ends
        dz = _Sum.apply(grad, weight, _reversed(ends)) if ctx.needs_input_grad[0] else None
        return dz, _Products.apply(z, grad, ends) if ctx.needs_input_grad[1] else None, None


class _Products(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, z: Tensor, v: Tensor, ends: Links) -> Tensor:
        ctx.save_for_backward(z, v)
        ctx.ends = ends
        products = z.new_empty(len(ends.src), *z.shape[1:-1])
        for at in _chunks(ends, z):
            torch.sum(z.index_select(0, ends.src[at]) * v.index_select(0, ends.dst[at]), -1, out=products[at])
        return products

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        (z, v), ends = ctx.saved_tensors, ctx.ends
        dz = _Sum.apply(v, grad, _reversed(ends)) if ctx.needs_input_grad[0] else None
        return dz, _Sum.apply(z, grad, ends) if ctx.needs_input_grad[1] else None, None
