"""Routing among the capsules of each node, on the CPU.

    u_hat_ek = scale_ek z_uk               on edge e = (u, v), the vote of node u for v's capsule k
    c_e      = softmax over k of b_ek
    s_vk     = sum over e of c_ek u_hat_ek
    b_ek     = prior_ek + <u_hat_ek, w_vk>     w = kappa / rho s / |s| (spherical), sum of squash(s) so far (dynamic)

Without ``mutual``, one pass over the nodes runs all iterations, and another computes the gradient. With ``mutual``, an
edge adds its reverse's products to its logits, so each iteration needs its own pass. `README.md` derives the passes.
"""

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ...algorithms.rule import Rule
from ...algorithms.votes import NodeVotes
from ...functional import at_least_float32
from ...graph import Links
from ..dispatch import Sums
from ..operators import operator
from .arguments import Kept, Slopes
from .kernels_by_node import nodes_backward, nodes_forward
from .passes import MAX_SUMS, empty, equal_ranges, flat, run_on_threads, sum_of, zeros


class Rows(NamedTuple):
    """The argument ``rows`` of the kernels: the edges, sorted by destination. A row is an edge."""

    indptr: np.ndarray  # (N_dst + 1,): the rows of node v are indptr[v]:indptr[v + 1]
    source: np.ndarray  # (rows,): index of the row's votes in u_hat, which is the source, or the edge with per_edge
    eid: np.ndarray  # (rows,): the number of the row's edge in the graph
    reverse: np.ndarray  # (rows,): the row of the reverse edge, or empty
    u_hat: np.ndarray  # the unscaled votes z, (N_src, votes, D), or with per_edge (E, votes, D)
    scale: np.ndarray  # (E, K) in the graph's order, or empty
    prior: np.ndarray  # (E, K) in the graph's order, or empty
    K: tuple[None, ...]
    VOTES: tuple[None, ...]  # there are K, or one that all capsules share
    D: tuple[None, ...]


def sums_by_node(links: Links, votes: NodeVotes, rule: Rule, mutual: bool, coupling: bool) -> Sums:
    """Return the last s (N, K, D) and, with ``coupling``, the last couplings (E, K), detached.

    Votes have no trailing dims. With ``mutual``, there is no prior.
    """
    z = at_least_float32(votes.u)
    scale, prior, kappa, numbers = votes.scale, votes.prior, rule.kappa, (links.num_edges, votes.num_caps)
    if links.num_edges == 0 or z.numel() == 0:
        # DistributedDataParallel waits for a gradient, zero here, of each parameter.
        nothing = sum(x.sum() for x in (z, scale, kappa, prior) if x is not None) * 0
        s = nothing + z.new_zeros(links.num_parents, votes.num_caps, votes.dim)
        return Sums(s, z.new_zeros(numbers) if coupling else None)
    per_node = (z.new_zeros(()) if kappa is None else kappa.to(z.dtype)).expand(links.num_parents, votes.num_caps)
    scale = None if scale is None else scale.to(z.dtype).expand(numbers)
    prior = None if prior is None else prior.to(z.dtype)
    settings = votes.per_edge, rule.iterations, rule.adds, mutual, coupling, torch.is_grad_enabled()
    s, c = route_by_node(z, scale, prior, per_node, *links.by_parent(mutual), settings=settings)
    return Sums(s, c if coupling else None)


class _Call(NamedTuple):
    """The arguments of the operator, and what follows from them."""

    rows: Rows
    kappa: Tensor  # (N, K)
    options: dict[str, Any]  # the kernels' arguments that aren't arrays
    ranges: list[tuple[int, int]]  # each thread's nodes (begin, end), with about equal numbers of edges
    mutual: bool
    per_edge: bool
    launches: list[tuple[int, int]]  # the iterations (begin, end) of each call of the kernels
    stride: int  # the size of a thread's numbers per row


def _call(tensors: list[Tensor], settings: list[int]) -> _Call:
    (z, scale, prior, kappa, *order), (per_edge, iterations, adds, mutual, coupling, learning) = tensors, settings
    indptr, src, eid, reverse = (x.numpy() for x in order)
    u_hat, factors, logits = (flat(x.contiguous()) for x in (z, scale, prior))
    K, VOTES, D = ((None,) * size for size in (kappa.shape[1], *z.shape[1:]))
    rows = Rows(indptr, eid if per_edge else src, eid, reverse, u_hat, factors, logits, K, VOTES, D)
    # Numba drops branches on None before it compiles.
    options = {"MUTUAL": () if mutual else None, "iterations": iterations, "adds": bool(adds)}
    options |= {"get_coupling": bool(coupling), "learning": bool(learning)}
    launches, most = [(0, iterations)], int(np.diff(indptr).max(initial=1))
    if mutual:
        launches, most = [(r, r + 1) for r in range(iterations)], len(src)
    stride = kappa.shape[1] * most
    ranges = equal_ranges(indptr, torch.get_num_threads())
    return _Call(rows, kappa.contiguous(), options, ranges, bool(mutual), bool(per_edge), launches, stride)


