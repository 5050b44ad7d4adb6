"""Routing among the capsules of each node, on the CPU.

    u_hat_ekl = scale_ekl z_ukl            on edge e = (u, v), the vote of u's capsule k for v's capsule l
    c_ek      = softmax over l of b_ek
    s_vl      = sum over e and k of c_ekl u_hat_ekl
    b_ekl     = prior_ekl + <u_hat_ekl, w_vl>   w = kappa / rho s / |s| (spherical), sum of squash(s) so far (dynamic)

Without ``mutual``, one pass over the nodes runs all iterations, and another computes the gradient. With ``mutual``, an
edge adds its reverse's products to its logits, so each iteration needs its own pass. `README.md` derives the passes.
"""

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..._dgl import DGLGraph
from ...algorithms.rule import Rule
from ...algorithms.votes import NodeVotes
from ...edges.second_derivative import once_differentiable
from ...graph import Links, cached_per_structure, links, reverse_edges
from .arguments import Kept, Slopes
from .kernels_by_node import nodes_backward, nodes_forward
from .passes import MAX_SUMS, empty, equal_ranges, flat, run_on_threads, sum_of, zeros


class Rows(NamedTuple):
    """The argument ``rows`` of the kernels, sorted by destination. A row is one capsule of an edge's source."""

    indptr: np.ndarray  # (N_dst + 1,): the rows of node v are indptr[v]:indptr[v + 1]
    source: np.ndarray  # (rows,): index of the row's votes in u_hat: u * K_in + k, or e * K_in + k with per_edge
    eid: np.ndarray  # (rows,): the row's index in the graph's edge order, e * K_in + k
    reverse: np.ndarray  # (rows,): the row of the reverse edge, or empty
    u_hat: np.ndarray  # the unscaled votes z, (N_src * K_in, votes, D), or with per_edge (E * K_in, votes, D)
    scale: np.ndarray  # (rows, K) in the graph's order, or empty
    prior: np.ndarray  # (rows, K) in the graph's order, or empty
    K: tuple[None, ...]
    VOTES: tuple[None, ...]  # there are K, or one that all capsules share
    D: tuple[None, ...]


