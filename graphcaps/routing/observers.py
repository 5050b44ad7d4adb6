"""Who observes a routing beside its caller: the recorders that ``graphcaps.watch`` installs while its block runs."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextvars import ContextVar

import torch

from .._dgl import DGLGraph
from ..graph import expand
from .edges import Observer

Recorder = Callable[[DGLGraph], Observer]
"""Called with the graph of every routing that starts; gives the observer of its iterations."""

_recorders: ContextVar[tuple[Recorder, ...]] = ContextVar("recorders", default=())


@contextlib.contextmanager
def recording(recorder: Recorder) -> Iterator[None]:
    """Call ``recorder`` for every routing of this thread until the block ends."""
    token = _recorders.set((*_recorders.get(), recorder))
    try:
        yield
    finally:
        _recorders.reset(token)


def watched() -> bool:
    """Whether somebody records routings. Code that ``torch.compile`` or ``torch.export`` traces is not recorded."""
    return not torch.compiler.is_compiling() and bool(_recorders.get())


def combined(graph: DGLGraph, on_iteration: Observer | None) -> Observer | None:
    """One observer for the recorders and the caller of a routing on ``graph``; the caller's own if nobody records."""
    if not watched():
        return on_iteration
    observers = [recorder(graph) for recorder in _recorders.get()]
    if on_iteration is not None:
        observers.append(on_iteration)  # last: what it does to its tensors is not recorded

    def hand_out(r: int, *state: torch.Tensor) -> None:
        for observer in observers:
            observer(r, *state)

    return hand_out


def combined_on_nodes(graph: DGLGraph, num_caps: int, on_iteration: Observer | None) -> Observer | None:
    """``combined`` for a routing on the nodes' own graph, of numbers (E, *, K) and parents (N, *, K, D).

    Recorders get the numbers as they are on ``expand(graph, 1, num_caps)``: (E * K, *) and (N * K, *, D).
    """
    on_expanded = combined(expand(graph, 1, num_caps), None) if watched() else None
    if on_expanded is None:
        return on_iteration

    def hand_out(r: int, b: torch.Tensor, c: torch.Tensor, v: torch.Tensor, agreement: torch.Tensor) -> None:
        places = ((b, -1), (c, -1), (v, -2), (agreement, -1))
        on_expanded(r, *(values.movedim(dim, 1).flatten(0, 1) for values, dim in places))
        if on_iteration is not None:
            on_iteration(r, b, c, v, agreement)

    return hand_out
