"""Operators of torch for kernels that ``torch.compile`` can't trace, with their gradients."""

from collections.abc import Callable, Sequence
from itertools import compress
from typing import Any

import torch
from torch import Tensor

from ..edges.second_derivative import refuse


def new_results(tensors: list[Tensor], shapes: list[tuple[int, ...]]) -> list[Tensor]:
    """Allocate an operator's results, which are at least as precise as float32."""
    dtype = torch.promote_types(tensors[0].dtype, torch.float32)
    return [tensors[0].new_empty(shape, dtype=dtype) for shape in shapes]


def or_none(x: Tensor) -> Tensor | None:
    """Return None for an empty tensor, which stands for None, because a list with None has no gradients."""
    return x if x.numel() else None


def operator(
    name: str, run: Callable, shapes: Callable, differentiate: Callable, learned: int = 1, kept: int = 1
) -> Callable[..., list[Tensor]]:
    """Define the operator ``name`` and its gradient. Return a function of tensors and settings to its results.

    Args:
        run: from tensors and settings ``how`` to results: ``learned`` results with a gradient, then the couplings, then
            what only the gradient needs.
        shapes: from the same arguments to the shapes of the results.
        differentiate: from the results' gradients (empty for None), the tensors with the first ``kept`` results and
            those after the couplings, ``how``, and a flag for each tensor, whether it needs a gradient, to the
            gradients of the tensors.
    """
    forward = torch.library.custom_op(
        f"graphcaps::{name}", run, mutates_args=(), schema="(Tensor[] tensors, int[] how) -> Tensor[]"
    )
    forward.register_fake(lambda tensors, how: new_results(tensors, shapes(tensors, how)))

    def differentiate_some(grads: list[Tensor], saved: list[Tensor], how: list[int], needed: list[bool]):
        return list(compress(differentiate(grads, saved, how, needed), needed))

    schema = "(Tensor[] grads, Tensor[] saved, int[] how, bool[] needed) -> Tensor[]"
    backward = torch.library.custom_op(
        f"graphcaps::{name}_backward", differentiate_some, mutates_args=(), schema=schema
    )
    backward.register_fake(lambda grads, saved, how, needed: [x.new_empty(x.shape) for x in compress(saved, needed)])
    backward.register_autograd(refuse)

    def save(ctx: Any, inputs: tuple, output: list[Tensor]) -> None:
        tensors, ctx.how = inputs
        ctx.needed = [x.requires_grad for x in tensors]
        ctx.save_for_backward(*tensors, *output[:kept], *output[learned + 1 :])
        ctx.mark_non_differentiable(*output[learned:])
        ctx.set_materialize_grads(False)

    def gradients(ctx: Any, grads: list[Tensor | None]) -> tuple[list[Tensor | None], None]:
        saved = list(ctx.saved_tensors)
        given = [saved[0].new_empty(0) if grad is None else grad for grad in grads[:learned]]
        found = iter(backward(given, saved, ctx.how, ctx.needed))
        return [next(found) if needs else None for needs in ctx.needed], None

    forward.register_autograd(gradients, setup_context=save)

    def call(first: Tensor, *others: Tensor | None, how: Sequence[int]) -> list[Tensor]:
        tensors = [first, *(first.new_empty(0) if x is None else x for x in others)]
        return forward(tensors, [*map(int, how)])[: learned + 1]

    return call
