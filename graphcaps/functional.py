"""``squash`` and margin loss of Sabour, Frosst & Hinton 2017, "Dynamic Routing Between Capsules" (arXiv 1710.09829).

``spread_loss`` is the loss of Hinton, Sabour & Frosst 2018, "Matrix capsules with EM routing".
"""

from typing import Any

import torch

from .errors import check_labels, check_tensor, check_unit, expect
from .tracing import is_tracing
from .typed import AtLeastZero, Share, typed

MIN_NORM = 1e-12  # a sum of at most this length has no direction
MIN_MEAN_SQUARE = 1e-24  # numbers up to this mean square count as zero


def at_least_float32(x: torch.Tensor) -> torch.Tensor:
    """Return x in float32 if it is of half precision, in which squares and sums overflow, and else x itself."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def squares(x: torch.Tensor) -> torch.Tensor:
    """Squares in at least float32, because squares and their sums overflow half precision."""
    return at_least_float32(x).square()


def mean_square(x: torch.Tensor) -> torch.Tensor:
    """The mean square over the last dim of x, (N, *, F), which may be sparse (N, F)."""
    if x.layout != torch.strided:
        x = x.to_sparse_coo().coalesce()
        values = squares(x.values())
        return values.new_zeros(x.shape[0]).index_add(0, x.indices()[0], values) / x.shape[1]
    return squares(x).mean(-1) if is_tracing() else _MeanSquare.apply(at_least_float32(x))


class _MeanSquare(torch.autograd.Function):
    """The mean square over the last dim. Its gradient takes fewer operations than autograd's."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x)
        return x.square().mean(-1)

    @staticmethod
    def backward(ctx: Any, slope: torch.Tensor) -> torch.Tensor:
        (x,) = ctx.saved_tensors
        return x * (slope / (x.shape[-1] / 2)).unsqueeze(-1)


def one_hot(labels: torch.Tensor, count: int, dtype: torch.dtype) -> torch.Tensor:
    """Return 1 at each label, (*, count), and 0 elsewhere. Unlike torch's, this runs inside ``torch.func.vmap``."""
    none = torch.zeros(*labels.shape, count, dtype=dtype, device=labels.device)
    return none.scatter(-1, labels.unsqueeze(-1), 1)


def norm_and_square(x: torch.Tensor, dim: int = -1) -> tuple[torch.Tensor, torch.Tensor]:
    """Return lengths, with a dim of size 1, and their squares.

    If a square overflows, the length is NaN: an infinite one would hide it.
    """
    n = torch.linalg.vector_norm(x, dim=dim, keepdim=True)
    square = n * n
    return torch.add(n, square, alpha=0), square


def per_root(mean: torch.Tensor) -> torch.Tensor:
    """Return 1 / sqrt(mean): 0 if the mean counts as zero, and NaN if it is infinite because squares overflowed."""
    some = mean > MIN_MEAN_SQUARE
    mean = torch.where(some, mean, 1)
    return torch.where(some, mean.sqrt() / mean, 0)


def squash(s: torch.Tensor, dim: int = -1) -> torch.Tensor:
    """Shrink vectors s to length n^2 / (1 + n^2), where n = |s|, and keep their direction (equation 1).

    v = s n / (1 + n^2) equals the paper's n^2 / (1 + n^2) * s / n, but doesn't divide by zero: the zero vector gives
    zero, with a zero gradient.

    Args:
        s: any floating-point tensor. Vectors lie along ``dim``.

    Returns:
        The same shape and dtype, with lengths in [0, 1). In float32, the length may round to 1 if n >= 1e3, and n >
        1.8e19 gives NaN (in float64, 1.3e154). Half precision is computed in float32.

    >>> squash(torch.tensor([3.0, 4.0]))
    tensor([0.5769, 0.7692])
    """
    check_tensor("s", s)
    expect(type(dim) is int and -s.dim() <= dim < s.dim(), "dim", "a dim of s", dim)
    x = at_least_float32(s)
    n, square = norm_and_square(x, dim)
    return (x * (n / (1 + square))).to(s.dtype)


