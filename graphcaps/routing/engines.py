"""Which function runs which routing on which engine: a new algorithm or engine is one line of the table."""

from __future__ import annotations

import functools
import logging

import torch

from .._dgl import DGLGraph, has_cuda
from ..errors import check_name, expect
from . import dynamic, fused, naive
from .votes import LinearVotes

log = logging.getLogger("graphcaps")

# Each is function(graph, votes (E, *, D), activation (I, *) or None, b (E, *), iterations, on_iteration, squash_output)
# -> v (J, *, D), activation (J, *).
ENGINES = {
    ("dynamic", "naive"): naive.dynamic,
    ("dynamic", "dgl"): dynamic.on_dgl,
    ("dynamic", "torch"): dynamic.on_torch,
    ("dynamic", "fused"): fused.dynamic,
}
# These take LinearVotes as they are; for the others the votes are built first.
TAKES_LINEAR_VOTES = {fused.dynamic}
# These take votes in half precision as they are, with float32 logits; for the others the votes are widened first.
TAKES_HALF_VOTES = {fused.dynamic}


def routing_names() -> list[str]:
    """Names of the routing algorithms."""
    return list(dict.fromkeys(routing for routing, _ in ENGINES))


def engine_names(routing: str = "dynamic") -> list[str]:
    """Names of the engines that run ``routing``."""
    return [engine for name, engine in ENGINES if name == routing]


def choose_engine(graph: DGLGraph, votes: torch.Tensor | LinearVotes) -> str:
    """The engine ``"auto"`` stands for: ``fused`` on the CPU; else ``dgl`` if the graph is there too, else ``torch``.

    On CUDA ``fused`` is there too, but only for those who ask for it: its kernels have never run on a GPU.

    Nothing is run and nothing remembered: the same graph and votes give the same answer.

    >>> from graphcaps import complete_graph
    >>> choose_engine(complete_graph(3, 2), torch.zeros(6, 4))
    'fused'
    """
    device = _device(votes)
    if device.type == "cpu" and not fused.why_not(votes):
        return "fused"
    return "dgl" if device == graph.device else "torch"


def find_engine(routing: str, engine: str, graph: DGLGraph, votes: torch.Tensor | LinearVotes):
    """The function for ``routing`` on ``engine``; raise ``InputError`` where there is none or it can't run here."""
    check_names(routing, engine)
    device = _device(votes)
    if engine == "auto":
        engine = choose_engine(graph, votes)
        _say(routing, engine, device.type)
    if engine == "dgl" and device != graph.device:
        then = "Use engine='torch'" if device.type != "cuda" or not has_cuda() else f"Use graph.to('{device}')"
        expect(False, "engine", f"votes on the graph's device {graph.device} for 'dgl'", device, then)
    needs = fused.why_not(votes) if engine == "fused" else ""
    shape = tuple((votes.weight if isinstance(votes, LinearVotes) else votes).shape)
    expect(not needs, "engine", f"{needs} for 'fused'", f"{shape} on {device}", "Use 'torch'")
    return ENGINES[routing, engine]


def check_names(routing: str, engine: str) -> None:
    """Raise ``InputError`` unless there is such a routing algorithm and such an engine for it, or "auto"."""
    check_name("routing", routing, routing_names())
    check_name("engine", engine, ["auto", *engine_names(routing)])


def _device(votes: torch.Tensor | LinearVotes) -> torch.device:
    return votes.u.device if isinstance(votes, LinearVotes) else votes.device


@functools.cache
def _say(routing: str, engine: str, device: str) -> None:
    log.info("engine auto: %s routing runs on '%s' (%s)", routing, engine, device)
