"""Kernels as operators of torch, which ``torch.compile`` and CUDA graphs take whole."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ..second_derivative import refuse


def operator(name: str, run: Callable, shapes: Callable, differentiate: Callable) -> Any:
    """Define the operator ``name`` and its gradient.

    Args:
        run: from tensors and settings ``how`` to results: one with a gradient, the couplings, and what is kept.
        shapes: from the same arguments to the shapes of the results, which have float32 or the first tensor's dtype.
        differentiate: from the result's gradient, what is kept, the same arguments and a flag for each tensor,
            whether it needs a gradient, to the gradients of the tensors.
    """
    forward = torch.library.custom_op(
        f"graphcaps::{name}", run, mutates_args=(), schema="(Tensor[] tensors, int[] how) -> Tensor[]"
    )

    @forward.register_fake
    def _(tensors: list[Tensor], how: list[int]) -> list[Tensor]:
        dtype = torch.promote_types(tensors[0].dtype, torch.float32)
        return [tensors[0].new_empty(shape, dtype=dtype) for shape in shapes(tensors, how)]

    def backward(
        grad: Tensor, kept: list[Tensor], tensors: list[Tensor], how: list[int], needed: list[bool]
    ) -> list[Tensor]:
        gradients = differentiate(grad, kept, tensors, how, needed)
        return [x if needs else grad.new_empty(0) for x, needs in zip(gradients, needed, strict=True)]

    schema = "(Tensor grad, Tensor[] kept, Tensor[] tensors, int[] how, bool[] needed) -> Tensor[]"
    backward = torch.library.custom_op(f"graphcaps::{name}_backward", backward, mutates_args=(), schema=schema)
    backward.register_fake(
        lambda grad, kept, tensors, how, needed: [
            x.new_empty(x.shape) if needs else grad.new_empty(0) for x, needs in zip(tensors, needed, strict=True)
        ]
    )
    backward.register_autograd(refuse)

    def save(ctx: Any, inputs: tuple, output: list[Tensor]) -> None:
        tensors, ctx.how = inputs
        ctx.needed = [x.requires_grad for x in tensors]
        ctx.save_for_backward(*output[2:], *tensors)
        ctx.mark_non_differentiable(*output[1:])

    def gradients(ctx: Any, grads: list[Tensor]) -> tuple[list[Tensor | None], None]:
        count = len(ctx.saved_tensors) - len(ctx.needed)
        kept, tensors = list(ctx.saved_tensors[:count]), ctx.saved_tensors[count:]
        found = backward(grads[0], kept, tensors, ctx.how, ctx.needed)
        return [x if needs else None for x, needs in zip(found, ctx.needed, strict=True)], None

    forward.register_autograd(gradients, setup_context=save)
    return forward


def or_none(*tensors: Tensor) -> list[Tensor | None]:
    """Return None for each empty tensor; only a list without None has gradients."""
    return [x if x.numel() else None for x in tensors]
