"""What runs a routing: one class of ``Edges`` per engine, chosen here unless ``with engine(...)`` names one."""

from __future__ import annotations

import contextlib
import functools
import logging
from collections.abc import Iterator
from contextvars import ContextVar

from ..._dgl import DGLGraph
from ...errors import InputError, check_name
from ..routing import Routing
from ..votes import Votes
from .dense import DenseEdges
from .dgl import DGLEdges
from .edges import Edges
from .fused import FusedEdges
from .scatter import ScatterEdges

log = logging.getLogger("graphcaps")

ENGINES: list[type[Edges]] = [FusedEdges, DenseEdges, DGLEdges, ScatterEdges]
"""``auto`` is the first that supports a call."""

NAMES = ("auto", *dict.fromkeys(kind.engine for kind in ENGINES))

_asked: ContextVar[str] = ContextVar("engine", default="auto")


@contextlib.contextmanager
def engine(name: str) -> Iterator[None]:
    """Within the block, this thread's routing runs on one engine; all engines give the same numbers, up to rounding.

    Args:
        name: ``"dgl"``, ``"torch"``, ``"fused"``, or ``"auto"`` for the fastest one that can run.

    Raises:
        InputError: an unknown name. Within the block, routing that the engine can't run.

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
    """The name that the innermost ``engine`` block of this thread has, or "auto"."""
    return _asked.get()


def choose(graph: DGLGraph, votes: Votes, routing: Routing) -> type[Edges]:
    """The engine that routes these votes: the first in ENGINES that supports them and has the name asked for.

    Raises:
        InputError: the engine asked for can't run here.
    """
    if not (graph.num_edges() and votes.u.numel() and votes.dim):
        return ScatterEdges  # the kernels of the others refuse tensors without numbers
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
