"""The fused engine: routing in as few passes over the votes as there are iterations, by Numba or by Triton.

Numba runs it on the CPU. On CUDA it is Triton, and experimental: its kernels were tested through Triton's interpreter
and compiler, but have never run on a GPU, so that only ``with graphcaps.engine("fused")`` takes them.
README.md beside this file has the derivation, the notation and the order in which to read the files.
"""

from __future__ import annotations

import importlib
import importlib.util
from typing import NamedTuple

import torch
from torch import Tensor

from ..._dgl import DGLGraph
from ..attention import Attention
from ..dynamic import Dynamic
from ..edges import Observer
from ..em import EM
from ..routing import Parents, Routing
from ..spherical import Spherical
from ..uniform import Uniform
from ..votes import LinearVotes, MatrixVotes

WIDEST = 256  # numbers per capsule: a row is one vector, and its compile time grows with its width


class Passes(NamedTuple):
    """Where a routing's passes are: ``module.run(graph, votes, routing, b, activation, observer)``.

    Modules are imported when they are called: Numba takes half a second, Triton as long.
    """

    module: str
    votes: tuple[type, ...] = (Tensor, LinearVotes)


PASSES: dict[tuple[type[Routing], str], Passes] = {
    (Dynamic, "cpu"): Passes("cpu.dynamic"),
    (Uniform, "cpu"): Passes("cpu.dynamic"),
    (Spherical, "cpu"): Passes("cpu.spherical"),
    (Attention, "cpu"): Passes("cpu.attention"),
    (EM, "cpu"): Passes("cpu.em", votes=(MatrixVotes,)),
    (Dynamic, "cuda"): Passes("cuda.dynamic"),
    (Uniform, "cuda"): Passes("cuda.dynamic"),
}


def why_not(routing: Routing, votes: Tensor | LinearVotes | MatrixVotes) -> str:
    """What the engine would need to run ``routing`` on these votes, or "" where it can."""
    u = votes if isinstance(votes, Tensor) else votes.u
    passes = PASSES.get((type(routing), u.device.type))
    if passes is None or type(votes) not in passes.votes:
        kind = "MatrixVotes" if isinstance(votes, MatrixVotes) else "such votes"
        known = [
            of.__name__
            for (of, device), found in PASSES.items()
            if device == u.device.type and type(votes) in found.votes
        ]
        return f"one of {', '.join(known) or 'no routings'} for {kind} on {u.device.type}"
    if u.device.type == "cuda" and (lacking := without_triton(u.device)):
        return lacking
    widest = votes.shape[-1] if isinstance(votes, Tensor) else max(votes.weight.shape[-2:])
    return "" if widest <= WIDEST else f"capsules of at most {WIDEST} numbers"


def run(
    graph: DGLGraph,
    votes: Tensor | LinearVotes | MatrixVotes,
    routing: Routing,
    b: Tensor,
    activation: Tensor | None,
    observer: Observer | None,
) -> Parents:
    """Route in passes; ``why_not`` has let the routing and votes through.

    Votes may be of half precision, with float32 logits b; parents are then float32. On the CPU they are widened first.
    """
    passes = PASSES[type(routing), b.device.type]
    module = importlib.import_module(f".{passes.module}", __name__)
    return module.run(graph, votes, routing, b, activation, observer)


def without_triton(device: torch.device | str) -> str:
    """What CUDA ``device`` would need for Triton's kernels to run there, or "" where they can."""
    if importlib.util.find_spec("triton") is None:
        return "Triton, which comes with torch on Linux,"
    if torch.version.hip is None and torch.cuda.get_device_capability(device) < (7, 0):
        return "a GPU of compute capability 7.0 or more"
    return ""


def passes_of(routing: Routing, observer: Observer | None) -> tuple[int, Observer | None]:
    """The passes that dynamic routing's kernels make for a routing, and the observer to call in each.

    Uniform coupling and attention have one; their observer is handed its state R times, as r = 0, 1, ...
    """
    if isinstance(routing, Dynamic) or observer is None:
        return routing.iterations if isinstance(routing, Dynamic) else 1, observer

    def hand_out(_: int, *state: Tensor) -> None:
        for r in range(routing.iterations):
            observer(r, *state)

    return 1, hand_out
