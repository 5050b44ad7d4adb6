"""Routing among the capsules of each node, on a GPU. The formulas are those of `..cpu.by_node`.

Without ``mutual``, one program runs all iterations of a node; another one recomputes them for the gradient. The rows of
a hub, a node of more than SEGMENT in-edges, are cut into segments: each iteration is a launch that sums the votes of
each segment, and one that adds up a hub's segments and computes its next w.

With ``mutual``, b_e = <u_hat_e, w_v> + <u_hat_e', w_u> on edge e = (u, v) with the reverse e'. That takes the w of both
nodes, so all nodes are treated as hubs. Both directions of an edge have the same couplings; so db_e + db_e' follows in
the same way from <u_hat_e, ds_v> + <u_hat_e', ds_u>. No number per edge is kept.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import torch
import triton
from torch import Tensor

from ..._dgl import DGLGraph
from ...algorithms.rule import Rule
from ...algorithms.votes import NodeVotes
from ...graph import cached_per_structure, links, reverse_edges
from ..operators import new_results, operator, or_none
from . import kernels_nodes as kernels

SEGMENT = 128


class EdgesByNode(NamedTuple):
    """A graph's edges sorted by destination; all are int32."""

    ptr: Tensor  # (N + 1,): the edges of node v are ptr[v]:ptr[v + 1]
    src: Tensor  # (E,): the source of each edge
    eid: Tensor  # (E,): the number of each edge in the graph
    hubs: Tensor  # (H,): the nodes that are cut into segments
    first: Tensor  # (H + 1,): the segments of hub h are first[h]:first[h + 1]
    hub_of: Tensor  # (segments,): the h of each segment
    dst: Tensor  # (E,): the destination of each edge, or empty without ``mutual``
    back_eid: Tensor  # (E,): the number of each edge's reverse, or empty without ``mutual``


@cached_per_structure
def edges_by_node(graph: DGLGraph, device: torch.device, mutual: bool) -> EdgesByNode:
    """Sort a graph's edges by destination. This waits for the device."""
    ends = links(graph, device)
    src, dst, degrees = ends.src, ends.dst, ends.in_degrees
    eid = torch.argsort(dst, stable=True)
    hubs = (degrees > (-1 if mutual else SEGMENT)).nonzero().flatten()
    segments = (degrees[hubs] + SEGMENT - 1) // SEGMENT
    hub_of = torch.arange(len(hubs), device=device).repeat_interleave(segments)
    back = reverse_edges(graph).to(device) if mutual else eid[:0]
    ptr, first = (torch.cat([x.new_zeros(1), x.cumsum(0)]) for x in (degrees, segments))
    arrays = ptr, src[eid], eid, hubs, first, hub_of, *(x[eid] if mutual else x[:0] for x in (dst, back))
    return EdgesByNode(*(x.to(torch.int32) for x in arrays))


def sums_of_nodes(
    graph: DGLGraph, votes: NodeVotes, rule: Rule, mutual: bool, get_coupling: bool
) -> tuple[Tensor, Tensor | None]:
    """Return what ``route_nodes`` returns in float32, for votes without trailing dims and without a prior.

    The gradient of z is the same in each run if torch's deterministic algorithms are on, but takes more memory.
    """
    z, scale, per_edge, kappa = votes.u, votes.scale, votes.per_edge, rule.kappa
    edges, deterministic = edges_by_node(graph, z.device, mutual), torch.are_deterministic_algorithms_enabled()
    if scale is not None:
        scale = scale.float().expand(len(edges.src), *z.shape[1:3]).contiguous()
    of_capsules = None if kappa is None else kappa.float().expand(z.shape[2]).contiguous()
    how = rule.iterations, mutual, per_edge, get_coupling, deterministic
    s, c = route_nodes(z, scale, of_capsules, *edges, how=how)
    return s, c if get_coupling else None


@dataclass(frozen=True)
class Sizes:
    """The constants of a kernel."""

    CAPS_IN: int
    K: int
    D: int
    PADDED_K: int
    PADDED_D: int
    ROWS: int  # rows at a time
    SEGMENT: int  # edges
    ADDS: bool  # without kappa: squash(s) is added to the w before
    ATOMIC: bool  # whether edges with the same source add their gradients up


