"""The kernels as operators of torch, for ``torch.compile``, which can't trace Numba.

They run the autograd functions of `by_child` and `by_node`, whose modules describe the tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any, Literal

import torch
from torch import Tensor

from ....graph import Links, graph_of
from ...rule import Rule
from .by_child import EQUAL, ONE, SOFTMAX, Call, _Route, edges_by_child
from .by_node import RowsByNode, _SumsOfNodes, arguments

KINDS: tuple[Literal["capsules", "directions", "sums"], ...] = "capsules", "directions", "sums"


def _operator(name: str, run: Callable, shapes: Callable, differentiate: Callable) -> Any:
    """Define the operator ``name`` and its gradient.

    Args:
        run: from tensors and settings ``how`` to results: one with a gradient, the couplings, and what is kept.
        shapes: from the same arguments to the shapes of the results.
        differentiate: from the result's gradient, what is kept, the same arguments and a flag for each tensor,
            whether it needs a gradient, to the gradients of the tensors.
    """
    forward = torch.library.custom_op(
        f"graphcaps::{name}", run, mutates_args=(), schema="(Tensor[] tensors, int[] how) -> Tensor[]"
    )
    forward.register_fake(lambda tensors, how: [tensors[0].new_empty(shape) for shape in shapes(tensors, how)])

    def backward(
        grad: Tensor, kept: list[Tensor], tensors: list[Tensor], how: list[int], needed: list[bool]
    ) -> list[Tensor]:
        gradients = differentiate(grad, kept, tensors, how, needed)
        return [x if needs else grad.new_empty(0) for x, needs in zip(gradients, needed, strict=True)]

    schema = "(Tensor grad, Tensor[] kept, Tensor[] tensors, int[] how, bool[] needed) -> Tensor[]"
    backward = torch.library.custom_op(f"graphcaps::{name}_backward", backward, mutates_args=(), schema=schema)
    backward.register_fake(
        lambda grad, kept, tensors, how, needed: [
            grad.new_empty(x.shape if needs else 0) for x, needs in zip(tensors, needed, strict=True)
        ]
    )

    def save(ctx: Any, inputs: tuple, output: list[Tensor]) -> None:
        tensors, ctx.how = inputs
        ctx.needed = [x.requires_grad for x in tensors]
        ctx.save_for_backward(*output[2:], *tensors)
        ctx.mark_non_differentiable(*output[1:])

    def gradients(ctx: Any, grads: list[Tensor]) -> tuple[list[Tensor | None], None]:
        count = len(ctx.saved_tensors) - len(ctx.needed)
        kept, tensors = list(ctx.saved_tensors[:count]), ctx.saved_tensors[count:]
        found = backward(grads[0], kept, tensors, ctx.how, ctx.needed)
        return [x if needs else None for x, needs in zip(found, ctx.needed, strict=True)], None

    forward.register_autograd(gradients, setup_context=save)
    return forward


def _or_none(*tensors: Tensor) -> list[Tensor | None]:
    """Return None for each empty tensor; only a list without None has gradients."""
    return [x if x.numel() else None for x in tensors]


def _run(function: Any, needed: Sequence[bool], *given: Any) -> tuple[Sequence[Tensor], list[Tensor]]:
    """Return the results of an autograd function, and the tensors that it saves."""
    saved: list[Tensor] = []
    ignore = dict.fromkeys(("mark_non_differentiable", "set_materialize_grads"), lambda *_: None)
    ctx = SimpleNamespace(needs_input_grad=needed, save_for_backward=lambda *tensors: saved.extend(tensors), **ignore)
    return function.forward(ctx, *given), saved


def _route(tensors: list[Tensor], how: list[int]) -> list[Tensor]:
    u, weight, (prior, ratio, index) = *tensors[:2], _or_none(*tensors[2:])
    iterations, kind, coupling, learning, _, *sizes = how
    edges = edges_by_child(graph_of(tuple(sizes)))
    call = Call(edges, Rule(iterations, KINDS[kind]), (), None, bool(coupling), bool(learning))
    logits = u.new_zeros(()).expand(len(edges.eid), u.shape[1]) if prior is None else prior
    results, saved = _run(_Route, (True, True, prior is not None), u, weight, logits, ratio, None, index, call)
    return [*results, *(saved[-2:] if learning else (u.new_empty(0), u.new_empty(0)))]


def _shapes_of_route(tensors: list[Tensor], how: list[int]) -> list[tuple]:
    u, weight, _, _, index = tensors
    iterations, _, coupling, learning, num_parents, *_ = how
    num_edges, s = (index if index.shape[0] else weight).shape[0], (num_parents, u.shape[1], weight.shape[-1])
    return [s, (num_edges, u.shape[1]) if coupling else (0,), *[(iterations, *s) if learning else (0,)] * 2]


def _differentiate_route(
    grad: Tensor, kept: list[Tensor], tensors: list[Tensor], how: list[int], needed: list[bool]
) -> Any:
    u, weight, (prior, ratio, index) = *tensors[:2], _or_none(*tensors[2:])
    iterations, kind, _, _, _, *sizes = how
    edges, nothing = edges_by_child(graph_of(tuple(sizes))), u.new_empty(0)
    ctx = SimpleNamespace(needs_input_grad=needed, reading=None)
    ctx.call = Call(edges, Rule(iterations, KINDS[kind]), (), None, False, True)
    ctx.mode = ONE if KINDS[kind] == "sums" else EQUAL if prior is None else SOFTMAX
    by_child = nothing if prior is None else edges.by_child(prior)
    ctx.saved_tensors = u.contiguous(), weight, by_child, ratio, None, index, nothing, *kept
    return (*_Route.backward(ctx, grad, None)[:4], None)


_route_by_child = _operator("route_by_child", _route, _shapes_of_route, _differentiate_route)


def route_by_child(
    u: Tensor,
    weight: Tensor,
    prior: Tensor,
    ratio: Tensor | None,
    index: Tensor | None,
    graph: Links,
    rule: Rule,
    coupling: bool,
    learning: bool,
) -> list[Tensor]:
    """Do what `by_child._Route` does, for the graph of a layer. A prior without strides doesn't change the softmax."""
    optional = prior if any(prior.stride()) else None, ratio, index
    tensors = [u, weight, *(u.new_empty(0) if x is None else x for x in optional)]
    how = [rule.iterations, KINDS.index(rule.kind), coupling, learning, graph.num_parents, *graph.origin]
    return _route_by_child(tensors, [*map(int, how)])[:2]


