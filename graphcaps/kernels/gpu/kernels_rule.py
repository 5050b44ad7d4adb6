"""The queries of `..rule.Rule` for Triton: how an iteration's w follows from sums s (..., D), and the gradient."""

import triton
import triton.language as tl

from ...functional import MIN_MEAN_SQUARE, MIN_NORM

SHORTEST, LEAST_SQUARE = tl.constexpr(MIN_NORM), tl.constexpr(MIN_MEAN_SQUARE)


@triton.jit
def next_query(s, before, ratio, ADDS: tl.constexpr):
    """Return ``before`` plus squash(s) with ADDS, or else ratio s / |s|."""
    axis: tl.constexpr = len(s.shape) - 1
    n = tl.sqrt(tl.sum(s * s, axis))
    if ADDS:
        return before + s * tl.expand_dims(n / (1 + n * n), axis)
    else:
        return s * tl.expand_dims(ratio / tl.where(n > SHORTEST, n, 1.0), axis)


@triton.jit
def next_query_backward(s, dw, ratio, ADDS: tl.constexpr):
    """Return the gradients of s and of the ratio from dw, the gradient of ``next_query(s, ...)``."""
    axis: tl.constexpr = len(s.shape) - 1
    n, along = tl.sqrt(tl.sum(s * s, axis)), tl.sum(s * dw, axis)
    some = n > (0.0 if ADDS else SHORTEST)
    length = tl.where(some, n, 1.0)
    if ADDS:
        factor = n / (1 + n * n)
        back = (1 - n * n) / (1 + n * n) / (1 + n * n) / length * along
    else:
        factor = ratio / length
        back = -factor * along / length / length
    ds = tl.expand_dims(factor, axis) * dw + tl.expand_dims(tl.where(some, back, 0.0), axis) * s
    return ds, along / length
