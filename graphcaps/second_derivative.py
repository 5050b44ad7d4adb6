"""Gradients of kernels and of DGL's functions, which torch can't differentiate, because they read numbers.

A second derivative is an error. Without it, torch would treat first derivatives as constants, and second derivatives
would be silently wrong. A batch of gradients is computed one by one.
"""

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch._C import _functorch

from .errors import GraphcapsError
from .tracing import run_untraced


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

    torch's decorator of this name raises only if the gradients of the outputs require gradients. But the gradients here
    also depend on the saved inputs, which torch's decorator would treat as constants.
    """

    @functools.wraps(backward)
    def checked(ctx: Any, *outer: Tensor | None) -> tuple:
        with torch.no_grad():
            gradients = _one_by_one(functools.partial(backward, ctx), outer)
        if not torch.is_grad_enabled():  # torch.utils.checkpoint lets saved tensors be read only once
            return gradients
        reached = [x for x in (*outer, *ctx.saved_tensors) if torch.is_tensor(x) and x.requires_grad]
        return _Refused.apply(len(reached), *reached, *gradients) if reached else gradients

    return checked


def _one_by_one(backward: Callable[..., tuple], outer: tuple[Tensor | None, ...]) -> tuple:
    """Return ``backward(*outer)``; if ``vmap`` or ``is_grads_batched`` has batched tensors, from a call per entry.

    ``is_grads_batched`` uses torch's older kind of batched tensors, whose level is 1.
    """
    older = any(x is not None and _functorch.is_legacy_batchedtensor(x) for x in outer)
    levels = [_functorch.maybe_get_level(x) for x in outer if x is not None and _functorch.is_batchedtensor(x)]
    if not older and not levels:
        return backward(*outer)
    module, level = (torch, 1) if older else (_functorch, max(levels))
    first = next(x for x in outer if x is not None and (older or _functorch.maybe_get_level(x) == level))
    size = 0 if older else _functorch.get_unwrapped(first).shape[_functorch.maybe_get_bdim(first)]
    entries = [x if x is None else module._remove_batch_dim(x, level, size, 0).unbind() for x in outer]
    count = max(len(x) for x in entries if x is not None)

    def every() -> list[tuple]:
        with torch.no_grad():
            return [_one_by_one(backward, tuple(x and x[k] for x in entries)) for k in range(count)]

    results = zip(*run_untraced(every), strict=True)  # in a thread without transforms, because DGL refuses them
    return tuple(x[0] if x[0] is None else module._add_batch_dim(torch.stack(x), 0, level) for x in results)
