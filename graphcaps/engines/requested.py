"""The engine that the caller's ``with graphcaps.engine(name)`` block requests."""

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar

from ..errors import check_name
from ..names import ENGINES

_requested: ContextVar[str] = ContextVar("engine", default="auto")


@contextlib.contextmanager
def engine(name: str) -> Iterator[None]:
    """Run all routing of this thread within the block on one engine. Engines differ only in rounding.

    Args:
        name: ``"dgl"``, ``"torch"``, ``"fused"``, or ``"auto"`` for the fastest engine that can run the call.

    Raises:
        InputError: the name is unknown, or the engine can't run a call within the block.

    >>> import torch
    >>> from graphcaps import complete_graph, dynamic_routing
    >>> with engine("torch"):
    ...     dynamic_routing(complete_graph(3, 2), torch.ones(6, 4)).shape
    torch.Size([2, 4])
    """
    check_name("engine", name, ENGINES)
    token = _requested.set(name)
    try:
        yield
    finally:
        _requested.reset(token)


def requested_engine() -> str:
    """Return the engine's name in this thread's innermost ``engine`` block, or "auto"."""
    return _requested.get()
