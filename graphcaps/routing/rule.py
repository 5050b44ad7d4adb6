"""How the logits of an iteration follow from the sums before it: what a kernel has to know of a routing.

In dynamic, spherical, uniform and attention routing the logits of iteration r are

    b^r = prior + <u_hat, w^r>

where w^r (J, *, D), here called the query, depends on the sums s of earlier iterations alone. So an engine that knows
the rule for w runs all of them with one schedule, forward and backward. ``engines/cpu/README.md`` derives the gradient.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from ..functional import squash
from ..graph.links import is_tracing

MIN_NORM = 1e-12  # a sum up to this length has no direction
MIN_SQUARED_NORM = 1e-24  # a mean square of votes' lengths up to this one counts as zero


class Rule(NamedTuple):
    """A routing's iterations, for engines that run them in kernels. The first query is zero.

    capsules:    w^r = w^(r-1) + squash(s^(r-1))                (dynamic routing; uniform coupling is one iteration)
    directions:  w^r = kappa / rho s^(r-1) / |s^(r-1)|          (spherical routing)
    sums:        w^1 = s^0 / sqrt(D), where s^0 is the unweighted sum of the votes            (attention)
    """

    iterations: int
    """Passes over the votes."""
    query: Literal["capsules", "directions", "sums"] = "capsules"
    kappa: Tensor | None = None
    """Concentration > 0, () or (J,), for directions."""
    shown: int = 1
    """How often an observer is handed each state. One-pass routings show theirs as often as others iterate."""

    @property
    def adds(self) -> bool:
        """Whether a query is a part of the next one."""
        return self.query == "capsules"

    def next_query(self, s: Tensor, before: Tensor, length: Tensor | None) -> Tensor:
        """w of the next iteration from the sums s (J, *, D) and the query ``before``; length is kappa / rho (J, *)."""
        if self.query == "capsules":
            return before + squash(s)
        if self.query == "sums":
            return s * max(1, s.shape[-1]) ** -0.5
        assert length is not None
        return with_length(s, length)

    def next_query_backward(self, s: Tensor, length: Tensor | None, dw: Tensor) -> tuple[Tensor, Tensor | None]:
        """Gradients of s and length. For capsules dw is the gradient of squash(s), which later queries are part of."""
        if self.query == "capsules":
            return squash_backward(s, dw), None
        if self.query == "sums":
            return dw * max(1, s.shape[-1]) ** -0.5, None
        assert length is not None
        return with_length_backward(s, length, dw)


def with_length(pose: Tensor, length: Tensor) -> Tensor:
    """Vectors along ``pose`` (J, *, D) of this ``length`` (J, *). A pose below MIN_NORM becomes shorter still, so that
    zero stays zero and gradients are finite."""
    n = torch.linalg.vector_norm(pose, dim=-1, keepdim=True)
    return pose * (length.unsqueeze(-1) / torch.where(n > MIN_NORM, n, 1))


def with_length_backward(s: Tensor, length: Tensor, dw: Tensor) -> tuple[Tensor, Tensor]:
    """Gradients of s and length from that of w = ``with_length(s, length)``."""
    n = torch.linalg.vector_norm(s, dim=-1, keepdim=True)
    some = n > MIN_NORM
    n = torch.where(some, n, 1)
    mu = s / n
    along = (dw * mu).sum(-1, keepdim=True)
    return length.unsqueeze(-1) / n * (dw - torch.where(some, along * mu, 0)), along.squeeze(-1)


def concentration_per_length(squares: Tensor, count: Tensor, kappa: Tensor) -> Tensor:
    """kappa / rho (J, *) from the sum of |u_hat|^2 and the number of each parent's votes; 0 where all are zero."""
    mean = squares / count.clamp_min(1)
    some = mean > MIN_SQUARED_NORM
    return torch.where(some, kappa.to(mean.dtype) * torch.where(some, mean, 1).rsqrt(), 0)


def squash_backward(s: Tensor, dv: Tensor) -> Tensor:
    """The gradient of s (J, *, D) from that of v = s n / (1 + n^2), n = |s|; zero at s = 0, as autograd has it."""
    n = torch.linalg.vector_norm(s, dim=-1, keepdim=True)
    slope = (1 - n * n) / (1 + n * n) / (1 + n * n)  # f' for f = n / (1 + n^2); (1 + n^2)^2 is infinite from 4e9 on
    slope = slope / torch.where(n > 0, n, 1)
    along = (s * dv).sum(-1, keepdim=True)
    return (dv * (n / (1 + n * n))).addcmul_(s, slope * along)


def squash_saving_memory(s: Tensor) -> Tensor:
    """``squash`` whose gradient needs one tensor of s's size beside the result; autograd's needs three."""
    return squash(s) if is_tracing() or not s.requires_grad else _Squash.apply(s)


class _Squash(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, s: Tensor) -> Tensor:
        ctx.save_for_backward(s)
        return squash(s)

    @staticmethod
    def backward(ctx: Any, dv: Tensor) -> Tensor:
        (s,) = ctx.saved_tensors
        if torch.is_grad_enabled():  # a second derivative is asked for
            return torch.autograd.grad(squash(s), s, dv, create_graph=True)[0]
        return squash_backward(s, dv)
