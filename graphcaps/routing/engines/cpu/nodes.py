"""Routing among the capsules of each node: one pass over the nodes, and one for the gradient.

    u_hat_ekl = scale_ekl z_ukl            the vote of capsule k of edge e = (u, v)'s source for capsule l of v
    c_ek      = softmax over l of b_ek
    s_vl      = sum over e and k of c_ekl u_hat_ekl
    b_ekl     = <u_hat_ekl, w_vl>          w = kappa / rho s / |s| (spherical), or the sum of all v so far (dynamic)

This is what the other engines compute on ``graphcaps.graph.expand(graph, K_in, K_out, "capsules")``, with z in the
place of the votes (E, K_in, K_out, D), which are never made. Where edges have features, each has votes of its own,
which stand in the place of z.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ...._dgl import DGLGraph
from ....graph import cached_per_structure, links
from ...second_derivative import once_differentiable
from . import kernels_nodes
from .memory import zeros
from .passes import MOST_SUMS, flat, run_on_threads, sum_of


class Rows(NamedTuple):
    """What a kernel reads: the capsules of edges' sources, sorted by destination. A field in capitals is as long as it
    says, and known when the kernel is compiled."""

    indptr: np.ndarray  # (N_dst + 1,): the rows of node v are indptr[v]:indptr[v + 1]
    source: np.ndarray  # (rows,): where its votes are in u_hat: u * K_in + k, or e * K_in + k of an edge's own
    eid: np.ndarray  # (rows,): its place in the graph's order, e * K_in + k
    u_hat: np.ndarray  # (N_src * K_in, K, D): z; or (E * K_in, K, D)
    scale: np.ndarray  # (rows, K) in the graph's order, or empty
    K: tuple[None, ...]
    D: tuple[None, ...]


class RowsByNode:
    """A graph's edges sorted by destination, one row for each capsule of their source.

    ``own``: each edge has votes of its own, in edge order, in the place of its source's.
    """

    def __init__(self, graph: DGLGraph, caps_in: int, own: bool) -> None:
        edges = links(graph)
        index = torch.int32 if len(edges.src) * caps_in < 2**31 else torch.int64
        order = torch.argsort(edges.dst, stable=True)
        source = order if own else edges.src[order]
        if caps_in > 1:
            each = torch.arange(caps_in)
            source, order = ((of.unsqueeze(1) * caps_in + each).flatten() for of in (source, order))
        self.source, self.eid, self.own = source.to(index), order.to(index), own
        self.src, self.caps_in, self.num_children = edges.src, caps_in, edges.num_children * caps_in
        degrees = edges.in_degrees * caps_in
        self.most = max(1, int(degrees.max())) if len(degrees) else 1
        self.indptr = torch.cat([degrees.new_zeros(1), degrees.cumsum(0)])

    @functools.cached_property
    def child(self) -> Tensor:
        """(rows,) int64: the capsule of each row's source, u * K_in + k."""
        eid = self.eid.long()
        return self.src[eid // self.caps_in] * self.caps_in + eid % self.caps_in

    def ranges(self, parts: int) -> list[tuple[int, int]]:
        """The nodes of each thread (begin, end), with about equal numbers of rows."""
        indptr = self.indptr.numpy()
        cuts = np.searchsorted(indptr, np.linspace(0, indptr[-1], parts + 1)[1:-1]).tolist()
        ends = [0, *cuts, len(indptr) - 1]
        return list(zip(ends[:-1], ends[1:], strict=True))

    def ranges_and_sums(self, u_hat: Tensor) -> tuple[list[tuple[int, int]], Tensor, list[Tensor]]:
        """The nodes of each thread, zeros (parts, *u_hat.shape) for the gradient, and the part that each adds to.

        Nodes share their neighbours' votes, and so each thread needs a part. An edge's own votes are one node's.
        """
        size = u_hat.numel() * u_hat.element_size()
        if self.own:
            ranges, du = self.ranges(torch.get_num_threads()), zeros((1, *u_hat.shape), u_hat)
            return ranges, du, [du[0]] * len(ranges)
        ranges = self.ranges(min(torch.get_num_threads(), max(1, MOST_SUMS // size)))
        du = zeros((len(ranges), *u_hat.shape), u_hat)
        return ranges, du, list(du)


rows_by_node = cached_per_structure(RowsByNode)


def route_nodes(
    graph: DGLGraph,
    u_hat: Tensor,
    scale: Tensor | None,
    kappa: Tensor | None,
    iterations: int,
    get_coupling: bool,
    own: bool = False,
    apply: Callable[..., tuple[Tensor, Tensor | None]] | None = None,
) -> tuple[Tensor, Tensor | None]:
    """s (N_dst, K_out, D) of the last iteration and, if wanted, its couplings (E, K_in, K_out), detached.

    Args:
        graph: any with one canonical edge type; E edges.
        u_hat: z (N_src, K_in, K_out, D) on the CPU, float32 or float64; with ``own`` (E, K_in, K_out, D).
        scale: broadcastable with (E, K_in, K_out), or None for 1.
        kappa: of spherical routing, () or (K_out,); None: dynamic routing.
        iterations: R >= 1; 1 couples equally.
        get_coupling: whether couplings are wanted.
        own: whether each edge has votes of its own.
        apply: what routes, in the place of passes in which a node knows its own rows alone.
    """
    caps_in, caps_out, dim = u_hat.shape[1:]
    of_parent = u_hat.new_zeros(()) if kappa is None else kappa.to(u_hat.dtype)
    of_parent = of_parent.expand(graph.num_dst_nodes(), caps_out)
    if graph.num_edges() == 0 or u_hat.numel() == 0:
        nothing = u_hat.sum() * 0 + u_hat.new_zeros(graph.num_dst_nodes(), caps_out, dim)
        return nothing, u_hat.new_zeros(graph.num_edges(), caps_in, caps_out) if get_coupling else None
    scale = None if scale is None else scale.to(u_hat.dtype).expand(graph.num_edges(), caps_in, caps_out)
    return (apply or _RouteNodes.apply)(u_hat, scale, of_parent, graph, iterations, kappa is None, get_coupling, own)


class _RouteNodes(torch.autograd.Function):
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
    ) -> tuple[Tensor, Tensor | None]:
        by_node = rows_by_node(graph, u_hat.shape[1], own)
        s = u_hat.new_empty(graph.num_dst_nodes(), *u_hat.shape[2:])
        c = u_hat.new_empty(graph.num_edges() if get_coupling else 0, *u_hat.shape[1:3])
        ctx.save_for_backward(u_hat, scale, kappa)
        ctx.how = by_node, iterations, adds
        given = {"rows": rows_of(by_node, u_hat, scale), "kappa": kappa.contiguous()}
        ranges = by_node.ranges(torch.get_num_threads())
        run_on_threads(kernels_nodes.route, ranges, **given, iterations=iterations, adds=adds, s=s, c=c)
        ctx.mark_non_differentiable(c)
        return s, c if get_coupling else None

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, *of_coupling: Tensor | None) -> tuple[Tensor | None, ...]:
        (u_hat, scale, kappa), (by_node, iterations, adds) = ctx.saved_tensors, ctx.how
        ranges, du, parts = by_node.ranges_and_sums(u_hat)
        dkappa = torch.zeros_like(kappa, memory_format=torch.contiguous_format)
        wants_scale = ctx.needs_input_grad[1]
        dscale = torch.empty_like(scale, memory_format=torch.contiguous_format) if wants_scale else u_hat.new_empty(0)
        found = {"grad": grad.contiguous(), "du": parts, "dkappa": dkappa, "dscale": dscale}
        given = {"rows": rows_of(by_node, u_hat, scale), "kappa": kappa.contiguous()}
        how = {"iterations": iterations, "adds": adds, "most": by_node.most}
        run_on_threads(kernels_nodes.route_backward, ranges, **given, **how, **found)
        return sum_of(du), dscale if wants_scale else None, dkappa, *[None] * 5


def rows_of(by_node: RowsByNode, u_hat: Tensor, scale: Tensor | None) -> Rows:
    """What kernels read of u_hat and scale."""
    return Rows(
        by_node.indptr.numpy(),
        by_node.source.numpy(),
        by_node.eid.numpy(),
        flat(u_hat.contiguous()),
        flat(u_hat.new_empty(0) if scale is None else scale.contiguous()),
        K=(None,) * u_hat.shape[2],
        D=(None,) * u_hat.shape[3],
    )