def _forward(tensors: list[Tensor], settings: list[int]) -> list[Tensor]:
    """Return s (N, K, D), the last couplings (E, K) or an empty tensor, and with ``mutual`` what ``Kept`` describes."""
    (z, _, prior, kappa, *_), call = tensors, _call(tensors, settings)
    of_sums, of_coupling, *of_nodes, of_c = _shapes(tensors, settings)
    s, w, squares, ratio = (zeros(shape, z) for shape in of_nodes)  # w of the first iteration isn't written
    c, caps = empty(of_c, z), kappa.shape[1]
    c[:1] = 0  # nor are those couplings
    products = empty((2, len(call.rows.eid) if call.mutual else 0, caps), z)
    kept = Kept(*map(flat, (s, w, squares, ratio, products, c)))
    sums, coupling = z.new_empty(of_sums), z.new_full(of_coupling, 1 / caps)
    if prior.numel() and len(c) == 1:  # with one iteration, the kernels write no couplings
        coupling = prior.softmax(-1)[: len(coupling)].clone()
    arguments = {"rows": call.rows, "kappa": call.kappa, "kept": kept, "stride": call.stride} | call.options
    arguments |= {"sums": sums, "coupling": coupling}
    for begin, end in call.launches:
        run_on_threads(nodes_forward, call.ranges, **arguments, r_begin=begin, r_end=end)
    return [sums, coupling, s, w, squares, ratio, c]


def _shapes(tensors: list[Tensor], settings: list[int]) -> list[tuple]:
    (z, _, _, kappa, _, src, *_), (_, iterations, _, mutual, coupling, learning) = tensors, settings
    (num_nodes, caps), num_edges, dim = kappa.shape, src.shape[0], z.shape[2]
    nodes, edges = (num_nodes, num_edges) if mutual else (0, 0)
    kept = *[(nodes, iterations, caps, dim)] * 2, *[(nodes, caps)] * 2, (iterations, edges if learning else 0, caps)
    return [(num_nodes, caps, dim), (num_edges if coupling else 0, caps), *kept]


def _differentiate(
    grads: list[Tensor], saved: list[Tensor], settings: list[int], needed: list[bool]
) -> tuple[Tensor | None, ...]:
    """Return the gradients of z, scale, prior and kappa."""
    (z, _, _, kappa), (s, w, squares, ratio, c), call = saved[:4], saved[8:], _call(saved[:8], settings)
    ranges, du, parts = _ranges_and_sums(call, z)
    dkappa = torch.zeros_like(kappa, memory_format=torch.contiguous_format)
    nothing, numbers = z.new_empty(0), (len(call.rows.eid), kappa.shape[1])
    of_rows = [z.new_empty(numbers) if wanted else None for wanted in needed[1:3]]
    kept = Kept(*map(flat, (s, w, squares, ratio, nothing, c)))
    dw = zeros((len(s), *grads[0].shape[1:]), s)
    slopes = Slopes(*map(flat, (empty(s.shape, s), empty(c.shape, c), dw, torch.zeros_like(ratio))))
    arguments = {"rows": call.rows, "kappa": call.kappa, "kept": kept, "slopes": slopes} | call.options
    arguments |= {"stride": call.stride, "grad": grads[0].contiguous(), "dkappa": dkappa}
    arguments["drows"] = tuple(flat(nothing if x is None else x) for x in of_rows)
    for begin, end in reversed(call.launches):
        nodes, of_threads = (call.ranges, nothing) if begin else (ranges, parts)
        run_on_threads(nodes_backward, nodes, **arguments, r_begin=begin, r_end=end, du=of_threads)
    return sum_of(du), *of_rows, dkappa, *[None] * 4


def _ranges_and_sums(call: _Call, z: Tensor) -> tuple[list[tuple[int, int]], Tensor, list[Tensor]]:
    """Return each thread's nodes, zeros (parts, *z.shape), and the slice of them that it adds its gradient to.

    Each thread needs its own part, because nodes share their neighbours' votes. With ``per_edge`` they share none.
    """
    if call.per_edge:
        du = zeros((1, *z.shape), z)
        return call.ranges, du, [du[0]] * len(call.ranges)
    most = max(1, MAX_SUMS // (z.numel() * z.element_size()))
    ranges = equal_ranges(call.rows.indptr, min(len(call.ranges), most))
    du = zeros((len(ranges), *z.shape), z)
    return ranges, du, list(du)


route_by_node = operator("by_node", _forward, _shapes, _differentiate, num_saved=0)
