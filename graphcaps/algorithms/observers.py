"""Observers of iterations, and the recorders that ``graphcaps.watch`` installs for the length of its block."""

import contextlib
from collections.abc import Callable, Iterator
from contextvars import ContextVar

import torch
from torch import Tensor

from ..graph import Links

Observer = Callable[[int, Tensor, Tensor, Tensor, Tensor], object]  # called with r, b, c, v, agreement

Recorder = Callable[[Links, Links | None], Observer]
"""Called with the links of every routing that starts. Among the nodes of a graph, the second are the graph's own."""

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
    """Whether a recorder is installed. Code that ``torch.compile`` or ``torch.export`` traces is not recorded."""
    return not torch.compiler.is_compiling() and bool(_recorders.get())


def combined(links: Links, on_iteration: Observer | None, nodes: Links | None = None) -> Observer | None:
    """Combine the recorders' observers with the caller's; without recorders, return the caller's."""
    if not watched():
        return on_iteration
    observers = [recorder(links, nodes) for recorder in _recorders.get()]
    if on_iteration is not None:
        observers.append(on_iteration)  # last, so that its changes to the tensors are not recorded

    def hand_out(r: int, *state: Tensor) -> None:
        for observer in observers:
            observer(r, *state)

    return hand_out


def observer_on_nodes(links: Links, num_caps: int) -> Observer | None:
    """Return one observer for the recorders of a routing among nodes, or None without recorders.

    It receives edge numbers (E, *, K) and parents (N, *, K, D), and passes them on in the shapes of
    ``links.expand(num_caps)``: (E * K, *) and (N * K, *, D).
    """
    recorded = combined(links.expand(num_caps), None, links) if watched() else None
    if recorded is None:
        return None

    def hand_out(r: int, b: Tensor, c: Tensor, v: Tensor, agreement: Tensor) -> None:
        b, c, agreement = (x.movedim(-1, 1).flatten(0, 1) for x in (b, c, agreement))
        recorded(r, b, c, v.movedim(-2, 1).flatten(0, 1), agreement)

    return hand_out
