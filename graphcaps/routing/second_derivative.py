"""Gradients that have no gradients of their own: asking for one is an error that names the engine that has it.

Otherwise torch would take such gradients for constants, and second derivatives would be wrong without a word.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ..errors import GraphcapsError


class SecondDerivativeError(GraphcapsError, RuntimeError):
    """The gradient of a gradient that has none."""


class _Refused(torch.autograd.Function):
    """Gradients unchanged, and an error for theirs; the first ``reached`` tensors are what they depend on."""

    @staticmethod
    def forward(ctx: Any, reached: int, *tensors: Tensor | None) -> tuple[Tensor | None, ...]:
        return tuple(gradient if gradient is None else gradient.clone() for gradient in tensors[reached:])

    @staticmethod
    def backward(ctx: Any, *outer: Tensor) -> None:
        raise SecondDerivativeError(
            "second derivative: expected routing on engine torch, whose gradients have gradients, got another engine. "
            "Route within: with graphcaps.engine('torch')"
        )


def once_differentiable(backward: Callable[..., Any]) -> Callable[..., Any]:
    """As torch's decorator of that name, for the ``backward`` of a function that saves its inputs.

    torch's refuses second derivatives only where the gradients of the outputs have gradients. These gradients depend on
    the saved inputs too, which torch's would take for constants.

    Raises:
        SecondDerivativeError: the gradients that ``backward`` gives are differentiated.
    """

    @functools.wraps(backward)
    def checked(ctx: Any, *outer: Tensor) -> Any:
        with torch.no_grad():
            gradients = backward(ctx, *outer)
        reached = [x for x in (*outer, *ctx.saved_tensors) if torch.is_tensor(x) and x.requires_grad]
        if not (torch.is_grad_enabled() and reached):
            return gradients
        if isinstance(gradients, tuple):
            return _Refused.apply(len(reached), *reached, *gradients)
        return _Refused.apply(len(reached), *reached, gradients)[0]

    return checked


class _OnceDifferentiable(torch.autograd.Function):
    """The identity, for DGL's gradients, which pass through its backward."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x.view_as(x)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return grad


def refuse_second_derivative(x: Tensor) -> Tensor:
    """The same numbers, whose gradient's gradient is refused."""
    return _OnceDifferentiable.apply(x) if x.requires_grad else x
