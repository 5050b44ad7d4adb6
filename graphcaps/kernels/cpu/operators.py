"""The kernels as operators of torch, for ``torch.compile``, which can't trace Numba.

They run the autograd functions of `by_child` and `by_node`, whose modules describe the tensors.
"""

from types import SimpleNamespace
from typing import Any, Literal

from torch import Tensor
from torch.autograd.function import FunctionCtx

from ...algorithms.rule import Rule
from ...graph import graph_of
from ..operators import operator, or_none
from .by_child import EQUAL, ONE, SOFTMAX, Call, _Route, edges_by_child
from .by_node import RowsByNode, _SumsOfNodes, arguments

KINDS: tuple[Literal["capsules", "directions", "sums"], ...] = "capsules", "directions", "sums"


def _call(how: list[int]) -> Call:
    iterations, kind, coupling, learning, _, *sizes = how
    rule = Rule(iterations, KINDS[kind])
    return Call(edges_by_child(graph_of(tuple(sizes))), rule, (), None, bool(coupling), bool(learning))


def _route(tensors: list[Tensor], how: list[int]) -> list[Tensor]:
    u, weight, (prior, ratio, index), call = *tensors[:2], map(or_none, tensors[2:]), _call(how)
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


def _differentiate_route(grads: list[Tensor], saved: list[Tensor], how: list[int], needed: list[bool]) -> tuple:
    u, weight, (prior, ratio, index), call = *saved[:2], map(or_none, saved[2:5]), _call(how)
    nothing = u.new_empty(0)
    ctx = SimpleNamespace(call=call, needs_input_grad=needed, reading=None)
    ctx.mode = ONE if call.rule.kind == "sums" else EQUAL if prior is None else SOFTMAX
    by_child = nothing if prior is None else call.edges.by_child(prior)
    ctx.saved_tensors = u.contiguous(), weight, by_child, ratio, None, index, nothing, *saved[6:]
    return _Route.backward(ctx, grads[0], None)


def _rows(tensors: list[Tensor], per_edge: int) -> RowsByNode:
    indptr, source, eid, reverse = tensors[4:8]
    return RowsByNode(indptr, source, eid, reverse, bool(per_edge), max(1, int(indptr.diff().max())))


def _sum_nodes(tensors: list[Tensor], how: list[int]) -> list[Tensor]:
    (z, scale, prior, kappa, *_), (per_edge, *settings) = tensors, how
    ctx: Any = FunctionCtx()
    given = z, or_none(scale), or_none(prior), kappa, _rows(tensors, per_edge), arguments(*settings)
    return [*_SumsOfNodes.forward(ctx, *given), *ctx.to_save[4:]]


def _shapes_of_sums(tensors: list[Tensor], how: list[int]) -> list[tuple]:
    _, iterations, _, mutual, get_coupling, learning = how
    (num_nodes, caps), num_rows = tensors[3].shape, tensors[5].shape[0]
    dims = caps, tensors[0].shape[3]
    nodes, rows = (num_nodes, num_rows) if mutual else (0, 0)
    kept = *[(nodes, iterations, *dims)] * 2, *[(nodes, caps)] * 2, (iterations, rows if learning else 0, caps)
    return [(num_nodes, *dims), (num_rows if get_coupling else 0, caps), *kept]


def _differentiate_sums(grads: list[Tensor], saved: list[Tensor], how: list[int], needed: list[bool]) -> tuple:
    (z, scale, prior, kappa, *_), (per_edge, *settings) = saved, how
    kept = z, or_none(scale), or_none(prior), kappa, *saved[9:]
    ctx = SimpleNamespace(needs_input_grad=needed, saved_tensors=kept)
    ctx.settings = _rows(saved, per_edge), arguments(*settings)
    return _SumsOfNodes.backward(ctx, grads[0])


route_by_child = operator("by_child", _route, _shapes_of_route, _differentiate_route)
route_by_node = operator("by_node", _sum_nodes, _shapes_of_sums, _differentiate_sums)
