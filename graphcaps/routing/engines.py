"""Which function runs which routing on which engine: a new algorithm or engine is one line of the table."""

from __future__ import annotations

import functools
import logging

import torch

from .._dgl import DGLGraph, has_cuda
from ..errors import check_name, expect
from . import attention, dynamic, em, fused, inverted, naive, uniform
from .votes import LinearVotes, MatrixVotes

log = logging.getLogger("graphcaps")

# Each is function(graph, votes (E, *, D), activation (I, *) or None, b (E, *), iterations, on_iteration, squash_output)
# -> v (J, *, D), activation (J, *). Those of a routing in PARAMETERS take parameters after these.
ENGINES = {
    ("dynamic", "naive"): naive.dynamic,
    ("dynamic", "dgl"): dynamic.on_dgl,
    ("dynamic", "torch"): dynamic.on_torch,
    ("dynamic", "fused"): fused.dynamic,
    ("uniform", "naive"): naive.uniform,
    ("uniform", "dgl"): uniform.on_dgl,
    ("uniform", "torch"): uniform.on_torch,
    ("uniform", "fused"): uniform.on_fused,
    ("attention", "naive"): naive.attention,
    ("attention", "dgl"): attention.on_dgl,
    ("attention", "torch"): attention.on_torch,
    ("attention", "fused"): fused.attention,
    ("inverted", "naive"): naive.inverted,
    ("inverted", "dgl"): inverted.on_dgl,
    ("inverted", "torch"): inverted.on_torch,
    ("em", "naive"): naive.em,
    ("em", "dgl"): em.on_dgl,
    ("em", "torch"): em.on_torch,
}
# Engines beside these for votes that are products of 4 x 4 matrices.
MATRIX_ENGINES = {("em", "fused"): fused.matrix_em}
# These couple once, whatever the number of iterations.
ONE_PASS = {"uniform", "attention"}
# What a routing may be given as ``parameters``; the others have none.
PARAMETERS = {"inverted": inverted.InvertedParameters, "em": em.EMParameters}
# Why the fused engine doesn't have a routing.
NOT_FUSED = {
    "inverted": "normalises the parents between them, and doesn't add up its logits",
    "em": "also needs, for each number of the votes, the sum of squares around a parent's mean",
}
# These take votes as they are that are not built; for the others the votes are built first.
TAKES = {LinearVotes: {fused.dynamic, fused.attention, uniform.on_fused}, MatrixVotes: set(MATRIX_ENGINES.values())}
# These take votes in half precision as they are, with float32 logits; for the others the votes are widened first.
TAKES_HALF_VOTES = {fused.dynamic, fused.attention, uniform.on_fused, fused.matrix_em}


def routing_names() -> list[str]:
    """Names of the routing algorithms."""
    return list(dict.fromkeys(routing for routing, _ in ENGINES))


def engine_names(routing: str = "dynamic") -> list[str]:
    """Names of the engines that run ``routing``."""
    return [engine for name, engine in ENGINES if name == routing]


def choose_engine(graph: DGLGraph, votes: torch.Tensor | LinearVotes | MatrixVotes, routing: str = "dynamic") -> str:
    """The engine ``"auto"`` stands for: ``fused`` on the CPU, if ``routing`` has it; else ``dgl`` if the graph is there
    too, else ``torch``.

    On CUDA ``fused`` is there too, but only for those who ask for it: its kernels have never run on a GPU.

    Nothing is run and nothing remembered: the same graph and votes give the same answer.

    >>> from graphcaps import complete_graph
    >>> choose_engine(complete_graph(3, 2), torch.zeros(6, 4))
    'fused'
    """
    device = _device(votes)
    known = MATRIX_ENGINES if isinstance(votes, MatrixVotes) else ENGINES
    if device.type == "cpu" and (routing, "fused") in known and not fused.why_not(votes, routing):
        return "fused"
    return "dgl" if device == graph.device else "torch"


def find_engine(routing: str, engine: str, graph: DGLGraph, votes: torch.Tensor | LinearVotes | MatrixVotes):
    """The function for ``routing`` on ``engine``; raise ``InputError`` where there is none or it can't run here."""
    of_matrices = isinstance(votes, MatrixVotes)
    check_names(routing, engine, of_matrices)
    device = _device(votes)
    if engine == "auto":
        engine = choose_engine(graph, votes, routing)
        _say(routing, engine, device.type)
    if engine == "dgl" and device != graph.device:
        then = "Use engine='torch'" if device.type != "cuda" or not has_cuda() else f"Use graph.to('{device}')"
        expect(False, "engine", f"votes on the graph's device {graph.device} for 'dgl'", device, then)
    needs = fused.why_not(votes, routing) if engine == "fused" else ""
    shape = tuple((votes if isinstance(votes, torch.Tensor) else votes.weight).shape)
    expect(not needs, "engine", f"{needs} for 'fused'", f"{shape} on {device}", "Use 'torch'")
    return (MATRIX_ENGINES if of_matrices and engine == "fused" else ENGINES)[routing, engine]


def check_names(routing: str, engine: str, of_matrices: bool = False) -> None:
    """Raise ``InputError`` unless there is such a routing algorithm and such an engine for it, or "auto".

    ``of_matrices``: for ``MatrixVotes``.
    """
    check_name("routing", routing, routing_names())
    known = ["auto", *engine_names(routing)]
    if of_matrices:
        known = [name for name in known if name != "fused"] + [e for name, e in MATRIX_ENGINES if name == routing]
    if engine == "fused" and engine not in known:
        why = f"Its passes are those of dynamic routing; {routing} {NOT_FUSED.get(routing, 'has others')}"
        why = "Only em makes votes that are products of matrices as it goes" if of_matrices else why
        expect(False, "engine", f"one of {', '.join(known)} for {routing} routing", "'fused'", why)
    check_name("engine", engine, known)


def takes(run, votes: torch.Tensor | LinearVotes | MatrixVotes) -> bool:
    """Whether the function ``run`` of the table takes such votes as they are."""
    return isinstance(votes, torch.Tensor) or run in TAKES[type(votes)]


def _device(votes: torch.Tensor | LinearVotes | MatrixVotes) -> torch.device:
    return votes.device if isinstance(votes, torch.Tensor) else votes.u.device


@functools.cache
def _say(routing: str, engine: str, device: str) -> None:
    log.info("engine auto: %s routing runs on '%s' (%s)", routing, engine, device)
