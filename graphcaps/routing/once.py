"""Gradients that have no gradients of their own: whoever asks for one is told which engine has it."""

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
    """Gradients as they are, and an error for theirs; the first argument only makes autograd remember it."""

    @staticmethod
    def forward(ctx: Any, anchor: Tensor, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        return tuple(gradient if gradient is None else gradient.view_as(gradient) for gradient in gradients)

    @staticmethod
    def backward(ctx: Any, *outer: Tensor) -> None:
        raise SecondDerivativeError(
            "second derivative: expected routing on engine torch or naive, whose gradients have gradients, got another "
            "engine. Give engine='torch'"
        )


def once_differentiable(backward: Callable[..., Any]) -> Callable[..., Any]:
    """As torch's decorator of that name, for the ``backward`` of a function, with an error that says what to do.

    Raises:
        SecondDerivativeError: when the gradients that ``backward`` gives are differentiated.
    """

    @functools.wraps(backward)
    def told(ctx: Any, *outer: Tensor) -> Any:
        with torch.no_grad():
            found = backward(ctx, *outer)
        if not (torch.is_grad_enabled() and any(torch.is_tensor(each) and each.requires_grad for each in outer)):
            return found
        anchor = torch.zeros((), requires_grad=True)
        return _Refused.apply(anchor, *found) if isinstance(found, tuple) else _Refused.apply(anchor, found)[0]

    return told
