"""Sums and products along the edges of a graph whose nodes say the same along all of them: votes are never all made.

The votes of a chunk of edges are gathered, used and forgotten, in the gradient anew. Either of the two is the other's
gradient, so that they have gradients of any order. In torch, on any device.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

CHUNK = 2**24  # numbers in the votes that are gathered together


class NodeVotes(NamedTuple):
    """The votes w_e z_u of edges e = (u, v)."""

    z: Tensor  # (N, *, K, D)
    scale: Tensor | None  # w, (E, *, 1 or K); None: 1

    def detach(self) -> NodeVotes:
        return NodeVotes(self.z.detach(), self.scale if self.scale is None else self.scale.detach())


class _Ends(NamedTuple):
    of: Tensor  # (E,): the node on this end of each edge
    to: Tensor  # (E,): on the other
    num_of: int
    num_to: int

    def reversed(self) -> _Ends:
        return _Ends(self.to, self.of, self.num_to, self.num_of)

    def chunks(self, like: Tensor) -> Iterator[slice]:
        """Edges whose rows, of ``like`` (N, *), have CHUNK numbers together."""
        step = max(1, CHUNK // max(1, like[:1].numel()))
        return (slice(at, at + step) for at in range(0, len(self.of), step))


def sum_along(z: Tensor, numbers: Tensor, src: Tensor, dst: Tensor, num_nodes: int) -> Tensor:
    """(num_nodes, *, D): over each node's in-edges the sum of their numbers (E, *) times the source's z (N, *, D)."""
    return _Sum.apply(z, numbers, _Ends(src, dst, len(z), num_nodes))


def products_along(z: Tensor, v: Tensor, src: Tensor, dst: Tensor) -> Tensor:
    """(E, *): on each edge <z, v> of its source's z (N, *, D) and its destination's v (N', *, D)."""
    return _Products.apply(z, v, _Ends(src, dst, len(z), len(v)))


class _Sum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, z: Tensor, numbers: Tensor, ends: _Ends) -> Tensor:
        ctx.save_for_backward(z, numbers)
        ctx.ends = ends
        total = z.new_zeros(ends.num_to, *z.shape[1:])
        for at in ends.chunks(z):
            total.index_add_(0, ends.to[at], numbers[at].unsqueeze(-1) * z.index_select(0, ends.of[at]))
        return total

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        (z, numbers), ends = ctx.saved_tensors, ctx.ends
        dz = _Sum.apply(grad, numbers, ends.reversed()) if ctx.needs_input_grad[0] else None
        return dz, _Products.apply(z, grad, ends) if ctx.needs_input_grad[1] else None, None


class _Products(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, z: Tensor, v: Tensor, ends: _Ends) -> Tensor:
        ctx.save_for_backward(z, v)
        ctx.ends = ends
        found = z.new_empty(len(ends.of), *z.shape[1:-1])
        for at in ends.chunks(z):
            torch.sum(z.index_select(0, ends.of[at]) * v.index_select(0, ends.to[at]), -1, out=found[at])
        return found

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        (z, v), ends = ctx.saved_tensors, ctx.ends
        dz = _Sum.apply(v, grad, ends.reversed()) if ctx.needs_input_grad[0] else None
        return dz, _Sum.apply(z, grad, ends) if ctx.needs_input_grad[1] else None, None
