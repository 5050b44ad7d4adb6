"""EM routing: Hinton, Sabour & Frosst 2018, "Matrix capsules with EM routing" (ICLR), Procedure 1.

Parents are Gaussians, the votes (4 x 4 poses, 16 numbers) are the data, and a child's vote is explained by its parents:

    R_ij = 1 / number of i's parents, then for t iterations
    M-step, for each parent j:
        R_ij     <- R_ij a_i
        mu_jh    <- sum over i of R_ij V_ijh / sum over i of R_ij
        sigma_jh^2 <- sum over i of R_ij (V_ijh - mu_jh)^2 / sum over i of R_ij
        cost_jh  <- (beta_u + ln sigma_jh) sum over i of R_ij
        a_j      <- logistic(lambda (beta_a - sum over h of cost_jh))
    E-step, for each child i:
        p_ij     <- product over h of N(V_ijh; mu_jh, sigma_jh^2)
        R_ij     <- a_j p_ij / sum over i's parents k of a_k p_ik

i's parents are those of all its out-edges: of all types, and on the graphs of ``ConvCaps`` at all positions. R before
the M-step's a_i are the couplings ``c``, their logits are b = ln a_j p_ij. lambda, the inverse temperature, is

    lambda = final lambda (1 - 0.95^t),  t = 1, 2, ...,  final lambda 0.01

in the authors' words in the paper's review (OpenReview, HJWLfGWRb).

Differs:
    sigma^2 has 1e-4 added, so that it can't be 0: where votes are equal, or a parent has one child. Slopes through
    such a parent can be 1 / sqrt(1e-4) = 100 steep; with the 1e-9 of Gritzman 2019's code, 300 times as much.
    The sum of R that mu and sigma^2 are divided by has 1e-9 added: parents that all children leave come near 0 / 0, or
    near slopes that overflow. A parent on which no child has any weight at all has mu and a 0.
    The squashed parent v is mu stretched to the length a_j, so that, as everywhere here, length says how sure a capsule
    is. Unsquashed, v is mu, the pose.
    A prior is added to the logits of every iteration.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch.nn.functional import logsigmoid

from ..errors import expect
from . import steps

EPSILON = 1e-4  # added to sigma^2
LEAST = 1e-9  # added to the sum of R that mu and sigma^2 are divided by
GROWTH = 0.95  # how far lambda still is from its end after each iteration, of what it was


class EMParameters(NamedTuple):
    """What EM routing learns beside the votes, and its temperature.

    Args:
        beta_u: a number or (J,), the cost of each number of a vote that a parent explains, in nats.
        beta_a: a number or (J,), what a parent may cost before it is rather off than on.
        final_lambda: > 0, the inverse temperature that the iterations come near. The cost grows with the children per
            parent, so that layers with few children need a larger one.
    """

    beta_u: torch.Tensor | float = 0.0
    beta_a: torch.Tensor | float = 0.0
    final_lambda: float = 0.01

    def check(self, num_parents: int, dim: int, device: torch.device) -> None:
        """Raise ``InputError`` where a shape or device doesn't fit ``num_parents``."""
        for name, value in (("beta_u", self.beta_u), ("beta_a", self.beta_a)):
            if isinstance(value, torch.Tensor):
                fits = value.shape in ((), (num_parents,))
                expect(fits, name, f"a number or (J={num_parents},)", tuple(value.shape))
                expect(value.device == device, name, f"device {device} as the votes", value.device)
        expect(self.final_lambda > 0, "final_lambda", "a number > 0", self.final_lambda)


def on_dgl(graph, votes, activation, b, iterations, on_iteration, squash_output=True, parameters=None):
    """Route with DGL's kernels."""
    edges = steps.on_dgl(graph, votes)
    return _route(edges, votes, activation, b, iterations, on_iteration, squash_output, parameters)


def on_torch(graph, votes, activation, b, iterations, on_iteration, squash_output=True, parameters=None):
    """Route with torch's scatter operations; the graph may stay on the CPU."""
    edges = steps.on_torch(graph, votes)
    return _route(edges, votes, activation, b, iterations, on_iteration, squash_output, parameters)


def _route(edges, votes, activation, prior, iterations, on_iteration, squash_output, parameters):
    beta_u, beta_a, final_lambda = parameters or EMParameters()
    present = None if activation is None else edges.of_children(activation.to(votes.dtype))  # (E, *)
    b = prior
    for t in range(1, iterations + 1):
        c = edges.couple(b)
        weight = c if present is None else c * present
        mass, mu, squares, variance = _m_step(edges, votes, weight)
        cost = (votes.shape[-1] * steps.by_parent(beta_u, mass) + 0.5 * variance.log().sum(-1)) * mass
        logit = final_lambda * (1 - GROWTH**t) * (steps.by_parent(beta_a, mass) - cost)  # (J, *)
        last = t == iterations
        if last or on_iteration:
            a = torch.where(mass > 0, torch.sigmoid(logit), 0)
            v = steps.stretched(mu, a)
        if on_iteration:
            on_iteration(t - 1, b, c, v, edges.agree(votes, v))
        if not last:
            b = prior + _log_of_a_p(edges, logit, squares, variance)
    return v if squash_output else mu, a


def _m_step(edges, votes, weight):
    """mass (J, *), the sum of weights; mu (J, *, D); (V - mu)^2 (E, *, D); sigma^2 (J, *, D)."""
    mass, weight = edges.gather(weight), weight.unsqueeze(-1)
    some = (mass + LEAST).unsqueeze(-1)  # (J, *, 1)
    mu = edges.gather(weight * votes) / some
    squares = (votes - edges.of_parents(mu)).square()
    return mass, mu, squares, edges.gather(weight * squares) / some + EPSILON


def _log_of_a_p(edges, logit, squares, variance):
    """ln a_j p_ij (E, *), of the activations' logits (J, *)."""
    of_parent = logsigmoid(logit) - 0.5 * (2 * math.pi * variance).log().sum(-1)
    return edges.of_parents(of_parent) - 0.5 * edges.agree(squares, 1 / variance)
