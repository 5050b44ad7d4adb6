"""Routing among the capsules of each node, on the CPU.

    u_hat_ekl = scale_ekl z_ukl            the vote of capsule k of edge e = (u, v)'s source for capsule l of v
    c_ek      = softmax over l of b_ek
    s_vl      = sum over e and k of c_ekl u_hat_ekl
    b_ekl     = <u_hat_ekl, w_vl>          w = kappa / rho s / |s| (spherical), or the sum of all v so far (dynamic)

The other engines compute this on ``graphcaps.graph.expand(graph, K_in, K_out, "capsules")``, and need the votes of all
edges (E, K_in, K_out, D). Here these are never made.

Without ``mutual``, one pass over the nodes runs all iterations, and another computes the gradient. With it, an edge
adds its reverse's products to its logits, so each iteration needs a pass. Between passes, an edge keeps K products and,
for the gradient, K couplings and K gradients of logits per iteration.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ...._dgl import DGLGraph
from ....graph import cached_per_structure, links, reverse_edges
from ...second_derivative import once_differentiable
from . import kernels_mutual, kernels_nodes
from .memory import empty, zeros
from .passes import MAX_SUMS, equal_ranges, flat, run_on_threads, sum_of


class Rows(NamedTuple):
    """The kernels' argument for the rows. A row is one capsule of an edge's source; rows are sorted by destination.

    For fields in capitals, only the length matters; it is known when a kernel is compiled.
    """

    indptr: np.ndarray  # (N_dst + 1,): the rows of node v are indptr[v]:indptr[v + 1]
    source: np.ndarray  # (rows,): the place of the row's votes in u_hat, u * K_in + k, or e * K_in + k with per_edge
    eid: np.ndarray  # (rows,): the row's place in the graph's edge order, e * K_in + k
    reverse: np.ndarray  # (rows,): the row of the reverse edge; or empty
    u_hat: np.ndarray  # z: (N_src * K_in, K, D), or (E * K_in, K, D) with per_edge
    scale: np.ndarray  # (rows, K) in the graph's order, or empty
    K: tuple[None, ...]
    D: tuple[None, ...]


class RowsByNode:
    """A graph's edges sorted by destination, with one row for each capsule of an edge's source.

    Args:
        graph: any graph with one canonical edge type.
        caps_in: K_in.
        per_edge: whether each edge has its own votes, in edge order.
        mutual: whether rows have a reverse; K_in is then 1.
    """

    def __init__(self, graph: DGLGraph, caps_in: int, per_edge: bool, mutual: bool) -> None:
        edges = links(graph)
        index = torch.int32 if len(edges.src) * caps_in < 2**31 else torch.int64
        order = torch.argsort(edges.dst, stable=True)
        source = order if per_edge else edges.src[order]
        self.reverse = order.new_empty(0, dtype=index)
        if mutual:
            self.reverse = torch.argsort(order)[reverse_edges(graph)[order]].to(index)
        if caps_in > 1:
            capsule = torch.arange(caps_in)
            source, order = ((ends.unsqueeze(1) * caps_in + capsule).flatten() for ends in (source, order))
        self.source, self.eid, self.per_edge = source.to(index), order.to(index), per_edge
        degrees = edges.in_degrees * caps_in
        self.max_rows = max(1, int(degrees.max())) if len(degrees) else 1
        self.indptr = torch.cat([degrees.new_zeros(1), degrees.cumsum(0)])

    def arrays(self, u_hat: Tensor, scale: Tensor | None) -> Rows:
        return Rows(
            self.indptr.numpy(),
            self.source.numpy(),
            self.eid.numpy(),
            self.reverse.numpy(),
            flat(u_hat.contiguous()),
            flat(u_hat.new_empty(0) if scale is None else scale.contiguous()),
            K=(None,) * u_hat.shape[2],
            D=(None,) * u_hat.shape[3],
        )

    def ranges(self, parts: int | None = None) -> list[tuple[int, int]]:
        """Return the range of nodes (begin, end) of each thread, with about equal numbers of rows."""
        return equal_ranges(self.indptr.numpy(), parts or torch.get_num_threads())

    def ranges_and_sums(self, u_hat: Tensor) -> tuple[list[tuple[int, int]], Tensor, list[Tensor]]:
        """Return the nodes of each thread, zeros (parts, *u_hat.shape) for the gradient, and each thread's part.

        Nodes share their neighbours' votes, so each thread needs its own part. With ``per_edge`` they share none.
        """
        parts = min(torch.get_num_threads(), max(1, MAX_SUMS // (u_hat.numel() * u_hat.element_size())))
        ranges = self.ranges(None if self.per_edge else parts)
        du = zeros((1 if self.per_edge else len(ranges), *u_hat.shape), u_hat)
        return ranges, du, [du[0]] * len(ranges) if self.per_edge else list(du)


rows_by_node = cached_per_structure(RowsByNode)


def route_nodes(
    graph: DGLGraph,
    z: Tensor,
    scale: Tensor | None,
    kappa: Tensor | None,
    iterations: int,
    mutual: bool = False,
    per_edge: bool = False,
    get_coupling: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """Return s (N_dst, K_out, D) of the last iteration and its couplings (E, K_in, K_out), detached, or None.

    Args:
        graph: any graph with one canonical edge type; E edges.
        z: (N_src, K_in, K_out, D) on the CPU, float32 or float64; with ``per_edge`` (E, K_in, K_out, D).
        scale: broadcastable with (E, K_in, K_out), or None for 1.
        kappa: the concentration of spherical routing, () or (K_out,); None for dynamic routing.
        iterations: R >= 1. With 1 all couplings are equal.
        mutual: whether an edge and its reverse share their logits. Each edge then needs a reverse, and K_in = 1.
        per_edge: whether each edge has its own votes.
        get_coupling: whether to return couplings.
    """
    caps_in, caps_out, dim = z.shape[1:]
    num_nodes, num_edges = graph.num_dst_nodes(), graph.num_edges()
    if num_edges == 0 or z.numel() == 0:
        s = z.sum() * 0 + z.new_zeros(num_nodes, caps_out, dim)
        return s, z.new_zeros(num_edges, caps_in, caps_out) if get_coupling else None
    per_node = (z.new_zeros(()) if kappa is None else kappa.to(z.dtype)).expand(num_nodes, caps_out)
    scale = None if scale is None else scale.to(z.dtype).expand(num_edges, caps_in, caps_out)
    rows = rows_by_node(graph, caps_in, per_edge, mutual)
    learning = torch.is_grad_enabled()
    s, c = _RouteNodes.apply(z, scale, per_node, rows, iterations, kappa is None, mutual, get_coupling, learning)
    return s, c.view(num_edges, caps_in, caps_out) if get_coupling else None


class _RouteNodes(torch.autograd.Function):
    """The autograd function for s (N, K, D) and the last couplings (E * K_in, K), which may be empty."""

    @staticmethod
    def forward(
        ctx: Any,
        z: Tensor,
        scale: Tensor | None,
        kappa: Tensor,
        rows: RowsByNode,
        iterations: int,
        adds: bool,
        mutual: bool,
        get_coupling: bool,
        learning: bool,
    ) -> tuple[Tensor, Tensor]:
        (num_nodes, caps), num_rows = kappa.shape, len(rows.source)
        given = {"rows": rows.arrays(z, scale), "kappa": kappa.contiguous(), "iterations": iterations, "adds": adds}
        coupling = z.new_full((num_rows if get_coupling else 0, caps), 1 / caps)
        if not mutual:
            ctx.save_for_backward(z, scale, kappa)
            s = z.new_empty(num_nodes, *z.shape[2:])
            run_on_threads(kernels_nodes.route, rows.ranges(), **given, s=s, c=coupling)
        else:
            all_s, w = (empty((num_nodes, iterations, *z.shape[2:]), z) for _ in range(2))
            squares, norm = (z.new_zeros(num_nodes, caps) for _ in range(2))
            c = empty((iterations, num_rows if learning or get_coupling else 0, caps), z)
            sums = {"s": all_s, "w": w, "squares": squares, "norm": norm, "c": c}
            products = empty((2, num_rows, caps), z)
            for r in range(iterations):
                run_on_threads(kernels_mutual.iterate, rows.ranges(), **given, r=r, **sums, products_of=products)
            s = all_s[:, -1].clone()
            if get_coupling and iterations > 1:
                coupling[rows.eid.long()] = c[-1]
            if learning:
                ctx.save_for_backward(z, scale, kappa, all_s, w, squares, norm, c)
        ctx.settings = rows, iterations, adds, mutual
        ctx.mark_non_differentiable(coupling)
        return s, coupling

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, *_: Tensor | None) -> tuple[Tensor | None, ...]:
        z, scale, kappa, *kept = ctx.saved_tensors
        rows, iterations, adds, mutual = ctx.settings
        ranges, du, parts = rows.ranges_and_sums(z)
        dkappa = torch.zeros_like(kappa, memory_format=torch.contiguous_format)
        wants_scale = ctx.needs_input_grad[1]
        dscale = torch.empty_like(scale, memory_format=torch.contiguous_format) if wants_scale else z.new_empty(0)
        given = {"rows": rows.arrays(z, scale), "iterations": iterations, "adds": adds}
        given |= {"dkappa": dkappa, "dscale": dscale}
        if not mutual:
            last = {"kappa": kappa.contiguous(), "max_rows": rows.max_rows, "grad": grad.contiguous()}
            run_on_threads(kernels_nodes.route_backward, ranges, **given, **last, du=parts)
        else:
            s, w, squares, norm, c = kept
            ds, db, dnorm = empty(s.shape, s), empty(c.shape, c), torch.zeros_like(norm)
            dw = zeros((len(s) if adds else 0, *s.shape[2:]), s)
            ds[:, -1] = grad
            given |= {"s": s, "w": w, "squares": squares, "norm": norm, "c": c}
            given |= {"ds": ds, "db": db, "dw": dw, "dnorm": dnorm}
            for r in reversed(range(1, iterations)):
                run_on_threads(kernels_mutual.iterate_backward, rows.ranges(), **given, r=r, du=z.new_empty(0))
            run_on_threads(kernels_mutual.iterate_backward, ranges, **given, r=0, du=parts)
        return sum_of(du), dscale if wants_scale else None, dkappa, *[None] * 6
