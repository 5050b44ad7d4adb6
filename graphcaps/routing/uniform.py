"""Uniform coupling, the control: each child gives every parent an equal part, and nothing is routed.

    c = 1 / number of the child's out-edges           (with a prior: softmax of the prior over them)
    s = sum over each parent's in-edges of c u_hat
    v = squash(s)

It is dynamic routing's first iteration, and runs as that: one pass, whatever the number of iterations. An observer is
handed the same state in each. Paik, Kwak & Kim 2019 (arXiv 1907.13327) found that routing often does no better.
"""

from __future__ import annotations

from . import dynamic, fused
from .edge_ops import repeated


def on_dgl(graph, u_hat, activation, b, iterations, on_iteration, squash_output=True):
    """Couple equally, with DGL."""
    return dynamic.on_dgl(graph, u_hat, activation, b, 1, repeated(on_iteration, iterations), squash_output)


def on_torch(graph, u_hat, activation, b, iterations, on_iteration, squash_output=True):
    """Couple equally, with torch."""
    return dynamic.on_torch(graph, u_hat, activation, b, 1, repeated(on_iteration, iterations), squash_output)


def on_fused(graph, votes, activation, b, iterations, on_iteration, squash_output=True):
    """Couple equally, in the fused engine's first pass."""
    return fused.dynamic(graph, votes, activation, b, 1, repeated(on_iteration, iterations), squash_output)
