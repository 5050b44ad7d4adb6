"""A routing's rule: how the logits of an iteration follow from the sums of the iterations before.

In dynamic, spherical, uniform and attention routing the logits of iteration r are

    b^r = prior + <u_hat, w^r>

where the query w^r (J, *, D) depends only on the sums s of earlier iterations. So the same kernels run all of these
routings, forward and backward, given the rule for w. ``kernels/cpu/README.md`` derives the gradient.
"""

from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from ..functional import squash
from ..graph import Links
from ..tracing import is_tracing
from .votes import LinearVotes

MIN_NORM = 1e-12  # a sum of at most this length has no direction
MIN_SQUARED_NORM = 1e-24  # if the votes' mean squared length is at most this, kappa / rho is 0


class Rule(NamedTuple):
    """A routing's iterations, for engines that run them in kernels. The first query is zero.

    capsules:    w^r = w^(r-1) + squash(s^(r-1))                (dynamic routing; uniform coupling is one iteration)
    directions:  w^r = kappa / rho s^(r-1) / |s^(r-1)|          (spherical routing)
    sums:        w^1 = s^0 / sqrt(D), where s^0 is the unweighted sum of the votes            (attention)
    """

    iterations: int
    """The number of passes over the votes."""
    kind: Literal["capsules", "directions", "sums"] = "capsules"
    kappa: Tensor | None = None
    """The concentration of ``directions``, () or (J,), > 0."""

    @property
    def adds(self) -> bool:
        """Whether each query contains the previous query as a term."""
        return self.kind == "capsules"

    def next_query(self, s: Tensor, before: Tensor, ratio: Tensor | None) -> Tensor:
        """Return the query that follows ``before``, from the sums s (J, *, D). ``ratio`` is kappa / rho (J, *)."""
        if self.kind == "capsules":
            return before + squash(s)
        if self.kind == "sums":
            return s * max(1, s.shape[-1]) ** -0.5
        assert ratio is not None
        return with_length(s, ratio)

    def next_query_backward(self, s: Tensor, ratio: Tensor | None, dw: Tensor) -> tuple[Tensor, Tensor | None]:
        """Return the gradients of s and ratio. If queries add up, dw includes the gradient through later queries."""
        if self.kind == "capsules":
            return squash_backward(s, dw), None
        if self.kind == "sums":
            return dw * max(1, s.shape[-1]) ** -0.5, None
        assert ratio is not None
        return with_length_backward(s, ratio, dw)


def with_length(pose: Tensor, length: Tensor) -> Tensor:
    """Scale ``pose`` (J, *, D) to ``length`` (J, *). A pose of at most MIN_NORM is only multiplied by the length, so
    that zero stays zero and gradients are finite."""
    n = torch.linalg.vector_norm(pose, dim=-1, keepdim=True)
    return pose * (length.unsqueeze(-1) / torch.where(n > MIN_NORM, n, 1))


def with_length_backward(s: Tensor, length: Tensor, dw: Tensor) -> tuple[Tensor, Tensor]:
    """Return the gradients of s and length from dw, the gradient of w = ``with_length(s, length)``."""
    n = torch.linalg.vector_norm(s, dim=-1, keepdim=True)
    some = n > MIN_NORM
    n = torch.where(some, n, 1)
    mu = s / n
    along = (dw * mu).sum(-1, keepdim=True)
    return length.unsqueeze(-1) / n * (dw - torch.where(some, along * mu, 0)), along.squeeze(-1)


def kappa_over_rho(squares: Tensor, count: Tensor, kappa: Tensor) -> Tensor:
    """Return kappa / rho (J, *) from each parent's sum of |u_hat|^2 and number of votes; 0 if all votes are zero."""
    mean = squares / count.clamp_min(1)
    some = mean > MIN_SQUARED_NORM
    return torch.where(some, kappa.to(mean.dtype) * torch.where(some, mean, 1).rsqrt(), 0)


def ratio_of(links: Links, votes: Tensor | LinearVotes, kappa: Tensor | None) -> tuple[Tensor | None, Tensor | None]:
    """Return ratio = kappa / rho (J, B) and, for votes (E, B, D), per_square = ratio / sum of |u_hat|^2 (0 for 0 / 0).

    Both are None without kappa. For given votes, autograd sees ratio as a function of kappa alone, because the squares
    would take it four tensors of the votes' size. The kernels add the votes' gradient through ratio, which is -dratio
    per_square u_hat.
    """
    if kappa is None:
        return None, None
    if isinstance(votes, LinearVotes):
        squares = _squared_lengths(votes, links)
    else:
        dtype = torch.promote_types(votes.dtype, torch.float32)
        squares = _sum_to_parents(torch.linalg.vector_norm(votes.detach(), dim=-1, dtype=dtype).square_(), links)
    ratio = kappa_over_rho(squares, links.in_degrees.to(squares.dtype).unsqueeze(-1), kappa)
    value = ratio.detach()
    return ratio, None if isinstance(votes, LinearVotes) else torch.where(value > 0, value / squares, 0)


def _squared_lengths(votes: LinearVotes, links: Links) -> Tensor:
    """(J, B): for each parent, the sum of |u_hat|^2 over its in-edges. The children in ``votes`` are (I, B, P).

    As |u W|^2 = <u u^T, W W^T>, no votes are built on a complete graph with a matrix for each edge.
    """
    if not links.complete or votes.index is not None:
        return _sum_to_parents(votes.build(links).square().sum(-1), links)
    weight = votes.weight.unflatten(0, (links.num_children, links.num_parents))  # (I, J, P, D)
    # einsum adds in the order of letters: the children t come last.
    products = torch.einsum("tbp,tbq->tbpq", votes.u, votes.u)
    return torch.einsum("tbpq,tjpq->jb", products, torch.einsum("tjpd,tjqd->tjpq", weight, weight))


def _sum_to_parents(numbers: Tensor, links: Links) -> Tensor:
    if numbers.is_cuda and links.complete:
        # There, index_add isn't deterministic, and its additions to one parent run one after another.
        return numbers.unflatten(0, (links.num_children, -1)).sum(0)
    return numbers.new_zeros(links.num_parents, numbers.shape[1]).index_add(0, links.dst, numbers)


def squash_backward(s: Tensor, dv: Tensor) -> Tensor:
    """Return the gradient of s (J, *, D) from dv for v = s n / (1 + n^2), n = |s|. At s = 0 it is 0, as in autograd."""
    n = torch.linalg.vector_norm(s, dim=-1, keepdim=True)
    slope = (1 - n * n) / (1 + n * n) / (1 + n * n)  # f' for f = n / (1 + n^2); (1 + n^2)^2 overflows from n = 4e9 on
    slope = slope / torch.where(n > 0, n, 1)
    along = (s * dv).sum(-1, keepdim=True)
    return (dv * (n / (1 + n * n))).addcmul_(s, slope * along)


def squash_saving_memory(s: Tensor) -> Tensor:
    """``squash``, but it keeps one tensor of s's size for the gradient, where autograd keeps three."""
    return squash(s) if is_tracing() or not s.requires_grad else _Squash.apply(s)


class _Squash(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, s: Tensor) -> Tensor:
        ctx.save_for_backward(s)
        return squash(s)

    @staticmethod
    def backward(ctx: Any, dv: Tensor) -> Tensor:
        (s,) = ctx.saved_tensors
        if torch.is_grad_enabled():  # for a second derivative
            return torch.autograd.grad(squash(s), s, dv, create_graph=True)[0]
        number = torch.promote_types(s.dtype, torch.float32)
        return squash_backward(s.to(number), dv.to(number)).to(s.dtype)
