"""Gradients of functions that torch can't differentiate, because they read numbers: those of kernels and of DGL.

A second derivative is an error. Without it, torch would treat first derivatives as constants, and second derivatives
would be silently wrong. A batch of gradients is also an error, because the functions read one at a time.
"""

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch._C._functorch import is_batchedtensor, is_legacy_batchedtensor

from ..errors import GraphcapsError


class SecondDerivativeError(GraphcapsError, RuntimeError):
    """A second derivative was taken through an engine that can't compute it."""


def refuse(*_: Any) -> None:
    """Raise ``SecondDerivativeError``."""
    raise SecondDerivativeError(
        "second derivative: expected routing on engine torch, whose gradients have gradients, got another engine. "
        "Route within: with graphcaps.engine('torch')"
    )


class _Refused(torch.autograd.Function):
    """Return gradients unchanged, and raise in backward. They depend on the first ``reached`` tensors."""

    generate_vmap_rule = True

    @staticmethod
    def forward(reached: int, *tensors: Tensor | None) -> tuple[Tensor | None, ...]:
        return tuple(gradient if gradient is None else gradient.clone() for gradient in tensors[reached:])

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple, output: tuple) -> None:
        """Save nothing."""

    @staticmethod
    def backward(ctx: Any, *outer: Tensor) -> None:
        refuse(ctx, *outer)


def once_differentiable(backward: Callable[..., tuple]) -> Callable[..., tuple]:
    """Raise ``SecondDerivativeError`` if the gradients that ``backward`` returns are differentiated.

    A batch of gradients raises ``GraphcapsError``.

    torch's decorator of this name raises only if the gradients of the outputs require gradients. But the gradients here
    also depend on the saved inputs, which torch's decorator would treat as constants.
    """

    @functools.wraps(backward)
    def checked(ctx: Any, *outer: Tensor | None) -> tuple:
        if any(x is not None and (is_batchedtensor(x) or is_legacy_batchedtensor(x)) for x in outer):
            raise GraphcapsError(
                "gradients: expected one at a time, got a batch, as of vmap, is_grads_batched or vectorize=True. "
                "Route within: with graphcaps.engine('torch')"
            )
        with torch.no_grad():
            gradients = backward(ctx, *outer)
        if not torch.is_grad_enabled():  # torch.utils.checkpoint lets saved tensors be read only once
            return gradients
        reached = [x for x in (*outer, *ctx.saved_tensors) if torch.is_tensor(x) and x.requires_grad]
        return _Refused.apply(len(reached), *reached, *gradients) if reached else gradients

    return checked
