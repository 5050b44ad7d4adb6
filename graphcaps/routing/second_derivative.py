"""Gradients that have no gradients of their own: asking for one is an error that names the engine that has it.

Without it torch would take such gradients for constants, and second derivatives would be wrong without a word.
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
    """Gradients as they are, and an error for theirs.

    Args:
        reached: how many of the tensors only say what the gradients depend on: autograd differentiates towards them.
    """

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
    """As torch's decorator of that name, for the ``backward`` of a function, with an error that says what to do.

    torch's refuses where the gradients of the outputs have gradients. These also depend on the inputs themselves: the
    function must save those for ``backward``.

    Raises:
        SecondDerivativeError: when the gradients that ``backward`` gives are differentiated.
    """

    @functools.wraps(backward)
    def checked(ctx: Any, *outer: Tensor) -> Any:
        with torch.no_grad():
            found = backward(ctx, *outer)
        if not torch.is_grad_enabled():
            return found
        reached = [one for one in (*outer, *ctx.saved_tensors) if torch.is_tensor(one) and one.requires_grad]
        if not reached:
            return found
        several = isinstance(found, tuple)
        refused = _Refused.apply(len(reached), *reached, *(found if several else (found,)))
        return refused if several else refused[0]

    return checked


class _OnceDifferentiable(torch.autograd.Function):
    """The same numbers; DGL's gradients, which come through here, have no gradients of their own."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x.view_as(x)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, slope: Tensor) -> Tensor:
        return slope


def refuse_second_derivative(x: Tensor) -> Tensor:
    """The same numbers, whose gradient's gradient is refused."""
    return _OnceDifferentiable.apply(x) if x.requires_grad else x
