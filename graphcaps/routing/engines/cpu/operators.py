"""The kernels as operators of torch, for ``torch.compile``, which can't trace Numba.

They run the autograd functions of `by_child` and `by_node`, whose modules describe the tensors.
"""

from collections.abc import Callable, Sequence
from itertools import compress
from types import SimpleNamespace
from typing import Any, Literal

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx

from ....graph import graph_of
from ...rule import Rule
from .by_child import EQUAL, ONE, SOFTMAX, Call, _Route, edges_by_child
from .by_node import RowsByNode, _SumsOfNodes, arguments

KINDS: tuple[Literal["capsules", "directions", "sums"], ...] = "capsules", "directions", "sums"


def _operator(name: str, run: Callable, shapes: Callable, differentiate: Callable) -> Callable[..., list[Tensor]]:
    """Define the operator ``name`` and its gradient. Return a function of tensors and settings to the two results.

    Args:
        run: from tensors and settings ``how`` to results: one with a gradient, the couplings, and what is kept.
        shapes: from the same arguments to the shapes of the results.
        differentiate: from the result's gradient, the tensors and what is kept, ``how`` and a flag for each tensor,
            whether it needs a gradient, to the gradients of the tensors.
    """
    forward = torch.library.custom_op(
        f"graphcaps::{name}", run, mutates_args=(), schema="(Tensor[] tensors, int[] how) -> Tensor[]"
    )
    forward.register_fake(lambda tensors, how: [tensors[0].new_empty(shape) for shape in shapes(tensors, how)])

    def differentiate_some(grad: Tensor, saved: list[Tensor], how: list[int], needed: list[bool]) -> list[Tensor]:
        return list(compress(differentiate(grad, saved, how, needed), needed))

    schema = "(Tensor grad, Tensor[] saved, int[] how, bool[] needed) -> Tensor[]"
    backward = torch.library.custom_op(
        f"graphcaps::{name}_backward", differentiate_some, mutates_args=(), schema=schema
    )
    backward.register_fake(lambda grad, saved, how, needed: [x.new_empty(x.shape) for x in compress(saved, needed)])

    def save(ctx: Any, inputs: tuple, output: list[Tensor]) -> None:
        tensors, ctx.how = inputs
        ctx.needed = [x.requires_grad for x in tensors]
        ctx.save_for_backward(*tensors, *output[2:])
        ctx.mark_non_differentiable(*output[1:])

    def gradients(ctx: Any, grads: list[Tensor]) -> tuple[list[Tensor | None], None]:
        found = iter(backward(grads[0], list(ctx.saved_tensors), ctx.how, ctx.needed))
        return [next(found) if needs else None for needs in ctx.needed], None

    forward.register_autograd(gradients, setup_context=save)

    def call(first: Tensor, *others: Tensor | None, how: Sequence[int]) -> list[Tensor]:
        tensors = [first, *(first.new_empty(0) if x is None else x for x in others)]
        return forward(tensors, [*map(int, how)])[:2]

    return call


def _or_none(x: Tensor) -> Tensor | None:
    """Return None for an empty tensor, which stands for None, because a list with None has no gradients."""
    return x if x.numel() else None


def _call(how: list[int]) -> Call:
    iterations, kind, coupling, learning, _, *sizes = how
    rule = Rule(iterations, KINDS[kind])
    return Call(edges_by_child(graph_of(tuple(sizes))), rule, (), None, bool(coupling), bool(learning))


def _route(tensors: list[Tensor], how: list[int]) -> list[Tensor]:
    u, weight, (prior, ratio, index), call = *tensors[:2], map(_or_none, tensors[2:]), _call(how)
    ctx: Any = FunctionCtx()
    ctx.needs_input_grad = True, True, prior is not None
    logits = u.new_zeros(()).expand(len(call.edges.eid), u.shape[1]) if prior is None else prior
    results = _Route.forward(ctx, u, weight, logits, ratio, None, index, call)
    return [*results, *(ctx.to_save[-2:] if call.learning else (u.new_empty(0), u.new_empty(0)))]


def _shapes_of_route(tensors: list[Tensor], how: list[int]) -> list[tuple]:
    u, weight, _, _, index = tensors
    iterations, _, coupling, learning, num_parents, *_ = how
    num_edges, s = (index if index.shape[0] else weight).shape[0], (num_parents, u.shape[1], weight.shape[-1])
    return [s, (num_edges, u.shape[1]) if coupling else (0,), *[(iterations, *s) if learning else (0,)] * 2]


def _differentiate_route(grad: Tensor, saved: list[Tensor], how: list[int], needed: list[bool]) -> tuple:
    u, weight, (prior, ratio, index), call = *saved[:2], map(_or_none, saved[2:5]), _call(how)
    nothing = u.new_empty(0)
    ctx = SimpleNamespace(call=call, needs_input_grad=needed, reading=None)
    ctx.mode = ONE if call.rule.kind == "sums" else EQUAL if prior is None else SOFTMAX
    by_child = nothing if prior is None else call.edges.by_child(prior)
    ctx.saved_tensors = u.contiguous(), weight, by_child, ratio, None, index, nothing, *saved[5:]
    return _Route.backward(ctx, grad, None)


def _rows(tensors: list[Tensor], per_edge: int) -> RowsByNode:
    indptr, source, eid, reverse = tensors[4:8]
    return RowsByNode(indptr, source, eid, reverse, bool(per_edge), max(1, int(indptr.diff().max())))


def _sum_nodes(tensors: list[Tensor], how: list[int]) -> list[Tensor]:
    (z, scale, prior, kappa, *_), (per_edge, *settings) = tensors, how
    ctx: Any = FunctionCtx()
    given = z, _or_none(scale), _or_none(prior), kappa, _rows(tensors, per_edge), arguments(*settings)
    return [*_SumsOfNodes.forward(ctx, *given), *ctx.to_save[4:]]


def _shapes_of_sums(tensors: list[Tensor], how: list[int]) -> list[tuple]:
    _, iterations, _, mutual, get_coupling, learning = how
    (num_nodes, caps), num_rows = tensors[3].shape, tensors[5].shape[0]
    dims = caps, tensors[0].shape[3]
    nodes, rows = (num_nodes, num_rows) if mutual else (0, 0)
    kept = *[(nodes, iterations, *dims)] * 2, *[(nodes, caps)] * 2, (iterations, rows if learning else 0, caps)
    return [(num_nodes, *dims), (num_rows if get_coupling else 0, caps), *kept]


def _differentiate_sums(grad: Tensor, saved: list[Tensor], how: list[int], needed: list[bool]) -> tuple:
    (z, scale, prior, kappa, *_), (per_edge, *settings) = saved, how
    kept = z, _or_none(scale), _or_none(prior), kappa, *saved[8:]
    ctx = SimpleNamespace(needs_input_grad=needed, saved_tensors=kept)
    ctx.settings = _rows(saved, per_edge), arguments(*settings)
    return _SumsOfNodes.backward(ctx, grad)


route_by_child = _operator("by_child", _route, _shapes_of_route, _differentiate_route)
route_by_node = _operator("by_node", _sum_nodes, _shapes_of_sums, _differentiate_sums)
