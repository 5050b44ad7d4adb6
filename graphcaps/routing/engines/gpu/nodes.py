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

from ...._dgl import DGLGraph
from ....graph import cached_per_structure, links, reverse_edges
from ...second_derivative import _Refused
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
def edges_by_node(graph: DGLGraph, device: torch.device, mutual: bool, by_source: bool = False) -> EdgesByNode:
    """Sort a graph's edges by destination, or the reversed graph's. This waits for the device."""
    ends = links(graph, device)
    src, dst, num_nodes = ends.src, ends.dst, ends.num_parents
    if by_source:
        src, dst, num_nodes = dst, src, ends.num_children
    eid = torch.argsort(dst, stable=True)
    degrees = dst.new_zeros(num_nodes).index_add(0, dst, torch.ones_like(dst))
    hubs = (degrees > (-1 if mutual else SEGMENT)).nonzero().flatten()
    segments = (degrees[hubs] + SEGMENT - 1) // SEGMENT
    hub_of = torch.arange(len(hubs), device=device).repeat_interleave(segments)
    back = reverse_edges(graph).to(device) if mutual else eid[:0]
    ptr, first = (torch.cat([x.new_zeros(1), x.cumsum(0)]) for x in (degrees, segments))
    arrays = ptr, src[eid], eid, hubs, first, hub_of, *(x[eid] if mutual else x[:0] for x in (dst, back))
    return EdgesByNode(*(x.to(torch.int32) for x in arrays))