class RowsByNode(NamedTuple):
    """A graph's edges sorted by destination, with one row for each of the ``caps_in`` capsules of an edge's source.

    The tensors are the first fields of `Rows`. With ``mutual``, each row has a reverse, and ``caps_in`` must be 1.
    """

    indptr: Tensor
    source: Tensor
    eid: Tensor
    reverse: Tensor
    per_edge: bool
    max_rows: int

    def arrays(self, caps: int, u_hat: Tensor, scale: Tensor | None, prior: Tensor | None) -> Rows:
        numbers = (u_hat.new_empty(0) if x is None else x.contiguous() for x in (u_hat, scale, prior))
        lengths = ((None,) * size for size in (caps, *u_hat.shape[2:]))
        return Rows._make([*(x.numpy() for x in self[:4]), *map(flat, numbers), *lengths])

    def ranges(self, parts: int | None = None) -> list[tuple[int, int]]:
        """Return each thread's range of nodes (begin, end). The ranges have about equal numbers of rows."""
        return equal_ranges(self.indptr.numpy(), parts or torch.get_num_threads())

    def ranges_and_sums(self, u_hat: Tensor) -> tuple[list[tuple[int, int]], Tensor, list[Tensor]]:
        """Return each thread's nodes, zeros (parts, *u_hat.shape), and the slice of them that it adds its gradient to.

        Each thread needs its own part, because nodes share their neighbours' votes. With ``per_edge`` they share none.
        """
        parts = min(torch.get_num_threads(), max(1, MAX_SUMS // (u_hat.numel() * u_hat.element_size())))
        ranges = self.ranges(None if self.per_edge else parts)
        du = zeros((1 if self.per_edge else len(ranges), *u_hat.shape), u_hat)
        return ranges, du, [du[0]] * len(ranges) if self.per_edge else list(du)


@cached_per_structure
def rows_by_node(graph: DGLGraph, caps_in: int, per_edge: bool, mutual: bool) -> RowsByNode:
    edges = links(graph)
    index = torch.int32 if len(edges.src) * caps_in < 2**31 else torch.int64
    order = torch.argsort(edges.dst, stable=True)
    source, reverse = order if per_edge else edges.src[order], order[:0]
    if mutual:
        reverse = torch.argsort(order)[reverse_edges(graph)[order]]
    if caps_in > 1:
        capsule = torch.arange(caps_in)
        source, order = ((ends.unsqueeze(1) * caps_in + capsule).flatten() for ends in (source, order))
    degrees = edges.in_degrees * caps_in
    indptr, most = torch.cat([degrees.new_zeros(1), degrees.cumsum(0)]), max(1, int(degrees.max()))
    return RowsByNode(indptr, source.to(index), order.to(index), reverse.to(index), per_edge, most)


def sums_of_nodes(
    graph: DGLGraph | Links, votes: NodeVotes, rule: Rule, mutual: bool, get_coupling: bool
) -> tuple[Tensor, Tensor | None]:
    """Return what ``route_nodes`` returns, for votes without trailing dims in float32 or float64, as s (N, K_out, D).

    With ``mutual``, there is no prior.
    """
    z, scale, prior, kappa = votes.u, votes.scale, votes.prior, rule.kappa
    caps_in, caps_out, dim = votes.z.shape[1:]
    num_nodes, num_edges = graph.num_dst_nodes(), graph.num_edges()
    if num_edges == 0 or z.numel() == 0:
        # DistributedDataParallel waits for a gradient, zero here, of each parameter.
        nothing = sum(x.sum() for x in (z, scale, kappa, prior) if x is not None) * 0
        s = nothing + z.new_zeros(num_nodes, caps_out, dim)
        return s, z.new_zeros(num_edges, caps_in, caps_out) if get_coupling else None
    per_node = (z.new_zeros(()) if kappa is None else kappa.to(z.dtype)).expand(num_nodes, caps_out)
    scale = None if scale is None else scale.to(z.dtype).expand(num_edges, caps_in, caps_out)
    prior = None if prior is None else prior.to(z.dtype)
    how = rule.iterations, rule.adds, mutual, get_coupling, torch.is_grad_enabled()
    if isinstance(graph, Links):  # torch.compile traces the call
        from .operators import route_by_node

        s, c = route_by_node(z, scale, prior, per_node, *graph.origin, how=(votes.per_edge, *how))
    else:
        rows = rows_by_node(graph, caps_in, votes.per_edge, mutual)
        s, c = _SumsOfNodes.apply(z, scale, prior, per_node, rows, arguments(*how))
    return s, c.view(num_edges, caps_in, caps_out) if get_coupling else None


def arguments(iterations: int, adds: int, mutual: int, get_coupling: int, learning: int) -> dict[str, Any]:
    """Return the arguments of the kernels that aren't arrays. Numba drops branches on None before it compiles."""
    how = {"MUTUAL": () if mutual else None, "iterations": iterations, "adds": bool(adds)}
    return how | {"get_coupling": bool(get_coupling), "learning": bool(learning)}


class _SumsOfNodes(torch.autograd.Function):
    """The autograd function for s (N, K, D) and the last couplings (E * K_in, K), empty unless wanted."""

    @staticmethod
    def forward(
        ctx: Any, z: Tensor, scale: Tensor | None, prior: Tensor | None, kappa: Tensor, rows: RowsByNode, how: dict
    ) -> tuple[Tensor, Tensor]:
        (num_nodes, caps), num_rows = kappa.shape, len(rows.source)
        dims = caps, z.shape[3]
        iterations, mutual = how["iterations"], how["MUTUAL"] is not None
        all_nodes, all_rows = (num_nodes, num_rows) if mutual else (0, 0)
        s, w = (empty((all_nodes, iterations, *dims), z) for _ in range(2))
        squares, ratio = (z.new_zeros(all_nodes, caps) for _ in range(2))
        c = empty((iterations, all_rows if how["learning"] else 0, caps), z)
        kept = Kept(*map(flat, (s, w, squares, ratio, empty((2, all_rows, caps), z), c)))
        sums = z.new_empty(num_nodes, *dims)
        coupling = z.new_full((num_rows if how["get_coupling"] else 0, caps), 1 / caps)
        if prior is not None and iterations == 1:
            coupling = prior.softmax(-1).view(-1, caps)[: len(coupling)]
        calls, stride = _calls(rows, caps, how)
        arrays = rows.arrays(caps, z, scale, prior)
        given = {"rows": arrays, "kappa": kappa.contiguous(), "kept": kept, "stride": stride} | how
        for begin, end in calls:
            run_on_threads(
                nodes_forward, rows.ranges(), **given, r_begin=begin, r_end=end, sums=sums, coupling=coupling
            )
        ctx.save_for_backward(z, scale, prior, kappa, s, w, squares, ratio, c)
        ctx.settings = rows, how
        ctx.mark_non_differentiable(coupling)
        return sums, coupling

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, *_: Tensor | None) -> tuple[Tensor | None, ...]:
        z, scale, prior, kappa, s, w, squares, ratio, c = ctx.saved_tensors
        rows, how = ctx.settings
        calls, stride = _calls(rows, kappa.shape[1], how)
        ranges, du, parts = rows.ranges_and_sums(z)
        dkappa = torch.zeros_like(kappa, memory_format=torch.contiguous_format)
        nothing, size = z.new_empty(0), (len(rows.eid) // z.shape[1], z.shape[1], kappa.shape[1])
        found = [z.new_empty(size) if wanted else None for wanted in ctx.needs_input_grad[1:3]]
        drows = tuple(flat(nothing if x is None else x) for x in found)
        dw = zeros((len(s), *grad.shape[1:]), s)
        kept = Kept(*map(flat, (s, w, squares, ratio, nothing, c)))
        slopes = Slopes(*map(flat, (empty(s.shape, s), empty(c.shape, c), dw, torch.zeros_like(ratio))))
        arrays = rows.arrays(kappa.shape[1], z, scale, prior)
        given = {"rows": arrays, "kappa": kappa.contiguous(), "kept": kept, "slopes": slopes} | how
        given |= {"stride": stride, "grad": grad.contiguous(), "dkappa": dkappa, "drows": drows}
        for begin, end in reversed(calls):
            nodes, of_threads = (rows.ranges(), nothing) if begin else (ranges, parts)
            run_on_threads(nodes_backward, nodes, **given, r_begin=begin, r_end=end, du=of_threads)
        return sum_of(du), *found, dkappa, None, None


def _calls(rows: RowsByNode, caps: int, how: dict[str, Any]) -> tuple[list[tuple[int, int]], int]:
    """Return the iterations (begin, end) of each call of the kernels, and the size of a thread's numbers per row."""
    iterations = how["iterations"]
    if how["MUTUAL"] is None:
        return [(0, iterations)], caps * rows.max_rows
    return [(r, r + 1) for r in range(iterations)], caps * len(rows.source)
