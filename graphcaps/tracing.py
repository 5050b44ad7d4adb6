"""Whether torch traces the current call, and how to compute outside the trace."""

import contextlib
import functools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

import torch
import torch.utils._pytree
from torch.autograd import forward_ad

P = ParamSpec("P")
T = TypeVar("T")
K = TypeVar("K", bound=type)


def is_tracing() -> bool:
    """Whether torch is tracing or transforming the current call; tensors may then have no values."""
    return (
        torch.compiler.is_compiling()  # comes first, because the compiler can't trace the other checks
        or torch.jit.is_tracing()
        or torch._C._are_functorch_transforms_active()
        or forward_ad._current_level >= 0
        or type(torch.empty(0)) is not torch.Tensor  # torch.export's mode and others make tensors without numbers
    )


def is_exported() -> bool:
    """Whether ``torch.export``, ``torch.onnx`` or ``torch.jit.trace`` is recording the call as a program."""
    exporting = getattr(torch.compiler, "is_exporting", torch.compiler.is_compiling)  # torch 2.4 lacks the first
    return exporting() or torch.jit.is_tracing()


def exportable(kind: K) -> K:
    """Let ``torch.export.save`` write programs whose results are of this named tuple."""
    torch.utils._pytree._register_namedtuple(kind, serialized_type_name=f"graphcaps.{kind.__name__}")
    return kind


def run_untraced(make: Callable[[], T]) -> T:
    """Return ``make()``. Its tensors have values even while torch is tracing or transforming the current call.

    A trace or transform affects only its own thread, so ``make`` runs in another one. DGL can't make graphs on another
    default device than the CPU.
    """
    if not is_tracing():
        with torch.device("cpu"):
            return make()
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(make).result()


def uncompiled(function: Callable[P, T], unless: Callable[..., bool] | None = None) -> Callable[P, T]:
    """Make ``torch.compile`` run ``function`` outside its graph, because it can't trace DGL or Numba.

    ``unless`` gets the function's arguments and returns whether the call can be traced.
    """

    @functools.wraps(function)
    def call_or_break(*arguments: P.args, **named: P.kwargs) -> T:
        if torch.compiler.is_dynamo_compiling() and not (unless and unless(*arguments, **named)):
            from .graph_break import call

            return call(function, *arguments, **named)
        return function(*arguments, **named)

    return call_or_break


def autocast_dtype(device: torch.device) -> torch.dtype | None:
    """Return autocast's dtype on a device; None if autocast is off, or unknown there as on meta."""
    on = torch.amp.is_autocast_available(device.type) and torch.is_autocast_enabled(device.type)
    return torch.get_autocast_dtype(device.type) if on else None


def outside_autocast(device: torch.device) -> contextlib.AbstractContextManager:
    """Return a block without autocast. torch.export would record a block, so there is one only if autocast is on."""
    on = autocast_dtype(device) is not None
    return torch.autocast(device.type, enabled=False) if on else contextlib.nullcontext()
