"""EM routing: Hinton, Sabour & Frosst 2018, "Matrix capsules with EM routing" (ICLR), Procedure 1.

Parents are Gaussians, the votes (4 x 4 poses, 16 numbers) are the data, and a child's vote is explained by its parents:

    R_ij = 1 / number of i's parents, then for t iterations
    M-step, for each parent j:
        R_ij     <- R_ij a_i
        mu_jh    <- sum over i of R_ij V_ijh / sum over i of R_ij
        sigma_jh^2 <- sum over i of R_ij (V_ijh - mu_jh)^2 / sum over i of R_ij + floor
        cost_jh  <- (beta_u + ln sigma_jh) sum over i of R_ij
        a_j      <- logistic(bias_j - lambda sum over h of cost_jh)
    E-step, for each child i:
        p_ij     <- product over h of N(V_ijh; mu_jh, sigma_jh^2)
        R_ij     <- a_j p_ij / sum over i's parents k of a_k p_ik

i's parents are those of all its out-edges: of all types, and on the graphs of ``ConvCaps`` at all positions. R before
the M-step's a_i are the couplings ``c``, their logits are b = ln a_j p_ij. lambda, the inverse temperature, is

    lambda = final lambda (1 - 0.95^t),  t = 1, 2, ...,  final lambda 0.01

in the authors' words in the paper's review (OpenReview, HJWLfGWRb).

Differs:
    sigma^2 has a floor added, ``variance_floor``, in the votes' own units; the paper has none. With none, or as little
    as 1e-4, a Gaussian of 16 numbers shrinks onto two or three votes and leaves the others out. Votes that are close
    beside the floor are shared nearly evenly: a network chooses by their lengths how much it routes.
    The paper learns beta_a and multiplies it by lambda; here ``bias`` is learned in place of the product. A parent
    without evidence, whose cost is 0, so has the same activation, logistic(bias), in all iterations. It starts at 0.1,
    off: what margin loss lets an absent class have. With beta_a from 0 such a parent would be half on.
    The sum of R that mu and sigma^2 are divided by has 1e-9 added: parents that all children leave come near 0 / 0, or
    near slopes that overflow. A parent on which no child has any weight at all has mu and a 0.
    The squashed parent v is mu given the length a_j, so that, as everywhere here, length says how sure a capsule
    is. Unsquashed, v is mu, the pose.
    A prior is added to the logits of every iteration.
"""

from __future__ import annotations

import math
from typing import NamedTuple, Protocol

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from ..errors import expect
from .edge_ops import EdgeOps, Observer, Parents, per_parent, with_length

LEAST = 1e-9  # added to the sum of R that mu and sigma^2 are divided by
OFF = -2.2  # the bias of a parent that is off without evidence: ln(0.1 / 0.9)
GROWTH = 0.95  # how far lambda still is from its end after each iteration, of what it was


class EMParameters(NamedTuple):
    """What EM routing learns beside the votes, and its temperature.

    Args:
        beta_u: a number or (J,), the cost of each number of a vote that a parent explains, in nats.
        bias: a number or (J,), the logit of a parent's activation without evidence; the paper's lambda beta_a.
        final_lambda: > 0, the inverse temperature that the iterations come near. The cost grows with the children per
            parent, so that layers with few children need a larger one.
        variance_floor: > 0, what is added to sigma^2, in the votes' own units. 1 suits the layers here, whose votes
            vary by about 0.2 (sigma^2 before training); votes k times as long want k^2 times the floor.
    """

    beta_u: torch.Tensor | float = 0.0
    bias: torch.Tensor | float = OFF
    final_lambda: float = 0.01
    variance_floor: float = 1.0

    def check(self, num_parents: int, dim: int, device: torch.device) -> None:
        """Raise ``InputError`` where a shape or device doesn't fit ``num_parents``."""
        for name, value in (("beta_u", self.beta_u), ("bias", self.bias)):
            if isinstance(value, torch.Tensor):
                fits = value.shape in ((), (num_parents,))
                expect(fits, name, f"a number or (J={num_parents},)", tuple(value.shape))
                expect(value.device == device, name, f"device {device} as the votes", value.device)
        expect(self.final_lambda > 0, "final_lambda", "a number > 0", self.final_lambda)
        expect(self.variance_floor > 0, "variance_floor", "a number > 0", self.variance_floor)


