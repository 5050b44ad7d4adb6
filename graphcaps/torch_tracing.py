"""Whether torch traces the current call, and how to compute outside the trace."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch

T = TypeVar("T")


def is_tracing() -> bool:
    """Whether torch is tracing or transforming the current call; tensors may then have no values."""
    return (
        torch.compiler.is_compiling()  # comes first, because the compiler can't trace the other checks
        or torch.jit.is_tracing()
        or torch._C._are_functorch_transforms_active()
        or type(torch.empty(0)) is not torch.Tensor  # FakeTensorMode is on
    )


def run_untraced(make: Callable[[], T]) -> T:
    """Return ``make()``. Its tensors have values even while torch is tracing or transforming the current call.

    A trace or transform affects only its own thread, so ``make`` runs in another one.
    """
    if not is_tracing():
        return make()
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(make).result()
