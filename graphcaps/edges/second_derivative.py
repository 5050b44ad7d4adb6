"""Errors for second derivatives through engines that can't compute them.

Without these errors, torch would treat first derivatives as constants, and second derivatives would be silently wrong.
"""

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

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

    @staticmethod
    def forward(ctx: Any, reached: int, *tensors: Tensor | None) -> tuple[Tensor | None, ...]:
        return tuple(gradient if gradient is None else gradient.clone() for gradient in tensors[reached:])

    @staticmethod
    def backward(ctx: Any, *outer: Tensor) -> None:
        refuse(ctx, *outer)


def once_differentiable(backward: Callable[..., tuple]) -> Callable[..., tuple]:
    """Raise ``SecondDerivativeError`` if the gradients that ``backward`` returns are differentiated.

    torch's decorator of this name raises only if the gradients of the outputs require gradients. But the gradients here
    also depend on the saved inputs, which torch's decorator would treat as constants.
    """

    @functools.wraps(backward)
    def checked(ctx: Any, *outer: Tensor) -> tuple:
        with torch.no_grad():
            gradients = backward(ctx, *outer)
        if not torch.is_grad_enabled():  # torch.utils.checkpoint lets saved tensors be read only once
            return gradients
        reached = [x for x in (*outer, *ctx.saved_tensors) if torch.is_tensor(x) and x.requires_grad]
        return _Refused.apply(len(reached), *reached, *gradients) if reached else gradients

    return checked


def refuse_second_derivative(x: Tensor) -> Tensor:
    """Return a view of x; a second derivative through it raises ``SecondDerivativeError``."""
    view = x.view_as(x)
    if x.requires_grad:
        view.register_hook(lambda grad: _Refused.apply(1, x, grad)[0] if torch.is_grad_enabled() else grad)
    return view