def squash_backward(s: torch.Tensor, dv: torch.Tensor) -> torch.Tensor:
    """Return the gradient of s (J, *, D) from dv for v = s n / (1 + n^2), n = |s|. At s = 0 it is 0, as in autograd."""
    n, square = norm_and_square(s)
    below = 1 + square
    slope = (1 - square) / below / below  # f' for f = n / (1 + n^2); (1 + n^2)^2 overflows from n = 4e9 on
    slope = slope / torch.where(n > 0, n, 1)
    along = (s * dv).sum(-1, keepdim=True)
    return (dv * (n / below)).addcmul_(s, slope * along)


def scaled(s: torch.Tensor, factor: Any = None, mean: Any = None, bias: Any = None) -> tuple[torch.Tensor, Any]:
    """Return s (N, *, K, D) times ``factor`` (N, *, 1, 1), divided by the root of ``mean`` (N, *), plus bias (K, D).

    Each may be None. The second result is the number (N, *, 1, 1) by which s was multiplied.
    """
    if mean is not None:
        factor = (factor * per_root(mean)[..., None, None]).to(s.dtype)
    s = s if factor is None else s * factor
    return s if bias is None else s + bias, factor


def squash_scaled(s: torch.Tensor, factor: Any = None, mean: Any = None, bias: Any = None) -> torch.Tensor:
    """Return the squash of ``scaled``. Its gradient takes fewer operations and keeps fewer tensors than autograd's."""
    given = s, factor, mean, bias
    return squash(scaled(*given)[0]) if is_tracing() else _SquashScaled.apply(*given)