def _rows(tensors: list[Tensor], per_edge: int) -> RowsByNode:
    indptr, source, eid, reverse = tensors[3:]
    return RowsByNode(indptr, source, eid, reverse, bool(per_edge), max(1, int(indptr.diff().max())))


def _sum_nodes(tensors: list[Tensor], how: list[int]) -> list[Tensor]:
    per_edge, *settings = how
    z, scale, kappa = tensors[0], *_or_none(tensors[1]), tensors[2]
    results, saved = _run(_SumsOfNodes, (), z, scale, kappa, _rows(tensors, per_edge), arguments(*settings))
    return [*results, *saved[3:]]


def _shapes_of_sums(tensors: list[Tensor], how: list[int]) -> list[tuple]:
    _, iterations, _, mutual, get_coupling, learning = how
    (num_nodes, caps), num_rows, dims = tensors[2].shape, tensors[4].shape[0], tensors[0].shape[2:]
    nodes, rows = (num_nodes, num_rows) if mutual else (0, 0)
    kept = *[(nodes, iterations, *dims)] * 2, *[(nodes, caps)] * 2, (iterations, rows if learning else 0, caps)
    return [(num_nodes, *dims), (num_rows if get_coupling else 0, caps), *kept]


def _differentiate_sums(
    grad: Tensor, kept: list[Tensor], tensors: list[Tensor], how: list[int], needed: list[bool]
) -> Any:
    per_edge, *settings = how
    ctx = SimpleNamespace(needs_input_grad=needed, saved_tensors=(tensors[0], *_or_none(tensors[1]), tensors[2], *kept))
    ctx.settings = _rows(tensors, per_edge), arguments(*settings)
    return (*_SumsOfNodes.backward(ctx, grad)[:3], *[None] * 4)


_route_by_node = _operator("route_by_node", _sum_nodes, _shapes_of_sums, _differentiate_sums)


def route_by_node(z: Tensor, scale: Tensor | None, kappa: Tensor, rows: list[Tensor], *how: int) -> list[Tensor]:
    """Do what `by_node._SumsOfNodes` does, for the tensors of `RowsByNode`."""
    return _route_by_node([z, z.new_empty(0) if scale is None else scale, kappa, *rows], [*map(int, how)])[:2]
