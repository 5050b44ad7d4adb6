"""Engines: implementations of the operations on edges that routings are written with."""

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar

from ..algorithms.base import Routing
from ..algorithms.votes import Votes
from ..errors import InputError, check_name
from ..graph import Links
from ..names import ENGINES
from .dense import DenseEdges
from .dgl import DGLEdges
from .edges import Edges
from .fused import FusedEdges

REQUESTED: ContextVar[str] = ContextVar("REQUESTED", default="auto")
"""The engine's name in this thread's innermost ``engine`` block."""


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
    token = REQUESTED.set(name)
    try:
        yield
    finally:
        REQUESTED.reset(token)


BY_PREFERENCE: list[type[Edges]] = [FusedEdges, DenseEdges, DGLEdges, Edges]
"""``auto`` uses the first engine that supports the call."""


def choose(links: Links, votes: Votes, routing: Routing) -> type[Edges]:
    """Return the first engine in BY_PREFERENCE that supports these votes and has the requested name.

    Without edges or numbers it is engine torch, because kernels fail on empty tensors.

    Raises:
        InputError: the block's engine can't run this call.
    """
    if not (links.num_edges and votes.u.numel() and votes.dim):
        return Edges
    requested, reason = REQUESTED.get(), ""
    for candidate in BY_PREFERENCE:
        if requested in ("auto", candidate.engine) and not (reason := candidate.needs(links, votes, routing)):
            return candidate
    call = f"{type(routing).__name__} of {tuple(votes.u.shape)} on {votes.device}"
    raise InputError(
        f"engine {requested}: expected {reason}, got {call}. Use engine 'torch', on the command line --engine torch"
    )
