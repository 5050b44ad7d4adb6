"""A routing's rule: how the logits of an iteration follow from the sums of the iterations before.

In dynamic, spherical, uniform and attention routing the logits of iteration r are

    b^r = prior + <u_hat, w^r>

where the query w^r (J, *, D) depends only on the sums s of earlier iterations. So the same kernels run all of these
routings, forward and backward, given the rule for w. ``kernels/cpu/README.md`` derives the gradient.
"""

from typing import Literal, NamedTuple

from torch import Tensor

from ..functional import squash, squash_backward, with_length, with_length_backward


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
    """The concentration of ``directions``, () > 0."""

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
