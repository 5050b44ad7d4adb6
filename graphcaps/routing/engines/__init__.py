"""The engines, which run a routing. Each is a subclass of ``Edges``; ``choose`` selects one for a call."""

from __future__ import annotations

import contextlib
import functools
import logging
from collections.abc import Iterator
from contextvars import ContextVar

from ..._dgl import DGLGraph
from ...errors import InputError, check_name
from ...names import ENGINES as NAMES
from ..routing import Routing
from ..votes import Votes
from .dense import DenseEdges
from .dgl import DGLEdges
from .edges import Edges
from .fused import FusedEdges
from .scatter import ScatterEdges

log = logging.getLogger("graphcaps")

ENGINES: list[type[Edges]] = [FusedEdges, DenseEdges, DGLEdges, ScatterEdges]
"""``auto`` uses the first that supports the call."""

_asked: ContextVar[str] = ContextVar("engine", default="auto")


@contextlib.contextmanager
def engine(name: str) -> Iterator[None]:
    """Run this thread's routing on one engine within the block. All engines give the same numbers, up to rounding.

    Args:
        name: ``"dgl"``, ``"torch"``, ``"fused"``, or ``"auto"`` for the fastest engine that can run the call.

    Raises:
        InputError: the name is unknown, or a call within the block can't run on the engine.

    >>> import torch
    >>> from graphcaps import complete_graph, dynamic_routing
    >>> with engine("torch"):
    ...     dynamic_routing(complete_graph(3, 2), torch.ones(6, 4)).shape
    torch.Size([2, 4])
    """
    check_name("engine", name, NAMES)
    token = _asked.set(name)
    try:
        yield
    finally:
        _asked.reset(token)


def asked_engine() -> str:
    """Return the engine's name in this thread's innermost ``engine`` block, or "auto"."""
    return _asked.get()


def choose(graph: DGLGraph, votes: Votes, routing: Routing) -> type[Edges]:
    """Return the first engine in ENGINES that supports these votes and, in an ``engine`` block, has the block's name.

    Raises:
        InputError: the block's engine can't run this call.
    """
    if not (graph.num_edges() and votes.u.numel() and votes.dim):
        return ScatterEdges  # the other engines' kernels fail on empty tensors
    asked, reason = asked_engine(), ""
    for kind in ENGINES:
        if asked in ("auto", kind.engine):
            reason = kind.supports(graph, votes, routing)
            if not reason:
                if asked == "auto":
                    _log_choice(type(routing).__name__, kind.engine, votes.device.type)
                return kind
    got = f"{type(routing).__name__} of {tuple(votes.u.shape)} on {votes.device}"
    raise InputError(
        f"engine {asked}: expected {reason}, got {got}. Use engine 'torch', on the command line --engine torch"
    )


@functools.cache
def _log_choice(routing: str, name: str, device: str) -> None:
    log.info("engine auto: %s routing runs on '%s' (%s)", routing, name, device)
