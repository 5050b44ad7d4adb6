"""Which engine runs a routing: chosen by graph, device and routing, unless a ``with engine(...)`` block says which."""

from __future__ import annotations

import contextlib
import functools
import logging
from collections.abc import Iterator
from contextvars import ContextVar

import torch
from torch import Tensor

from .._dgl import DGLGraph, has_cuda
from ..errors import check_name, expect
from ..graph import links
from ..graph.links import is_tracing
from . import fused
from .edges import DenseEdges, EdgeOps, Observer, edges_of
from .gradient import with_written_gradient
from .names import as_routing
from .routing import Parents, Routing, squashed
from .votes import LinearVotes, MatrixVotes

log = logging.getLogger("graphcaps")

Votes = Tensor | LinearVotes | MatrixVotes
ENGINES = ("auto", "dgl", "torch", "fused")

_asked: ContextVar[str] = ContextVar("engine", default="auto")


@contextlib.contextmanager
def engine(name: str) -> Iterator[None]:
    """Within the block, this thread's routing runs on one engine; all engines give the same numbers.

    Args:
        name: ``"dgl"``, ``"torch"``, ``"fused"``, or ``"auto"`` for the fastest one that can run. ``"fused"`` on CUDA
            is experimental: its kernels have run through Triton's interpreter and compiler, but never on a GPU.

    Raises:
        InputError: an unknown name. Within the block, routing that the engine can't run.

    >>> from graphcaps import complete_graph, dynamic_routing
    >>> with engine("torch"):
    ...     dynamic_routing(complete_graph(3, 2), torch.ones(6, 4)).shape
    torch.Size([2, 4])
    """
    check_name("engine", name, ENGINES)
    token = _asked.set(name)
    try:
        yield
    finally:
        _asked.reset(token)


def asked_engine() -> str:
    """The name that the innermost ``engine`` block of this thread has, or "auto"."""
    return _asked.get()


def choose_engine(graph: DGLGraph, votes: Votes, routing: Routing | str = "dynamic") -> str:
    """The engine ``"auto"`` stands for: on the CPU ``fused``, if it has passes for ``routing``; else ``torch`` if the
    graph is complete or elsewhere than the votes; else ``dgl``.

    On CUDA it is ``torch``, unless the graph is there too. Where torch traces, in ``torch.export`` and
    ``torch.compile``, and within ``torch.func``'s transforms, it is ``torch``, which it can look into.

    >>> from graphcaps import complete_graph
    >>> choose_engine(complete_graph(3, 2), torch.zeros(6, 4))
    'fused'
    """
    if is_tracing():
        return "torch"
    device = device_of(votes)
    if device.type == "cpu" and not fused.why_not(as_routing(routing), votes):
        return "fused"
    return "dgl" if device == graph.device and not links(graph, device).complete else "torch"


def resolve(graph: DGLGraph, votes: Votes, routing: Routing) -> str:
    """The name of the engine that runs; raise ``InputError`` where the one asked for can't run here."""
    name, device = _asked.get(), device_of(votes)
    if torch.compiler.is_compiling():
        expect(name in ("auto", "torch"), "engine", "auto or torch where torch traces", repr(name))
        return "torch"
    if name == "auto":
        name = choose_engine(graph, votes, routing)
        _log_choice(type(routing).__name__, name, device.type)
    elif name == "fused":
        needs = fused.why_not(routing, votes)
        shape = tuple((votes if isinstance(votes, Tensor) else votes.weight).shape)
        got = f"{type(routing).__name__} of {shape}"
        expect(not needs, "engine fused", needs, got, "Use engine 'torch'")
    if name == "dgl" and device != graph.device:
        then = "Use engine 'torch'" if device.type != "cuda" or not has_cuda() else f"Use graph.to('{device}')"
        expect(False, "engine", f"votes on the graph's device {graph.device} for 'dgl'", device, then)
    return name


def run(
    name: str,
    graph: DGLGraph,
    votes: Votes,
    routing: Routing,
    b: Tensor,
    activation: Tensor | None,
    observer: Observer | None,
) -> Parents:
    """Route on an engine that ``resolve`` has named; b (E, *) are the prior logits.

    ``fused`` takes votes as they are. For the others they are built, and widened to the logits' dtype.
    """
    if name == "fused" and b.numel() and (votes if isinstance(votes, Tensor) else votes.weight).numel():
        return fused.run(graph, votes, routing, b, activation, observer)
    edges = edges_of(name, graph, (*b.shape, dim_of(votes)), b.device)
    edges.observer = observer
    if isinstance(edges, DenseEdges) and isinstance(votes, LinearVotes):
        u_hat = edges.vectors_of(votes.grid(edges.ends).to(b.dtype), by_image=True)
    else:
        built = votes if isinstance(votes, Tensor) else votes.build(graph)
        u_hat = edges.vectors_in(built.to(b.dtype))
    return run_on(edges, routing, u_hat, edges.numbers_in(b), activation)


def run_on(edges: EdgeOps, routing: Routing, u_hat: Tensor, b: Tensor, activation: Tensor | None = None) -> Parents:
    """Route over edge operations, of votes and prior logits laid out as they have them."""
    found = with_written_gradient(routing, edges, u_hat, b)
    if found is None:
        found, seen = routing(edges, u_hat, b, activation), edges.observed
        then = "Whoever asks for couplings is handed them there"
        observes = edges.observer is None or seen > 0
        expect(observes, type(routing).__name__, "edges.observe(r, b, c, v, votes) in each iteration", "none", then)
    return found if isinstance(found, Parents) else squashed(found)


def dim_of(votes: Votes) -> int:
    """D, numbers in a vote."""
    if isinstance(votes, LinearVotes):
        return votes.weight.shape[-1]
    return votes.shape[-1] if isinstance(votes, Tensor) else votes.u.shape[-1]


def device_of(votes: Votes) -> torch.device:
    """Where votes are."""
    return votes.device if isinstance(votes, Tensor) else votes.u.device


@functools.cache
def _log_choice(routing: str, name: str, device: str) -> None:
    log.info("engine auto: %s routing runs on '%s' (%s)", routing, name, device)