def em(
    edges: EdgeOps,
    u_hat: Tensor,
    activation: Tensor | None,
    prior: Tensor,
    iterations: int,
    on_iteration: Observer | None,
    parameters: EMParameters | None = None,
) -> Parents:
    """EM routing of votes and prior logits, laid out as ``edges`` has them, of children activated (I, *)."""
    sums = SumsOverVotes(edges, u_hat)
    return em_procedure(sums, activation, prior, iterations, on_iteration, parameters or EMParameters())


class EMSums(Protocol):
    """What EM needs of the votes V and of their edges; edge numbers and parents as in ``edge_ops``."""

    def child_softmax(self, b: Tensor) -> Tensor: ...
    def from_children(self, x: Tensor) -> Tensor: ...
    def from_parents(self, x: Tensor) -> Tensor: ...

    def moments(self, weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Mass (J, *), mu and sigma^2 without its floor (J, *, D) for a weight on each edge."""

    def distances(self, variance: Tensor) -> Tensor:
        """On each edge the sum over h of (V_h - mu_h)^2 / sigma_h^2, of the last moments' mu."""

    def agreement(self, v: Tensor) -> Tensor:
        """On each edge <V, v>."""


def em_procedure(
    votes: EMSums,
    activation: Tensor | None,
    prior: Tensor,
    iterations: int,
    on_iteration: Observer | None,
    parameters: EMParameters,
) -> Parents:
    """Procedure 1, on whatever gives the same sums over the votes."""
    beta_u, bias, final_lambda, variance_floor = parameters
    a_child = None if activation is None else votes.from_children(activation.to(prior.dtype))
    b = prior
    for t in range(1, iterations + 1):
        c = votes.child_softmax(b)
        mass, mu, spread = votes.moments(c if a_child is None else c * a_child)
        variance = spread + variance_floor
        cost = (mu.shape[-1] * per_parent(beta_u, mass) + 0.5 * variance.log().sum(-1)) * mass
        logit = per_parent(bias, mass) - final_lambda * (1 - GROWTH**t) * cost  # (J, *)
        last = t == iterations
        if last or on_iteration:
            a = torch.where(mass > 0, torch.sigmoid(logit), 0)
            v = with_length(mu, a)
        if on_iteration:
            on_iteration(t - 1, b, c, v, votes.agreement(v))
        if not last:
            b = prior + _log_of_a_p(votes, logit, variance)
    return Parents(mu, v, a)


def _log_of_a_p(votes: EMSums, logit: Tensor, variance: Tensor) -> Tensor:
    """ln a_j p_ij on each edge, of the activations' logits (J, *)."""
    of_parent = logsigmoid(logit) - 0.5 * (2 * math.pi * variance).log().sum(-1)
    return votes.from_parents(of_parent) - 0.5 * votes.distances(variance)


class SumsOverVotes:
    """``EMSums`` of votes that are built, by edge operations."""

    def __init__(self, edges: EdgeOps, votes: Tensor):
        self.edges, self.votes = edges, votes
        self.child_softmax, self.from_children = edges.child_softmax, edges.from_children
        self.from_parents = edges.from_parents

    def moments(self, weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        mass = self.edges.sum_to_parents(weight)  # (J, *)
        some = (mass + LEAST).unsqueeze(-1)  # (J, *, 1)
        mu = self.edges.weighted_sum(weight, self.votes) / some
        self.squares = (self.votes - self.edges.from_parents(mu)).square()
        return mass, mu, self.edges.weighted_sum(weight, self.squares) / some

    def distances(self, variance: Tensor) -> Tensor:
        return self.edges.agreement(self.squares, 1 / variance)

    def agreement(self, v: Tensor) -> Tensor:
        return self.edges.agreement(self.votes, v)
