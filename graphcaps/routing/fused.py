"""The fused engine: routing in as few passes over the votes as there are iterations. Numba runs it on the CPU."""

from __future__ import annotations

import torch

from .votes import LinearVotes

WIDEST = 256  # numbers per capsule: a row is one vector, and its compile time grows with its width


def why_not(votes: torch.Tensor | LinearVotes) -> str:
    """What votes would have to be for the engine to run, or "" where it can."""
    u = votes.u if isinstance(votes, LinearVotes) else votes
    widest = max(votes.weight.shape[-2:]) if isinstance(votes, LinearVotes) else votes.shape[-1]
    if u.device.type != "cpu":
        return "votes on the CPU"
    return "" if widest <= WIDEST else f"capsules of at most {WIDEST} numbers"


def dynamic(graph, votes, activation, b, iterations, on_iteration):
    """Dynamic routing of votes (E, *, D) or ``LinearVotes``, which are never built."""
    from . import fused_cpu  # Numba takes half a second to import

    return fused_cpu.dynamic(graph, votes, activation, b, iterations, on_iteration)
