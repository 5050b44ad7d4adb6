"""Engines: implementations of the operations on edges that routings are written with."""

from ..algorithms.base import Routing
from ..algorithms.votes import Votes
from ..errors import InputError
from ..graph import Links
from .dense import DenseEdges
from .dgl import DGLEdges
from .edges import Edges
from .fused import FusedEdges
from .requested import requested_engine

ENGINES: list[type[Edges]] = [FusedEdges, DenseEdges, DGLEdges, Edges]
"""The order of preference: ``auto`` uses the first engine that supports the call."""


def choose(links: Links, votes: Votes, routing: Routing) -> type[Edges]:
    """Return the first engine in ENGINES that supports these votes and has the name that an ``engine`` block asks for.

    Without edges or numbers it is engine torch, because kernels fail on empty tensors.

    Raises:
        InputError: the block's engine can't run this call.
    """
    if not (links.num_edges and votes.u.numel() and votes.dim):
        return Edges
    requested, reason = requested_engine(), ""
    for candidate in ENGINES:
        if requested in ("auto", candidate.engine):
            reason = candidate.needs(links, votes, routing)
            if not reason:
                return candidate
    call = f"{type(routing).__name__} of {tuple(votes.u.shape)} on {votes.device}"
    raise InputError(
        f"engine {requested}: expected {reason}, got {call}. Use engine 'torch', on the command line --engine torch"
    )
