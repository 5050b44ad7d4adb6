"""The fused engine: routing in as few passes over the votes as there are iterations. Numba runs it on the CPU."""

from __future__ import annotations


def dynamic(graph, votes, activation, b, iterations, on_iteration):
    """Dynamic routing of votes (E, *, D) or ``LinearVotes``, which are never built."""
    from . import fused_cpu  # Numba takes half a second to import

    return fused_cpu.dynamic(graph, votes, activation, b, iterations, on_iteration)
