"""The engines, which run a routing; ``choose`` and ``choose_for_nodes`` select one for a call."""

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar

from torch import Tensor

from ..._dgl import DGLGraph
from ...errors import InputError, check_name, expect
from ...graph import Links
from ...names import ENGINES as NAMES
from ..base import Routing
from ..votes import NodeVotes, Votes
from .dense import DenseEdges
from .dgl import DGLEdges
from .edges import Edges
from .fused import FusedEdges, fits_node_kernels, lacks_for_nodes

ENGINES: list[type[Edges]] = [FusedEdges, DenseEdges, DGLEdges, Edges]
"""The order of preference: ``auto`` uses the first engine that supports the call."""

_asked: ContextVar[str] = ContextVar("engine", default="auto")


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
    """Return the first engine in ENGINES that supports these votes and has the name that an ``engine`` block asks for.

    Raises:
        InputError: the block's engine can't run this call.
    """
    if not (graph.num_edges() and votes.u.numel() and votes.dim):
        return Edges  # the other engines' kernels fail on empty tensors
    asked, reason = asked_engine(), ""
    for kind in ENGINES:
        if asked in ("auto", kind.engine):
            reason = kind.supports(graph, votes, routing)
            if not reason:
                return kind
    got = f"{type(routing).__name__} of {tuple(votes.u.shape)} on {votes.device}"
    raise InputError(
        f"engine {asked}: expected {reason}, got {got}. Use engine 'torch', on the command line --engine torch"
    )


def choose_for_nodes(graph: DGLGraph | Links, votes: NodeVotes, routing: Routing, mutual: bool) -> str:
    """Return how ``route_nodes`` computes: by "kernels", by "torch", or by "route" on the graph of all capsules.

    Raises:
        InputError: the block's engine can't run this call.
    """
    asked, reason = asked_engine(), lacks_for_nodes(votes, routing)
    if asked in ("auto", "fused") and not reason:
        return "kernels"
    if asked in ("auto", "torch") or isinstance(graph, Links):
        return "torch"
    then = f"Engine fused lacks {reason}" if asked == "fused" else ""
    expect(not mutual, "engine", "'auto' or 'torch' with mutual=True", repr(asked), then)
    return "route"


def use_node_kernels(z: Tensor) -> bool:
    """Whether to sum z (N, 1, K, D) along edges by node kernels: they support z and no block names another engine."""
    return asked_engine() in ("auto", "fused") and fits_node_kernels(z)
