"""Routing by a rule on complete graphs on a GPU: a torch operator with a gradient, and its kernel launches.

Nothing here waits for the GPU, and calls of the same shapes launch the same kernels, so CUDA graphs can capture them.
Sizes of tiles depend on nothing but shapes and precision, so that results repeat.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor
from triton import next_power_of_2
from triton.runtime.errors import OutOfResources

from ...algorithms.rule import Rule
from ...algorithms.votes import LinearVotes, Votes
from ...graph import Links
from ..operators import new_results, operator, or_none
from ..ratio import ratio_of
from . import kernels_dense as kernels

PROGRAMS = 256  # tiles get smaller until there are this many, as many as keep a large GPU busy


def sums_on_complete(
    links: Links, votes: Votes, rule: Rule, prior: Tensor, coupling: bool, half: torch.dtype | None = None
) -> tuple[Tensor, Tensor | None, Tensor]:
    """Route given or linear votes on a complete graph. Return s (J, *, D), couplings (E, *) and v = squash(s).

    ``prior`` (E, *) is in float32. ``half``: the dtype to which float32 votes are rounded before they are multiplied.
    """
    children, parents = links.num_children, links.num_parents
    u = votes.u.reshape(len(votes.u), -1, votes.u.shape[-1])  # (I, B, P), or (E, B, D)
    weight = votes.matrices() if isinstance(votes, LinearVotes) else None  # (E, P, D)
    ratio = per_square = None
    if rule.kappa is not None:
        given = u if weight is None else LinearVotes(u.to(prior.dtype), weight.to(prior.dtype))
        ratio, per_square = ratio_of(links, given, rule.kappa)
    weight = None if weight is None else weight.unflatten(0, (children, parents))
    if half is not None and u.dtype == torch.float32:
        u, weight = u.to(half), None if weight is None else weight.to(half)
    constant = not any(prior.stride()) and not (torch.is_grad_enabled() and prior.requires_grad)
    settings = parents, rule.iterations, constant, coupling
    s, v, c = route_on_complete(u, weight, prior.reshape(len(prior), -1), ratio, per_square, settings=settings)
    s, v = (x.reshape(parents, *votes.trailing, x.shape[-1]) for x in (s, v))
    return s, c.reshape(prior.shape) if coupling else None, v


@dataclass(frozen=True)
class Sizes:
    """The constants of the kernels. M, IT, P and D are powers of two, P and D at least CHILD_DIM and DIM."""

    M: int  # images of a tile
    IT: int  # children of a tile
    P: int
    D: int
    CHILD_DIM: int
    DIM: int
    LINEAR: bool  # whether votes are linear
    PRIOR: bool  # whether the prior differs between edges
    DOT: str  # how Triton multiplies matrices of float32: with float32's precision, or with TensorFloat-32's


class _Call(NamedTuple):
    """The arguments of the operator, in the layouts that the kernels expect, and what follows from them."""

    u: Tensor  # children (I, B, P), or without a weight the votes (E, B, D)
    weight: Tensor | None  # (I, J, P, D)
    prior: Tensor  # (E, B)
    ratio: Tensor | None  # (J, B), kappa / rho in spherical routing
    per_square: Tensor | None  # (J, B), ratio / sum of |u_hat|^2 in spherical routing of given votes
    parents: int
    iterations: int
    constant: bool  # whether the prior is one number for all edges, which has no gradient
    coupling: bool  # whether to return couplings

    @property
    def votes(self) -> Tensor:
        """What the kernels read for each parent: matrices, or votes."""
        return self.u if self.weight is None else self.weight

    @property
    def children(self) -> int:
        return len(self.prior) // self.parents

    def shapes(self) -> list[tuple[int, ...]]:
        """Return the shapes of what `_forward` returns."""
        images, edges = self.u.shape[1], self.prior.shape
        s = self.parents, images, self.votes.shape[-1]
        lse = self.iterations - self.constant, edges[0] // self.parents, images
        return [s, s, tuple(edges) if self.coupling else (0,), (2, self.iterations - 1, *s), lse]

    def sizes(self, most: int = 64) -> Sizes:
        """Return the constants for tiles that have at most this many columns for linear votes."""
        linear, (_, images, width), dim = self.weight is not None, self.u.shape, self.votes.shape[-1]
        P, D = next_power_of_2(width if linear else 1), max(16 if linear else 1, next_power_of_2(dim))
        M, IT = min(64, max(16, next_power_of_2(images))), most // P
        if not linear:  # a grid has at most 65,535 tiles of images
            M, IT = min(64, next_power_of_2(min(images, max(4, images >> 15)))), 16
        while IT > 1 and IT * P > 16 and -(-self.children // IT) * -(-images // M) < PROGRAMS:
            IT //= 2
        precise = torch.get_float32_matmul_precision() == "highest"
        dot = "ieee" if torch.version.hip else "tf32x3" if precise else "tf32"  # AMD's compiler has no tf32x3
        return Sizes(M, IT, P, D, width, dim, linear, not self.constant, dot)

    def grid(self, S: Sizes) -> tuple[int, int]:
        """Return the numbers of tiles of children and of images."""
        return -(-self.children // S.IT), -(-self.u.shape[1] // S.M)

    def launch(self, kernel: Any, S: Sizes, **others: Any) -> None:
        """Launch `iterate` or `gradient`."""
        strides = *self.votes.stride()[:2], *self.prior.stride()
        sizes = self.children, self.parents, self.u.shape[1], *strides
        launch = partial(kernel[self.grid(S)], self.u, self.votes, self.prior, *sizes, S, **others)
        try:
            launch()
        except OutOfResources:  # by default, Triton keeps the numbers of several iterations in shared memory
            launch(num_stages=1)

    def finish(self, kernel: Any, S: Sizes, **tensors: Tensor | None) -> None:
        """Launch `finish` or `finish_back`."""
        rows = self.parents * self.u.shape[1]
        kernel[(-(-rows // kernels.ROWS.value),)](self.grid(S)[0], rows, S.DIM, S.D, **tensors)


def _call(tensors: list[Tensor], settings: list[int]) -> _Call:
    (u, _, prior), (weight, ratio, per_square) = tensors[:3], (or_none(tensors[at]) for at in (1, 3, 4))
    if weight is not None:
        u, weight = u.contiguous(), weight.contiguous()
    elif u.stride(-1) != 1 or torch.empty_like(u).stride() != u.stride():  # the votes' gradient will have this layout
        u = u.contiguous()
    ratio = None if ratio is None else ratio.contiguous()
    return _Call(u, weight, prior, ratio, per_square, settings[0], settings[1], *map(bool, settings[2:]))


def _forward(tensors: list[Tensor], settings: list[int]) -> list[Tensor]:
    """Return the last s and v (J, B, D) and c (E, B), which is empty unless wanted; and for the gradient:

    ``state`` (2, R - 1, J, B, D), the sums of all earlier iterations and the queries that `finish` made from them, and
    lse (R, I, B), without its first row if the prior is constant.
    """
    call = _call(tensors, settings)
    s, v, c, state, lse = new_results(tensors, call.shapes())
    S, ratio, last = call.sizes(), call.ratio, call.iterations - 1
    parts = s.new_empty(call.grid(S)[0], *s.shape)
    with torch.cuda.device_of(s):
        for r in range(call.iterations):
            w = state[1, r - 1] if r else None
            kept = lse[r - call.constant] if r >= call.constant else lse
            coupling = c if call.coupling and r == last else None
            call.launch(kernels.iterate, S, lse=kept, query=w, parts=parts, c=coupling)
            if r < last:
                query = {"s": state[0, r], "out": state[1, r], "before": w if ratio is None else None, "ratio": ratio}
            else:
                query = {"s": s, "out": v}
            call.finish(kernels.finish, S, parts=parts, **query)
    return [s, v, c, state, lse]


def _differentiate(
    grads: list[Tensor], saved: list[Tensor], settings: list[int], needed: list[bool]
) -> tuple[Tensor | None, ...]:
    """Return the gradients of u, weight, prior and ratio."""
    call, (s, state, lse), (ds, dv) = _call(saved[:5], settings), saved[5:], map(or_none, grads)
    S, ratio, weight, first = call.sizes(), call.ratio, call.weight, 0 if needed[2] else 1
    parts, slopes = s.new_empty(call.grid(S)[0], *s.shape), s.new_empty(call.iterations, *s.shape)
    mean, dw, dratio = torch.empty_like(lse), torch.zeros_like(s), None if ratio is None else torch.zeros_like(ratio)
    ds, dv = (x if x is None else x.contiguous() for x in (ds, dv))
    of_query = {"dw": dw} if ratio is None else {"ratio": ratio, "dratio": dratio}
    with torch.cuda.device_of(s):
        call.finish(kernels.finish_back, S, s=s, ds=slopes[-1], dw=dv, grad=ds)
        for r in reversed(range(first, call.iterations)):
            kept, arrays = r - call.constant, {"query": state[1, r - 1], "parts": parts} if r else {}
            call.launch(kernels.iterate, S, lse=lse[kept], ds=slopes[r], mean=mean[kept], **arrays)
            if r > 0:
                call.finish(kernels.finish_back, S, s=state[0, r - 1], ds=slopes[r - 1], parts=parts, **of_query)
        if weight is not None and weight.dtype == torch.float32 and S.DOT == "tf32x3":
            S = call.sizes(32)  # more columns would need more shared memory than a program has
        matrices = s.new_empty(0 if weight is None else (call.grid(S)[1], *weight.shape))
        du, dprior = torch.empty_like(call.u), s.new_empty(call.prior.shape) if needed[2] else None
        bend = None if call.per_square is None or dratio is None else (-dratio * call.per_square).contiguous()
        given = {"lse": lse, "queries": state[1], "ds": slopes, "mean": mean, "R": call.iterations, "bend": bend}
        call.launch(kernels.gradient, S, **given, du=du, dweight=matrices, dprior=dprior)
    if weight is None:
        return du, None, dprior, dratio, None
    dweight = matrices[0] if len(matrices) == 1 else matrices.sum(0)  # add up tiles of images
    return du, dweight.to(weight.dtype), dprior, dratio, None


route_on_complete = operator(
    "route_dense", _forward, lambda *inputs: _call(*inputs).shapes(), _differentiate, differentiable=2, by_triton=True
)