def sums_of_nodes(
    graph: DGLGraph,
    z: Tensor,
    scale: Tensor | None,
    kappa: Tensor | None,
    iterations: int,
    mutual: bool = False,
    per_edge: bool = False,
    get_coupling: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """`..cpu.by_node.sums_of_nodes` for z in float32, bfloat16 or float16; the results are float32.

    The gradient of z is the same in each run if torch's deterministic algorithms are on, but takes more memory.
    """
    edges = list(edges_by_node(graph, z.device, mutual))
    if torch.are_deterministic_algorithms_enabled() and not per_edge:
        edges += edges_by_node(graph, z.device, False, by_source=True)
    if scale is not None:
        scale = scale.float().expand(len(edges[1]), *z.shape[1:3]).contiguous()
    kappa = None if kappa is None else kappa.float().expand(z.shape[2]).contiguous()
    s, c, _, _ = forward(z, scale, kappa, edges, iterations, mutual, per_edge, get_coupling)
    return s, c if get_coupling else None


def products_of_nodes(graph: DGLGraph, z: Tensor) -> Tensor:
    """(E, K): on each edge the products of the capsules z (N, K, D) of its ends, without a gradient.

    They are the gradient by ``scale`` of sums in which all couplings are 1 / K.
    """
    edges, nothing = list(edges_by_node(graph, z.device, False)), z.new_empty(2, 0)
    given = (z * z.shape[1]).float(), nothing, nothing, z.unsqueeze(1), None, None
    return backward(*given, edges, 1, False, False, False, True)[1].squeeze(1)


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
    ADDS: bool  # whether the next w is added to the one before
    ATOMIC: bool  # whether edges with the same source add their gradients up


def launches(backward, z, scale, kappa, edges, iterations, mutual, per_edge) -> list[Callable[..., Any]]:
    """Return the launches of `route_node`, `route_segment` and `finish_hub`, with the arguments that they share."""
    ptr, src, eid, hubs, first, hub_of, dst, back_eid = edges[:8]
    padded = [triton.next_power_of_2(size) for size in z.shape[2:]]
    numbers, atomic = padded[0] * padded[1], not per_edge and len(edges) == 8
    sizes = Sizes(*(*z.shape[1:], *padded, max(1, min(16, 512 // numbers)), SEGMENT, kappa is None, atomic))
    warps = max(1, min(8, numbers // (128 if backward else 256)))
    rows = z.contiguous(), scale, eid if per_edge else src, eid
    back = (back_eid if per_edge else dst, back_eid, src) if mutual else (None, None, None)
    num_hubs, num_segments = len(hubs), len(hub_of)
    sums = [z.new_empty(num_segments, *size, dtype=torch.float32) for size in (z.shape[2:], z.shape[2:3])]

    def launch(kernel: Any, programs: int, *given: Any, warps: int = warps) -> Callable[..., Any]:
        return partial(kernel[(programs,)], *given, sizes, num_warps=warps) if programs else lambda **_: None

    segment = *rows, *back, ptr, hubs, first, hub_of, *sums, num_hubs, iterations
    return [
        launch(kernels.route_node, 0 if mutual else len(ptr) - 1, *rows, ptr, kappa, iterations),
        launch(kernels.route_segment, num_segments, *segment),
        launch(kernels.finish_hub, num_hubs, *sums, ptr, hubs, first, kappa, warps=4),
    ]


@torch.library.custom_op(
    "graphcaps::route_nodes",
    mutates_args=(),
    schema="(Tensor z, Tensor? scale, Tensor? kappa, Tensor[] edges, int iterations, bool mutual, bool per_edge, "
    "bool get_coupling) -> (Tensor, Tensor, Tensor, Tensor)",
)
def forward(z, scale, kappa, edges, iterations, mutual, per_edge, get_coupling):
    """Return s (N, K, D), the last couplings (E, K_in, K) or an empty tensor, and the hubs' (s, w) and squares.

    ``edges`` is `EdgesByNode`. If that of the reversed graph follows, the gradient of z is deterministic.
    """
    given = z, scale, kappa, edges, iterations, mutual, per_edge
    sums, coupling, states, squares = _outputs(*given, get_coupling)
    route_node, route_segment, finish_hub = launches(False, *given)
    coupled = coupling.fill_(1 / z.shape[2]) if get_coupling else None
    with torch.cuda.device_of(z):
        route_node(sums=sums, coupling=coupled)
        for r in range(iterations):
            last, w = r == iterations - 1, states[1, r - 1] if r else None
            route_segment(w=w, coupling=coupled if last else None)
            after = {"result": sums} if last else {"s": states[0, r], "w_after": states[1, r]}
            finish_hub(squares=squares, FIRST=r == 0, w=w, **after)
    return sums, coupling, states, squares


@forward.register_fake
def _outputs(z, scale, kappa, edges, iterations, mutual, per_edge, get_coupling):
    num_nodes, num_edges, num_hubs = edges[0].shape[0] - 1, edges[1].shape[0], edges[3].shape[0]
    coupling = (num_edges, *z.shape[1:3]) if get_coupling else (0,)
    shapes = (num_nodes, *z.shape[2:]), coupling, (2, iterations - 1, num_hubs, *z.shape[2:]), (num_hubs, z.shape[2])
    return tuple(z.new_empty(shape, dtype=torch.float32) for shape in shapes)


@torch.library.custom_op(
    "graphcaps::route_nodes_backward",
    mutates_args=(),
    schema="(Tensor grad, Tensor states, Tensor squares, Tensor z, Tensor? scale, Tensor? kappa, Tensor[] edges, "
    "int iterations, bool mutual, bool per_edge, bool wants_z, bool wants_scale) -> (Tensor, Tensor, Tensor)",
)
def backward(grad, states, squares, z, scale, kappa, edges, iterations, mutual, per_edge, wants_z, wants_scale):
    """Return the gradients of z, scale and kappa; those that aren't wanted are empty."""
    num_edges, num_hubs, (caps_in, *dims) = len(edges[1]), len(edges[3]), z.shape[1:]
    route_node, route_segment, finish_hub = launches(True, z, scale, kappa, edges, iterations, mutual, per_edge)
    zeros = partial(torch.zeros, dtype=torch.float32, device=z.device)
    by_edge = len(edges) > 8 and not per_edge
    dz = zeros((num_edges if by_edge else len(z)) * wants_z, caps_in, *dims)
    dscale = zeros(num_edges * wants_scale, caps_in, dims[0])
    dkappa, dratio, through_rho = (zeros(size, dims[0]) for size in (len(edges[0]) - 1, num_hubs, num_hubs))
    ds, dw = zeros(iterations, num_hubs, *dims), zeros(num_hubs, *dims)
    grad = grad.contiguous()
    ds[-1] = grad.index_select(0, edges[3])
    results = {"dz": dz if wants_z else None, "dscale": dscale if wants_scale else None}
    with torch.cuda.device_of(z):
        route_node(grad=grad, **results, dkappa=dkappa)
        for r in range(iterations - 1, 0, -1):
            route_segment(w=states[1, r - 1], ds=ds[r])
            first = {"through_rho": through_rho, "dkappa": dkappa} if r == 1 else {}
            finish_hub(squares=squares, s=states[0, r - 1], dw=dw, ds=ds[r - 1], dratio=dratio, **first)
        route_segment(w=states[1], ds=ds, through_rho=through_rho, **results)
    if by_edge and wants_z:  # route the gradients of edges back to their sources: each is the only capsule of its edge
        votes = dz.view(num_edges, 1, -1, dims[1])
        dz = forward(votes, None, None, edges[8:], 1, False, True, False)[0] * votes.shape[2]
    return dz.view(z.shape).to(z.dtype) if wants_z else dz, dscale, dkappa.sum(0)


@backward.register_fake
def _gradients(grad, states, squares, z, scale, kappa, edges, iterations, mutual, per_edge, wants_z, wants_scale):
    dz = z.new_empty(z.shape) if wants_z else z.new_empty(0, *z.shape[1:], dtype=torch.float32)
    dscale = z.new_empty(edges[1].shape[0] * wants_scale, *z.shape[1:3], dtype=torch.float32)
    return dz, dscale, z.new_empty(z.shape[2], dtype=torch.float32)


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    z, scale, kappa, edges, *settings = inputs
    _, coupling, states, squares = output
    ctx.mark_non_differentiable(coupling, states, squares)
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(z, scale, kappa, states, squares, *edges)
    ctx.settings = settings[:3]


def _backward(ctx: Any, grad: Tensor, *_: Tensor | None) -> tuple[Any, ...]:
    z, scale, kappa, states, squares, *edges = ctx.saved_tensors
    wanted = ctx.needs_input_grad[:2]
    dz, dscale, dkappa = backward(grad, states, squares, z, scale, kappa, edges, *ctx.settings, *wanted)
    gradients = dz if wanted[0] else None, dscale if wanted[1] else None, None if kappa is None else dkappa
    return *gradients, [None] * len(edges), None, None, None, None


forward.register_autograd(_backward, setup_context=_save)
backward.register_autograd(_Refused.backward)
