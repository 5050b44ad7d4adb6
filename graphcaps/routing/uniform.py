"""Uniform coupling, the control: each child gives every parent an equal part, and nothing is routed.

    c = 1 / number of the child's out-edges           (with a prior: softmax of the prior over them)
    s = sum over each parent's in-edges of c u_hat
    v = squash(s)

It is dynamic routing's first iteration, and runs as that: one pass, whatever the number of iterations. An observer is
handed the same state in each. Paik, Kwak & Kim 2019 (arXiv 1907.13327) found that routing often does no better.
"""

from __future__ import annotations

from torch import Tensor

from .dynamic import dynamic
from .edge_ops import EdgeOps, Observer, Parents, repeated


def uniform(
    edges: EdgeOps,
    u_hat: Tensor,
    activation: Tensor | None,
    prior: Tensor,
    iterations: int,
    on_iteration: Observer | None,
    parameters: None = None,
) -> Parents:
    """Uniform coupling of votes and prior logits, laid out as ``edges`` has them; ``activation`` isn't used."""
    return dynamic(edges, u_hat, activation, prior, 1, repeated(on_iteration, iterations))
