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
import numbers

import torch
from torch import Tensor, nn
from torch.nn.functional import logsigmoid

from ..errors import check_whole, expect
from .engines.edges import Edges, per_parent
from .routing import Parents, Routing
from .rule import with_length

MIN_MASS = 1e-9  # added to the sum of R, by which mu and sigma^2 are divided
BIAS_START = -2.2  # ln(0.1 / 0.9): a parent without evidence is off
BETA_U_START = -1.6  # half of the parents of an untrained layer are on
LAMBDA_DECAY = 0.95  # lambda_t = final * (1 - 0.95 ** t)
CHILDREN_PER_PARENT = 100  # about the number that the paper's final lambda of 0.01 suits


class EM(Routing):
    """EM routing (Hinton, Sabour & Frosst 2018, Procedure 1), which learns beta_u and the activations' bias.

    A cost is a sum over children, so that one temperature can't suit layers of different sizes. As in Gritzman 2019
    (arXiv 1907.00652), section 3.2, layers count as if each parent had 100 children: there ``final_lambda`` is
    multiplied by 100 J / I.

    Args:
        iterations: R >= 1.
        beta_u: before training, the cost of each number of a vote that a parent explains, in nats.
        bias: before training, the logit of a parent's activation without evidence; the paper's lambda beta_a.
        final_lambda: > 0, the inverse temperature that the iterations come near.
        variance_floor: > 0, added to sigma^2, in the votes' own units. 1 suits the layers here, whose votes
            vary by about 0.2 (sigma^2 before training); votes k times as long want k^2 times the floor.
    """

    uses_activation = True
    sums_votes = False

    def __init__(
        self,
        iterations: int = 3,
        beta_u: float = BETA_U_START,
        bias: float = BIAS_START,
        final_lambda: float = 0.01,
        variance_floor: float = 1.0,
    ):
        super().__init__()
        check_whole("iterations", iterations)
        for name, value in (("final_lambda", final_lambda), ("variance_floor", variance_floor)):
            expect(isinstance(value, numbers.Real) and value > 0, name, "a number > 0", repr(value)[:40])
        self.iterations, self.beta_u, self.bias = iterations, beta_u, bias
        self.final_lambda, self.variance_floor = final_lambda, variance_floor
        self.scaled_lambda = final_lambda
        self.positions = 1  # parents of one type
        self._costs(1)

    def _costs(self, parent_types: int) -> None:
        self.costs = nn.Parameter(torch.empty(parent_types))  # beta_u of each type
        self.biases = nn.Parameter(torch.empty(parent_types))
        self.reset_parameters()

    def for_layer(self, num_children: int, num_parents: int, parent_dim: int, parent_types: int) -> EM:
        """A copy with beta_u and bias for each type of parent, and lambda for the layer's sizes.

        These are not settings: checkpoints store the network's routing, and its layers copy it again.
        """
        made = EM(**self.settings())
        made.positions = num_parents // parent_types
        made.scaled_lambda = self.final_lambda * CHILDREN_PER_PARENT * num_parents / num_children
        made._costs(parent_types)
        return made

    def reset_parameters(self) -> None:
        """Set beta_u and the bias back to their start."""
        nn.init.constant_(self.costs, self.beta_u)
        nn.init.constant_(self.biases, self.bias)

    def of_parents(self) -> tuple[Tensor, Tensor]:
        """beta_u and bias, (J,) each, or () where all parents share one type."""
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
            a = torch.where(mass > 0, torch.sigmoid(logit), 0)
            v = with_length(mu, a)
            edges.observe(t - 1, b, c, v, votes)
            if t < self.iterations:
                log_normaliser = logsigmoid(logit) - 0.5 * (2 * math.pi * variance).log().sum(-1)
                b = prior + (edges.from_parents(log_normaliser) - 0.5 * edges.agreement(squares, 1 / variance))
        return Parents(mu, v, a, c)
