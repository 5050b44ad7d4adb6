"""Whether torch traces a call, and how to compute outside of the trace."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch

T = TypeVar("T")


def is_tracing() -> bool:
    """Whether torch traces or transforms the call: operations are recorded, and tensors may have no values."""
    return (
        torch.compiler.is_compiling()  # comes first, because the compiler can't trace the other checks
        or torch.jit.is_tracing()
        or torch._C._are_functorch_transforms_active()
        or type(torch.empty(0)) is not torch.Tensor  # FakeTensorMode is on
    )


def run_untraced(make: Callable[[], T]) -> T:
    """Return ``make()``, whose tensors have values even while torch traces or transforms the call.

    A trace or transform affects one thread, so another thread runs ``make``.
    """
    if not is_tracing():
        return make()
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(make).result()
