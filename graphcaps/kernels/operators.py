"""Kernels as functions with a gradient: autograd functions, and operators of torch where ``torch.compile`` traces."""

import functools
from collections.abc import Callable, Sequence
from itertools import compress
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..errors import GraphcapsError
from ..second_derivative import once_differentiable, refuse


class KernelError(GraphcapsError):
    """Triton can't compile a kernel on this machine, or can't load it on this card."""

    def __init__(self, cause: Exception):
        self.cause = " ".join(f"{type(cause).__name__}: {cause}".split())[:200]
        super().__init__(f"engine fused: Triton's kernels failed here: {self.cause}. Use engine 'torch'")


def explained(function: Callable) -> Callable:
    """Return the function, which then raises ``KernelError`` for an error of Triton's."""

    @functools.wraps(function)
    def call(*arguments: Any, **named: Any) -> Any:
        try:
            return function(*arguments, **named)
        except Exception as error:
            if type(error).__module__.startswith("triton") or "C compiler" in str(error):
                raise KernelError(error) from error
            raise

    return call


def new_results(tensors: list[Tensor], shapes: list[tuple[int, ...]]) -> list[Tensor]:
    """Allocate an operator's results, which are at least as precise as float32."""
    dtype = torch.promote_types(tensors[0].dtype, torch.float32)
    return [tensors[0].new_empty(shape, dtype=dtype) for shape in shapes]


def or_none(x: Tensor) -> Tensor | None:
    """Return None for an empty tensor, which stands for None, because a list with None has no gradients."""
    return x if x.numel() else None


class _Kernels(NamedTuple):
    run: Callable
    differentiate: Callable
    differentiable: int
    num_saved: int
    tried: set[tuple] | None  # the kinds of calls whose gradient was computed, for kernels that Triton compiles

    def try_gradient(self, results: list[Tensor], saved: list[Tensor], settings: list[int], needed: list[bool]) -> None:
        """Compute a gradient in the first call of a kind: an error of Triton's in backward would end a training."""
        sizes = tuple((x.dtype, *map(int.bit_length, x.shape)) for x in saved[: len(needed)])
        kind = sizes, tuple(settings), tuple(needed)
        if self.tried is not None and kind not in self.tried:
            grads = [torch.zeros_like(x) for x in results[: self.differentiable]]
            self.differentiate(grads, saved, settings, needed)
            self.tried.add(kind)


class _Differentiable(torch.autograd.Function):
    """The autograd function that eager calls use, because an operator of torch takes 0.1 ms longer to call."""

    @staticmethod
    def forward(ctx: Any, kernels: _Kernels, settings: list[int], *tensors: Tensor) -> tuple[Tensor, ...]:
        results, differentiable = kernels.run(list(tensors), settings), kernels.differentiable
        if any(ctx.needs_input_grad):
            saved = [*tensors, *results[: kernels.num_saved], *results[differentiable + 1 :]]
            kernels.try_gradient(results, saved, settings, list(ctx.needs_input_grad[2:]))
            ctx.save_for_backward(*saved)
        ctx.kernels, ctx.settings = kernels, settings
        ctx.mark_non_differentiable(*results[differentiable : differentiable + 1])
        ctx.set_materialize_grads(False)  # don't allocate zeros as the couplings' gradient
        return tuple(results[: differentiable + 1])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        differentiable, needed = ctx.kernels.differentiable, list(ctx.needs_input_grad[2:])
        if all(grad is None for grad in grads[:differentiable]):
            return None, None, *(None for _ in needed)
        saved = list(ctx.saved_tensors)
        given = [saved[0].new_empty(0) if grad is None else grad for grad in grads[:differentiable]]
        gradients = ctx.kernels.differentiate(given, saved, ctx.settings, needed)
        return None, None, *(gradient if needs else None for gradient, needs in zip(gradients, needed, strict=True))


def operator(
    name: str,
    run: Callable,
    shapes: Callable,
    differentiate: Callable,
    differentiable: int = 1,
    num_saved: int = 1,
    by_triton: bool = False,
) -> Callable[..., list[Tensor]]:
    """Define the operator ``name`` and its gradient. Return a function of tensors and settings to its results.

    Args:
        run: ``run(tensors, settings)`` returns the results: ``differentiable`` ones, then the couplings, then what only
            the gradient needs. Settings are integers.
        shapes: ``shapes(tensors, settings)`` returns the shapes of the results.
        differentiate: ``differentiate(grads, saved, settings, needed)`` returns the gradients of the tensors. ``grads``
            are those of the results, empty for None. ``saved`` are the tensors, then the first ``num_saved`` results,
            then the results after the couplings. ``needed`` says for each tensor whether it needs a gradient.
        by_triton: whether Triton compiles the kernels when they are first launched.
    """
    if by_triton:
        run, differentiate = explained(run), explained(differentiate)
    kernels = _Kernels(run, differentiate, differentiable, num_saved, set() if by_triton else None)
    forward = torch.library.custom_op(
        f"graphcaps::{name}", run, mutates_args=(), schema="(Tensor[] tensors, int[] settings) -> Tensor[]"
    )
    forward.register_fake(lambda tensors, settings: new_results(tensors, shapes(tensors, settings)))

    def differentiate_some(grads: list[Tensor], saved: list[Tensor], settings: list[int], needed: list[bool]):
        gradients = compress(differentiate(grads, saved, settings, needed), needed)
        return [gradient.contiguous() for gradient in gradients]

    backward = torch.library.custom_op(
        f"graphcaps::{name}_backward",
        differentiate_some,
        mutates_args=(),
        schema="(Tensor[] grads, Tensor[] saved, int[] settings, bool[] needed) -> Tensor[]",
    )
    backward.register_fake(
        lambda grads, saved, settings, needed: [x.new_empty(x.shape) for x in compress(saved, needed)]
    )
    backward.register_autograd(refuse)

    def save(ctx: Any, inputs: tuple, output: list[Tensor]) -> None:
        tensors, ctx.settings = inputs
        ctx.needed = [x.requires_grad for x in tensors]
        ctx.save_for_backward(*tensors, *output[:num_saved], *output[differentiable + 1 :])
        ctx.mark_non_differentiable(*output[differentiable:])
        ctx.set_materialize_grads(False)

    def gradients(ctx: Any, grads: list[Tensor | None]) -> tuple[list[Tensor | None], None]:
        saved = list(ctx.saved_tensors)
        given = [saved[0].new_empty(0) if grad is None else grad for grad in grads[:differentiable]]
        found = iter(backward(given, saved, ctx.settings, ctx.needed))
        return [next(found) if needs else None for needs in ctx.needed], None

    forward.register_autograd(gradients, setup_context=save)

    def call(first: Tensor, *others: Tensor | None, settings: Sequence[int]) -> list[Tensor]:
        tensors = [first, *(first.new_empty(0) if x is None else x for x in others)]
        numbers = [*map(int, settings)]
        if torch.compiler.is_compiling():
            return forward(tensors, numbers)[: differentiable + 1]
        return list(_Differentiable.apply(kernels, numbers, *tensors))

    return call
