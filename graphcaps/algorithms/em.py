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

i's parents are the ends of all its out-edges; in ``ConvCaps`` they are at several positions. The couplings ``c`` are R
before the factor a_i, and their logits are b = ln a_j p_ij. The inverse temperature lambda is 0.01 (1 - 0.95^t) in
iteration t = 1, 2, ..., as the authors write in the paper's review (OpenReview, HJWLfGWRb).

Differs:
    A constant, ``variance_floor``, is added to sigma^2. With 1e-4 or less, a Gaussian of 16 numbers shrinks onto two or
    three votes and ignores the others.
    The paper learns beta_a and multiplies it by lambda; here the product is learned, as ``bias``. So a parent
    without evidence (cost 0) has the activation logistic(bias) in all iterations. The activation starts at 0.1,
    the length that margin loss allows for an absent class. With beta_a = 0 it would start at 0.5.
    1e-9 is added to the sum of R in the divisions. Otherwise, a parent that all children leave would give 0 / 0, or
    gradients that overflow. A parent whose sum of R is 0 has mu = 0 and a = 0.
    The parent capsule v is the pose mu scaled to the length a_j, because here a capsule's length is the probability
    that it exists.
    A prior is added to the logits of every iteration.
"""

from __future__ import annotations

import copy
import math

import torch
from torch import Tensor, nn
from torch.nn.functional import logsigmoid

from ..functional import with_length
from ..typed import Positive, Size, typed
from .base import Edges, Parents, Routing, per_parent

MIN_MASS = 1e-9  # added to the sum of R before mu and sigma^2 are divided by it
BIAS_START = -2.2  # ln(0.1 / 0.9): a parent without evidence is off
BETA_U_START = -1.6  # with it, half of the parents of an untrained layer are on
LAMBDA_DECAY = 0.95  # lambda_t = final * (1 - 0.95 ** t)
CHILDREN_PER_PARENT = 100  # the paper's final lambda of 0.01 suits about this many children


class EM(Routing):
    """EM routing (Hinton, Sabour & Frosst 2018, Procedure 1). It learns beta_u and the bias of the activations.

    A cost is a sum over children, so one temperature can't suit layers of all sizes: layers multiply ``final_lambda``
    by 100 J / I, which scales costs to 100 children per parent (Gritzman 2019, arXiv 1907.00652, section 3.2).

    Args:
        iterations: R >= 1.
        beta_u: initial beta_u, the cost in nats of explaining one number of a vote.
        bias: initial bias, the logit of a parent's activation without evidence (lambda beta_a in the paper).
        final_lambda: > 0, the inverse temperature that the iterations approach.
        variance_floor: > 0. 1 suits the layers here, whose votes have sigma^2 of about 0.2 before training. Votes that
            are k times as long need k^2 times the floor.
    """

    uses_activation = True
    sums_votes = False

    @typed
    def __init__(
        self,
        iterations: Size = 3,
        beta_u: float = BETA_U_START,
        bias: float = BIAS_START,
        final_lambda: Positive = 0.01,
        variance_floor: Positive = 1.0,
    ):
        super().__init__()
        self.iterations, self.beta_u, self.bias = iterations, beta_u, bias
        self.final_lambda, self.variance_floor = final_lambda, variance_floor
        self.scaled_lambda = final_lambda
        self.positions = 1  # number of parents of one type
        self._costs(1)

    def _costs(self, parent_types: int) -> None:
        self.costs = nn.Parameter(torch.empty(parent_types))  # beta_u of each type
        self.biases = nn.Parameter(torch.empty(parent_types))
        self.reset_parameters()

    def for_layer(self, num_children: int, num_parents: int, parent_dim: int, parent_types: int) -> EM:
        """Return a copy with a beta_u and a bias for each parent type, and with lambda for the layer's sizes.

        The sizes aren't settings: checkpoints store the network's routing, and its layers make these copies again.
        """
        made = copy.deepcopy(self)
        made.positions = num_parents // parent_types
        made.scaled_lambda = self.final_lambda * CHILDREN_PER_PARENT * num_parents / num_children
        made._costs(parent_types)
        return made

    def reset_parameters(self) -> None:
        """Reset beta_u and the bias to their initial values."""
        nn.init.constant_(self.costs, self.beta_u)
        nn.init.constant_(self.biases, self.bias)

    def of_parents(self) -> tuple[Tensor, Tensor]:
        """Return beta_u and bias, each (J,), or () if all parents have one type."""
        if len(self.costs) == 1:
            return self.costs[0], self.biases[0]
        return self.costs.repeat_interleave(self.positions), self.biases.repeat_interleave(self.positions)

    def forward(self, edges: Edges, votes: Tensor, prior: Tensor, activation: Tensor | None = None) -> Parents:
        beta_u, bias = self.of_parents()
        a_child = None if activation is None else edges.from_children(activation.to(prior.dtype))
        b = prior
        for t in range(1, self.iterations + 1):
            c = edges.child_softmax(b)
            weight = c if a_child is None else c * a_child  # edge numbers
            mass = edges.sum_to_parents(weight)  # (J, *)
            divisor = (mass + MIN_MASS).unsqueeze(-1)
            mu = edges.weighted_sum(weight, votes) / divisor  # (J, *, D)
            squares = (votes - edges.from_parents(mu)).square()  # edge vectors
            variance = edges.weighted_sum(weight, squares) / divisor + self.variance_floor
            cost = (mu.shape[-1] * per_parent(beta_u, mass) + 0.5 * variance.log().sum(-1)) * mass
            logit = per_parent(bias, mass) - self.scaled_lambda * (1 - LAMBDA_DECAY**t) * cost  # (J, *)
            a = torch.where(mass == 0, 0, torch.sigmoid(logit))
            v = with_length(mu, a)
            edges.observe(t - 1, b, c, v, votes)
            if t < self.iterations:
                log_normaliser = logsigmoid(logit) - 0.5 * (2 * math.pi * variance).log().sum(-1)
                b = prior + (edges.from_parents(log_normaliser) - 0.5 * edges.agreement(squares, 1 / variance))
        return Parents(mu, v, a, c)
