"""Routing of nodes whose couplings depend on each other.

    b_e = <u_hat_e, w_v> + <u_hat_e', w_u>        of e = (u, v) and its reverse e' = (v, u), where logits are mutual
    c   = softmax of <u_hat, w> over all edges and capsules of a source, where neighbours compete

Everything else is as in `nodes`. In each iteration the nodes are passed once: what is kept of an edge are K products, K
couplings and, for the gradient, K of db per iteration, never its votes.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ...._dgl import DGLGraph
from ....graph import cached_per_structure, reverse_edges
from ...second_derivative import once_differentiable
from . import kernels_mutual
from .memory import empty, zeros
from .nodes import RowsByNode, route_nodes, rows_by_node, rows_of
from .passes import run_on_threads, sum_of


@cached_per_structure
def reverse_rows(graph: DGLGraph) -> Tensor:
    """(E,) of each row of ``rows_by_node``, with one capsule per source, the row of the reverse edge."""
    eid = rows_by_node(graph, 1, False).eid
    row = torch.empty_like(eid)
    row[eid.long()] = torch.arange(len(eid), dtype=eid.dtype)
    return row[reverse_edges(graph)[eid.long()]]


def route_mutually(
    graph: DGLGraph,
    u_hat: Tensor,
    scale: Tensor | None,
    kappa: Tensor | None,
    iterations: int,
    get_coupling: bool,
    own: bool = False,
    neighbours: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """``nodes.route_nodes`` where ``neighbours`` compete, or each edge has a reverse and K_in is 1."""
    learning = torch.is_grad_enabled()

    def apply(*given: Any) -> tuple[Tensor, Tensor | None]:
        return _RouteMutually.apply(*given, neighbours, learning)

    return route_nodes(graph, u_hat, scale, kappa, iterations, get_coupling, own, apply)


class _RouteMutually(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        u_hat: Tensor,
        scale: Tensor | None,
        kappa: Tensor,
        graph: DGLGraph,
        iterations: int,
        adds: bool,
        get_coupling: bool,
        own: bool,
        neighbours: bool,
        learning: bool,
    ) -> tuple[Tensor, Tensor | None]:
        by_node = rows_by_node(graph, u_hat.shape[1], own)
        reverse = by_node.source.new_empty(0) if neighbours else reverse_rows(graph)
        num_rows, num_nodes, caps, dim = len(by_node.source), graph.num_dst_nodes(), *u_hat.shape[2:]
        s, w = (empty((num_nodes, iterations, caps, dim), u_hat) for _ in range(2))
        squares, length = (u_hat.new_zeros(num_nodes, caps) for _ in range(2))
        c = empty((iterations, num_rows if learning or get_coupling or neighbours else 0, caps), u_hat)
        products = empty((2, num_rows, caps), u_hat)
        given = {"rows": rows_of(by_node, u_hat, scale), "reverse": reverse, "kappa": kappa.contiguous()}
        sums = {"s": s, "w": w, "squares": squares, "length": length}
        ranges = by_node.ranges(torch.get_num_threads())
        for r in range(iterations):
            if neighbours:
                c[r] = _softmax_by_child(products[r % 2] if r else torch.zeros_like(c[0]), by_node)
            between = {"shared": products[r % 2], "c": c[r], "after": products[1 - r % 2]}
            run_on_threads(
                kernels_mutual.iterate, ranges, **given, r=r, iterations=iterations, adds=adds, **sums, **between
            )
        coupling = u_hat.new_full((num_rows if get_coupling else 0, caps), 1 / caps)
        if get_coupling and (iterations > 1 or neighbours):
            coupling[by_node.eid.long()] = c[-1]
        coupling = coupling.view(-1, u_hat.shape[1], caps)
        if learning:
            ctx.save_for_backward(u_hat, scale, s, w, squares, length, c)
            ctx.how = by_node, reverse, iterations, adds
        ctx.mark_non_differentiable(coupling)
        return s[:, -1].clone(), coupling if get_coupling else None

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, *of_coupling: Tensor | None) -> tuple[Tensor | None, ...]:
        u_hat, scale, s, w, squares, length, c = ctx.saved_tensors
        by_node, reverse, iterations, adds = ctx.how
        ds, dlength = empty(s.shape, s), torch.zeros_like(length)
        dw = zeros((len(s) if adds else 0, *s.shape[2:]), s)
        ds[:, -1] = grad
        db = empty(c.shape, c)
        given = {"rows": rows_of(by_node, u_hat, scale), "reverse": reverse, "iterations": iterations, "adds": adds}
        sums = {"s": s, "length": length, "ds": ds, "dw": dw, "dlength": dlength}
        ranges = by_node.ranges(torch.get_num_threads())
        for r in reversed(range(1, iterations)):
            between = {"r": r, "c": c[r], "db": db[r], "db_above": db[min(r + 1, iterations - 1)]}
            run_on_threads(kernels_mutual.iterate_backward, ranges, **given, **sums, **between)
            if len(reverse) == 0:
                change = c[r] * db[r]  # c dc
                torch.addcmul(change, c[r], _sum_by_child(change, by_node), value=-1, out=db[r])
        ranges, du, parts = by_node.ranges_and_sums(u_hat)
        dkappa, wants_scale = torch.zeros_like(length), ctx.needs_input_grad[1]
        dscale = torch.empty_like(scale, memory_format=torch.contiguous_format) if wants_scale else u_hat.new_empty(0)
        kept = {"w": w, "squares": squares, "c": c, "db": db}
        found = {"du": parts, "dkappa": dkappa, "dscale": dscale}
        run_on_threads(kernels_mutual.gradient, ranges, **given, **sums, **kept, **found)
        return sum_of(du), dscale if wants_scale else None, dkappa, *[None] * 7


def _softmax_by_child(b: Tensor, by_node: RowsByNode) -> Tensor:
    """(rows, K): the softmax of b (rows, K) over all rows and capsules of a child."""
    top = b.new_full((by_node.num_children,), -torch.inf)
    top = top.scatter_reduce(0, by_node.child, b.amax(dim=1), "amax").index_select(0, by_node.child)
    raised = (b - top.unsqueeze(1)).exp_()
    return raised.div_(_sum_by_child(raised, by_node))


def _sum_by_child(x: Tensor, by_node: RowsByNode) -> Tensor:
    """(rows, 1): for each row, the sum of x (rows, K) over all rows and capsules of its child."""
    total = x.new_zeros(by_node.num_children).index_add(0, by_node.child, x.sum(dim=1))
    return total.index_select(0, by_node.child).unsqueeze(1)