class _SquashScaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *given: Any) -> torch.Tensor:
        y, factor = scaled(*given)
        ctx.save_for_backward(*given, y, factor)
        return squash(y)

    @staticmethod
    def backward(ctx: Any, dv: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        (*given, y, factor), needs = ctx.saved_tensors, ctx.needs_input_grad
        s, _, mean, bias = given
        if torch.is_grad_enabled():  # for a second derivative
            needed = [x for x, needs_gradient in zip(given, needs, strict=True) if needs_gradient]
            gradients = iter(torch.autograd.grad(squash(scaled(*given)[0]), needed, dv, create_graph=True))
            return tuple(next(gradients) if needs_gradient else None for needs_gradient in needs)
        dy, dmean = squash_backward(at_least_float32(y), at_least_float32(dv)).to(y.dtype), None
        dbias = dy.sum(tuple(range(dy.dim() - bias.dim()))) if needs[3] else None
        if needs[2]:  # the gradient of 1 / root; a floor avoids 0 / 0
            dmean = (dy * s).sum((-2, -1)) * factor[..., 0, 0] / mean.clamp_min(MIN_MEAN_SQUARE) * -0.5
        return dy if factor is None else dy.mul_(factor), None, dmean, dbias


def with_length(pose: torch.Tensor, length: torch.Tensor) -> torch.Tensor:
    """Scale ``pose`` (J, *, D) to ``length`` (J, *). A pose of at most MIN_NORM is only multiplied by the length, so
    that zero stays zero and gradients are finite."""
    n, _ = norm_and_square(pose)
    return pose * (length.unsqueeze(-1) / torch.where(n > MIN_NORM, n, 1))


def with_length_backward(s: torch.Tensor, length: torch.Tensor, dw: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the gradients of s and length from dw, the gradient of w = ``with_length(s, length)``."""
    n, _ = norm_and_square(s)
    some = n > MIN_NORM
    n = torch.where(some, n, 1)
    mu = s / n
    along = (dw * mu).sum(-1, keepdim=True)
    return length.unsqueeze(-1) / n * (dw - torch.where(some, along * mu, 0)), along.squeeze(-1)


@typed
def margin_loss(
    lengths: torch.Tensor, labels: torch.Tensor, m_plus: Share = 0.9, m_minus: Share = 0.1, lam: AtLeastZero = 0.5
) -> torch.Tensor:
    """Margin loss on capsule lengths (equation 4), summed over classes and averaged over the batch.

    L_k = T_k max(0, m+ - |v_k|)^2 + lam (1 - T_k) max(0, |v_k| - m-)^2; a scalar >= 0

    Args:
        lengths: (B, J) in [0, 1], lengths of the class capsules. Layers return capsules (J, B, D): transpose their
            lengths (J, B) first. If B = J, a missing transposition can't be detected.
        labels: (B,) int64 classes in [0, J), or (B, J) with 0 or 1 for each class if several classes may be present.

    Raises:
        InputError: shapes don't fit or, on the CPU, labels don't or lengths are outside [0, 1].

    >>> margin_loss(torch.tensor([[0.9, 0.1], [0.5, 0.6]]), torch.tensor([0, 0]))
    tensor(0.1425)
    """
    check_tensor("lengths", lengths)
    check_tensor("labels", labels, floating=False)
    expect(lengths.dim() == 2 and len(lengths) > 0, "lengths", "(B, J) with B >= 1", tuple(lengths.shape))
    check_unit("lengths", lengths, "They are lengths of squashed capsules, not logits")
    if labels.dim() == 1:
        expect(labels.shape == lengths.shape[:1], "labels", f"(B={len(lengths)},) or (B, J)", tuple(labels.shape))
        expect(labels.dtype == torch.int64, "labels", "int64 classes for labels (B,)", labels.dtype)
        check_labels(labels, lengths.shape[1])
        present = one_hot(labels, lengths.shape[1], lengths.dtype)  # (B, J)
    else:
        expect(labels.shape == lengths.shape, "labels", f"(B,) or (B, J)={tuple(lengths.shape)}", tuple(labels.shape))
        advice = "Labels (B, J) say which classes are present; class numbers are labels (B,)"
        check_unit("labels", labels, advice)
        present = labels.to(lengths.dtype)
    loss = present * (m_plus - lengths).relu() ** 2 + lam * (1 - present) * (lengths - m_minus).relu() ** 2  # (B, J)
    return loss.sum(dim=1).mean()


@typed
def spread_loss(activations: torch.Tensor, labels: torch.Tensor, margin: Share | torch.Tensor) -> torch.Tensor:
    """Spread loss (Hinton, Sabour & Frosst 2018, equation 3), summed over wrong classes and averaged over the batch.

    L = sum over i != t of max(0, margin - (a_t - a_i))^2, where t is the true class; a scalar >= 0

    Args:
        activations: (B, J) in [0, 1], the activations of the class capsules.
        labels: (B,) int64 classes in [0, J).
        margin: the lead that the true class needs for zero loss, a number or a tensor (). In the paper it grows from
            0.2 to 0.9 in training.

    Raises:
        InputError: shapes don't fit or, on the CPU, labels don't or activations are outside [0, 1].

    >>> spread_loss(torch.tensor([[0.9, 0.1], [0.5, 0.6]]), torch.tensor([0, 0]), margin=0.2)
    tensor(0.0450)
    """
    check_tensor("activations", activations)
    check_tensor("labels", labels, floating=False)
    fits = activations.dim() == 2 and len(activations) > 0
    expect(fits, "activations", "(B, J) with B >= 1", tuple(activations.shape))
    if isinstance(margin, torch.Tensor):
        expect(check_tensor("margin", margin).dim() == 0, "margin", "a tensor ()", tuple(margin.shape))
        check_unit("margin", margin)
    check_unit("activations", activations, "They are probabilities, not logits")
    fits = labels.shape == activations.shape[:1] and labels.dtype == torch.int64
    expect(fits, "labels", f"(B={len(activations)},) int64", f"{tuple(labels.shape)} {labels.dtype}")
    check_labels(labels, activations.shape[1])
    true = activations.gather(1, labels.unsqueeze(1))  # (B, 1)
    wrong = torch.ones_like(activations).scatter(1, labels.unsqueeze(1), 0)  # (B, J)
    return ((margin - (true - activations)).relu().square() * wrong).sum(dim=1).mean()