def launches(backward: bool, tensors: list[Tensor], ratio: Tensor, how: list[int]) -> list[Callable[..., Any]]:
    """Return the launches of `route_node`, `route_segment` and `finish_hub`, with the arguments that they share."""
    (z, *given), (iterations, mutual, per_edge, _, deterministic) = tensors, how
    (scale, kappa), (ptr, src, eid, hubs, first, hub_of, dst, back_eid) = map(or_none, given[:2]), given[2:]
    padded = [triton.next_power_of_2(size) for size in z.shape[2:]]
    numbers, atomic = padded[0] * padded[1], not (per_edge or deterministic)
    sizes = Sizes(*(*z.shape[1:], *padded, max(1, min(16, 512 // numbers)), SEGMENT, kappa is None, atomic))
    warps = max(1, min(8, numbers // (128 if backward else 256)))
    rows = z.contiguous(), scale, eid if per_edge else src, eid
    back = (back_eid if per_edge else dst, back_eid, src) if mutual else (None, None, None)
    num_hubs, num_segments, of_node = len(hubs), len(hub_of), (ptr, kappa, ratio)
    sums = ratio.new_empty(num_segments, *z.shape[2:])
    squares = ratio.new_empty(num_segments, z.shape[2])

    def launch(kernel: Any, programs: int, *given: Any, warps: int = warps) -> Callable[..., Any]:
        return partial(kernel[(programs,)], *given, sizes, num_warps=warps) if programs else lambda **_: None

    segment = *rows, *back, *of_node, hubs, first, hub_of, sums, squares, num_hubs, iterations
    return [
        launch(kernels.route_node, 0 if mutual else len(ptr) - 1, *rows, *of_node, iterations),
        launch(kernels.route_segment, num_segments, *segment),
        launch(kernels.finish_hub, num_hubs, sums, squares, hubs, first, *of_node, warps=4),
    ]


def _shapes(tensors: list[Tensor], how: list[int]) -> list[tuple[int, ...]]:
    """Return the shapes of what `_forward` returns."""
    (z, _, kappa, ptr, src, _, hubs, *_), (iterations, _, _, get_coupling, _) = tensors, how
    num_nodes, num_hubs, dims = ptr.shape[0] - 1, hubs.shape[0], z.shape[2:]
    coupling = (src.shape[0], *z.shape[1:3]) if get_coupling else (0,)
    return [(num_nodes, *dims), coupling, (2, iterations - 1, num_hubs, *dims), (num_nodes, *kappa.shape)]


def _forward(tensors: list[Tensor], how: list[int]) -> list[Tensor]:
    """Return s (N, K, D), the last couplings (E, K_in, K) or an empty tensor, the hubs' (s, w), and kappa / rho (N, K).

    The tensors are z, scale, kappa (K,) or empty, and `EdgesByNode`.
    """
    sums, coupling, states, ratio = new_results(tensors, _shapes(tensors, how))
    iterations, _, _, get_coupling, _ = how
    route_node, route_segment, finish_hub = launches(False, tensors, ratio, how)
    coupled = coupling.fill_(1 / sums.shape[1]) if get_coupling else None
    with torch.cuda.device_of(sums):
        route_node(sums=sums, coupling=coupled)
        for r in range(iterations):
            last, w = r == iterations - 1, states[1, r - 1] if r else None
            route_segment(w=w, coupling=coupled if last else None)
            after = {"result": sums} if last else {"s": states[0, r], "w_after": states[1, r]}
            finish_hub(w=w, **after)
    return [sums, coupling, states, ratio]


def _differentiate(
    grads: list[Tensor], saved: list[Tensor], how: list[int], needed: list[bool]
) -> tuple[Tensor | None, ...]:
    """Return the gradients of z, scale and kappa."""
    (*tensors, states, ratio), (iterations, _, per_edge, _, deterministic) = saved, how
    z, kappa, edges, (caps_in, *dims) = tensors[0], tensors[2], EdgesByNode(*tensors[3:]), tensors[0].shape[1:]
    num_edges, num_hubs = len(edges.src), len(edges.hubs)
    route_node, route_segment, finish_hub = launches(True, tensors, ratio, how)
    zeros = partial(torch.zeros, dtype=torch.float32, device=z.device)
    by_edge = deterministic and not per_edge  # the kernels store each edge's gradient, instead of adding it to dz
    dz = zeros(num_edges if by_edge else len(z), caps_in, *dims) if needed[0] else None
    dscale = zeros(num_edges, caps_in, dims[0]) if needed[1] else None
    ds, dw, slopes = zeros(iterations, num_hubs, *dims), zeros(num_hubs, *dims), torch.zeros_like(ratio)
    grad, results = grads[0].contiguous(), {"dz": dz, "dscale": dscale, "slopes": slopes}
    ds[-1] = grad.index_select(0, edges.hubs)
    with torch.cuda.device_of(z):
        route_node(grad=grad, **results)
        for r in range(iterations - 1, 0, -1):
            route_segment(w=states[1, r - 1], ds=ds[r])
            finish_hub(s=states[0, r - 1], dw=dw, ds=ds[r - 1], slopes=slopes)
        route_segment(w=states[1], ds=ds, BACK=True, **results)
    if by_edge and dz is not None:  # torch adds in a fixed order, because its deterministic algorithms are on
        dz = zeros(*z.shape).index_add(0, edges.src.long(), dz.index_select(0, edges.eid))
    dkappa = (slopes * ratio).sum(0) / kappa if needed[2] else None
    return None if dz is None else dz.view(z.shape).to(z.dtype), dscale, dkappa


route_nodes = operator("route_nodes", _forward, _shapes, _differentiate, kept=0)
