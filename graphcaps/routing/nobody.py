"""Dynamic routing in which a child may be nobody's: the paper's "none-of-the-above" category of the softmax.

    c = exp(b) / (1 + sum over the child's out-edges of exp(b))
    s = sum over each parent's in-edges of c u_hat
    v = squash(s)
    b = b + <u_hat, v>                                (not after the last iteration)

Nobody is a parent without a capsule. Votes for it are zero, so that its logit stays 0, and is the 1 in the softmax. A
child whose votes agree with no parent gives it more than any of them. What is left of 1 is a child's share of nobody.

Sabour, Frosst & Hinton 2017, "Dynamic Routing Between Capsules" (arXiv 1710.09829), section 7, had it on CIFAR-10: ten
classes don't explain all that there is in an image.

Differs:
    The paper says no more of it. Its logit could have been learned; here it is 0. A prior of -n for all of a child's
    edges is a logit of n for nobody.
"""

from __future__ import annotations

from functools import partial

from torch import Tensor

from .dynamic import dynamic
from .edge_ops import DenseEdges, EdgeOps, Observer, Parents, ScatterEdges
from .gradient import lean_dynamic


class _WithNobody:
    """Those edge operations that dynamic routing and its gradient call, with nobody's logit in the softmax."""

    def __init__(self, edges: EdgeOps):
        self.child_softmax = partial(edges.child_softmax, nobody=True)
        self.weighted_sum, self.agreement = edges.weighted_sum, edges.agreement
        if isinstance(edges, (DenseEdges, ScatterEdges)):
            self.through_softmax, self.outer = edges.through_softmax, edges.outer


def nobody(
    edges: EdgeOps,
    u_hat: Tensor,
    activation: Tensor | None,
    prior: Tensor,
    iterations: int,
    on_iteration: Observer | None,
    parameters: None = None,
) -> Parents:
    """Such routing of votes and prior logits, laid out as ``edges`` has them; ``activation`` isn't used."""
    return dynamic(_WithNobody(edges), u_hat, None, prior, iterations, on_iteration)  # type: ignore[arg-type]


def lean_nobody(
    edges: DenseEdges | ScatterEdges,
    u_hat: Tensor,
    activation: Tensor | None,
    prior: Tensor,
    iterations: int,
    on_iteration: Observer | None,
    parameters: None = None,
) -> Parents:
    """``nobody`` as ``lean_dynamic`` has it: nobody's votes are zero, so that the gradient is dynamic routing's."""
    return lean_dynamic(_WithNobody(edges), u_hat, None, prior, iterations, on_iteration)  # type: ignore[arg-type]
