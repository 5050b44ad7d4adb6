"""Routing by a rule on complete graphs on a GPU: two torch operators, forward and backward, and their kernel launches.

Nothing here waits for the GPU, and calls of the same shapes launch the same kernels, so CUDA graphs can capture them.
Sizes of tiles depend on nothing but shapes and precision, so that results repeat.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from ...base import Parents
from ...rule import Rule, kappa_over_rho, squared_lengths_on_complete
from ...second_derivative import refuse
from ...votes import LinearVotes, Votes
from . import kernels_dense as kernels

PROGRAMS = 256  # tiles get smaller until there are this many, as many as keep a large GPU busy


def route_dense(
    votes: Votes, rule: Rule, prior: Tensor, sizes: tuple[int, int], coupling: bool, half: torch.dtype | None = None
) -> Parents:
    """Route given or linear votes on a complete graph of ``sizes`` (I, J). The result is in float32.

    ``prior`` (E, *) is in float32. ``half``: the dtype to which float32 votes are rounded before they are multiplied.
    """
    u, weight = votes.u.reshape(len(votes.u), -1, votes.u.shape[-1]), None  # (I, B, P), or (E, B, D)
    if isinstance(votes, LinearVotes):
        u, weight = u.contiguous(), votes.weight.contiguous()
        if weight.dim() < 4:
            weight = weight.unflatten(0, sizes) if weight.dim() == 3 else weight.expand(1, sizes[1], -1, -1)
    ratio = bend = None
    if rule.kappa is not None and rule.iterations > 1:
        if weight is not None:
            squares = squared_lengths_on_complete(u.to(prior.dtype), weight.to(prior.dtype))
        else:
            lengths = torch.linalg.vector_norm(u.detach(), dim=-1, dtype=prior.dtype)
            squares = lengths.square().unflatten(0, sizes).sum(0)
        ratio = kappa_over_rho(squares, torch.full_like(squares, sizes[0]), rule.kappa)
        if weight is None:  # the kernels add dratio bend u_hat to the votes' gradient
            bend = torch.where(squares > 0, -ratio.detach() / squares, 0)
    if half is not None and u.dtype == torch.float32:
        u, weight = u.to(half), None if weight is None else weight.to(half)
    constant = not any(prior.stride()) and not (torch.is_grad_enabled() and prior.requires_grad)
    given = u, weight, prior.reshape(len(prior), -1), ratio, bend, sizes[1], rule.iterations, constant, coupling
    s, v, c, *_ = forward(*given)
    s, v = (x.reshape(sizes[1], *votes.trailing, x.shape[-1]) for x in (s, v))
    return Parents(s, v, torch.linalg.vector_norm(v, dim=-1), c.reshape(prior.shape) if coupling else None)


class _Call(NamedTuple):
    """The arguments of the operators, and what follows from them."""

    u: Tensor  # children (I, B, P), or without a weight the votes (E, B, D)
    weight: Tensor | None  # (T, J, P, D)
    prior: Tensor  # (E, B)
    ratio: Tensor | None  # (J, B), kappa / rho in spherical routing
    bend: Tensor | None  # (J, B), -ratio / sum of |u_hat|^2 in spherical routing of given votes
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

    def results(self) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        """Allocate what `forward` returns."""
        new, images, dim = self.prior.new_empty, self.u.shape[1], self.votes.shape[-1]
        s, v, state = (new(*lead, self.parents, images, dim) for lead in ((), (), (2, self.iterations - 1)))
        c = new(self.prior.shape if self.coupling else 0)
        return s, v, c, state, new(self.iterations - self.constant, self.children, images)

    def gradients(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Allocate what `backward` returns."""
        dweight = self.u.new_empty(0 if self.weight is None else self.weight.shape)
        shapes = 0 if self.constant else self.prior.shape, 0 if self.ratio is None else self.ratio.shape
        dprior, dratio = (self.prior.new_empty(shape) for shape in shapes)
        du = torch.empty_like(self.u) if self.weight is None else self.u.new_empty(self.u.shape)
        return du, dweight, dprior, dratio

    def dot(self) -> str:
        """Return how Triton multiplies matrices of float32: with float32's or with TensorFloat-32's precision."""
        return "tf32x3" if torch.get_float32_matmul_precision() == "highest" else "tf32"

    def tile(self, most: int = 64) -> dict[str, Any]:
        """Return the sizes of a tile, which has at most this many columns for linear votes."""
        linear, (_, images, width) = self.weight is not None, self.u.shape
        P, D = _power_of_two(width if linear else 1), _power_of_two(self.votes.shape[-1], 16 if linear else 1)
        M, IT = _power_of_two(images, 16), most // P
        if not linear:  # a grid has at most 65,535 tiles of images
            M, IT = _power_of_two(min(images, max(4, images >> 15))), 16
        while IT > 1 and IT * P > 16 and -(-self.children // IT) * -(-images // M) < PROGRAMS:
            IT //= 2
        return {"M": M, "IT": IT, "P": P, "D": D}

    def grid(self, tile: dict[str, Any]) -> tuple[int, int]:
        """Return the numbers of tiles of children and of images."""
        return -(-self.children // tile["IT"]), -(-self.u.shape[1] // tile["M"])

    def launch(self, kernel: Any, tile: dict[str, Any], *tensors: Tensor, **flags: Any) -> None:
        """Launch `iterate` or `gradient`."""
        group = 1 if self.weight is None else self.children // len(self.weight)
        strides = *self.votes.stride()[:2], *self.prior.stride()
        sizes = self.children, self.parents, self.u.shape[1], group, *strides
        flags |= {"PRIOR": not self.constant, "LINEAR": self.weight is not None, "DOT": self.dot(), "num_warps": 4}
        dims = {"CHILD_DIM": self.u.shape[-1], "DIM": self.votes.shape[-1]}
        kernel[self.grid(tile)](self.u, self.votes, self.prior, *tensors, *sizes, **flags, **tile, **dims)

    def finish(self, kernel: Any, tile: dict[str, Any], *tensors: Tensor | None, **flags: bool) -> None:
        """Launch `finish` or `finish_back`. None stands for a tensor that isn't read."""
        rows, dim = self.parents * self.u.shape[1], self.votes.shape[-1]
        given = (self.u if x is None else x for x in tensors)
        kernel[(-(-rows // 8),)](*given, self.grid(tile)[0], rows, dim, **flags, M=8, TILES=8, D=tile["D"])


def _power_of_two(number: int, least: int = 1, most: int = 64) -> int:
    """Return the least power of two that is at least ``number``, within these bounds."""
    return min(most, max(least, 1 << (number - 1).bit_length()))


def _laid_out(u: Tensor, weight: Tensor | None, prior: Tensor, ratio: Tensor | None, *others: Any) -> _Call:
    """Return the call with its tensors in the layouts that the kernels expect; u has that of its gradient."""
    call = _Call(u, weight, prior, None if ratio is None else ratio.contiguous(), *others)
    du = call.gradients()[0]
    return call if du.stride() == u.stride() else call._replace(u=du.copy_(u))


INPUTS = "Tensor u, Tensor? weight, Tensor prior, Tensor? ratio, Tensor? bend, int parents, int iterations, "
INPUTS += "bool constant, bool coupling"


@torch.library.custom_op(
    "graphcaps::route_dense", mutates_args=(), schema=f"({INPUTS}) -> (Tensor, Tensor, Tensor, Tensor, Tensor)"
)
def forward(*inputs: Any) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Return the last s and v (J, B, D) and c (E, B), which is empty unless wanted; and for the gradient:

    ``state`` (2, R - 1, J, B, D), the sums of all earlier iterations and the queries that `finish` made from them, and
    lse (R, I, B), without its first row if the prior is constant.
    """
    call = _laid_out(*inputs)
    s, v, c, state, lse = call.results()
    tile, first, last = call.tile(), call.constant, call.iterations - 1
    parts = s.new_empty(call.grid(tile)[0], *s.shape)
    with torch.cuda.device_of(s):
        for r in range(call.iterations):
            before, kept = state[1, r - 1] if r else s, lse[r - first] if r >= first else lse
            flags = {"QUERY": r > 0, "BACK": False, "SUMS": True, "COUPLING": call.coupling and r == last}
            call.launch(kernels.iterate, tile, before, s, kept, lse, c, parts, **flags)
            directions = call.ratio is not None and r < last
            results = (s, v) if r == last else (state[0, r], state[1, r])
            flags = {"DIRECTIONS": directions, "ADD": 0 < r < last and not directions}
            call.finish(kernels.finish, tile, parts, *results, before, call.ratio, **flags)
    return s, v, c, state, lse


@torch.library.custom_op(
    "graphcaps::route_dense_backward",
    mutates_args=(),
    schema=f"(Tensor? ds, Tensor? dv, Tensor s, Tensor state, Tensor lse, {INPUTS})"
    " -> (Tensor, Tensor, Tensor, Tensor)",
)
def backward(ds, dv, s, state, lse, *inputs):
    """Return the gradients of u, weight, prior and ratio; those that don't exist are empty."""
    call = _laid_out(*inputs)
    du, dweight, dprior, dratio = call.gradients()
    tile, first, last, weight, bend = call.tile(), call.constant, call.iterations - 1, call.weight, call.bend
    parts, slopes = s.new_empty(call.grid(tile)[0], *s.shape), s.new_empty(call.iterations, *s.shape)
    mean, dw = torch.empty_like(lse), torch.empty_like(s)
    ds, dv = (x if x is None else x.contiguous() for x in (ds, dv))
    with torch.cuda.device_of(s):
        flags = {"PARTS": False, "ADD": dv is not None, "GRAD": ds is not None, "DIRECTIONS": False}
        call.finish(kernels.finish_back, tile, None, s, None, dv, None, ds, slopes[last], **flags)
        for r in reversed(range(first, call.iterations)):
            flags = {"QUERY": r > 0, "BACK": True, "SUMS": r > 0, "COUPLING": False}
            before = state[1, r - 1] if r else s
            call.launch(kernels.iterate, tile, before, slopes[r], lse[r - first], mean[r - first], s, parts, **flags)
            if r > 0:
                flags = {"PARTS": True, "ADD": r < last, "GRAD": False, "DIRECTIONS": call.ratio is not None}
                of_query = call.ratio, dw, dratio, None, slopes[r - 1]
                call.finish(kernels.finish_back, tile, parts, state[0, r - 1], *of_query, **flags)
        exact = weight is not None and weight.dtype == torch.float32 and call.dot() == "tf32x3"
        tile = call.tile(32 if exact else 64)  # more columns would need more shared memory than a program has
        matrices = s.new_empty(0 if weight is None else (call.grid(tile)[1], call.children, *weight.shape[1:]))
        bent = s if bend is None else (bend * dratio).contiguous()
        how: dict[str, Any] = {"R": call.iterations, "BEND": bend is not None, "DPRIOR": not first}
        call.launch(kernels.gradient, tile, state[1], slopes, lse, mean, bent, du, matrices, dprior, **how)
    if weight is not None:  # add up tiles of images, and children of one type
        matrices = matrices.unflatten(1, (len(weight), -1))
        alone = matrices.shape[0] == matrices.shape[2] == 1
        dweight = (matrices[0, :, 0] if alone else matrices.sum((0, 2))).to(weight.dtype)
    return du, dweight, dprior, dratio


def _save(ctx: Any, inputs: tuple, output: tuple) -> None:
    s, _, c, state, lse = output
    ctx.save_for_backward(s, state, lse, *inputs[:5])
    ctx.numbers = inputs[5:]
    ctx.mark_non_differentiable(c, state, lse)
    ctx.set_materialize_grads(False)


def _backward(ctx: Any, ds: Tensor | None, dv: Tensor | None, *_: None) -> tuple[Tensor | None, ...]:
    if ds is None and dv is None:
        return (None,) * 9
    gradients = backward(ds, dv, *ctx.saved_tensors, *ctx.numbers)
    return *(x if needed else None for x, needed in zip(gradients, ctx.needs_input_grad, strict=False)), *[None] * 5


forward.register_fake(lambda *inputs: _Call(*inputs).results())
forward.register_autograd(_backward, setup_context=_save)
backward.register_fake(lambda ds, dv, s, state, lse, *inputs: _Call(*inputs).gradients())
backward.register_autograd(refuse)
