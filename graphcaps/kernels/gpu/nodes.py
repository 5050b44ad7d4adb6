"""Routing among the capsules of each node, on a GPU. The formulas are those of `..cpu.by_node`.

Without ``mutual``, one program runs all iterations of a node; another one recomputes them for the gradient. The rows of
a hub, a node of more than SEGMENT in-edges, are cut into segments: each iteration is a launch that sums the votes of
each segment, and one that adds up a hub's segments and computes its next w. A last launch, `finish_node`, squashes.

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

from ...algorithms.rule import Rule
from ...algorithms.votes import Finish, NodeVotes
from ...graph.links import ByParent, Links, kept
from ..dispatch import Sums
from ..operators import new_results, operator, or_none
from . import kernels_nodes as kernels

SEGMENT = 128


class Hubs(NamedTuple):
    """The nodes whose edges are cut into segments; all are int32."""

    hubs: Tensor  # (H,): the nodes
    first: Tensor  # (H + 1,): the segments of hub h are first[h]:first[h + 1]
    hub_of: Tensor  # (segments,): the h of each segment


@kept
def edges_by_node(links: Links, mutual: bool) -> tuple[ByParent, Hubs | None]:
    """Sort a graph's edges by destination. This waits for the device, except in a program that torch traces.

    There the number of hubs isn't known, so the operator finds them, and waits for the device in each call.
    """
    order = links.by_parent(mutual)
    return order, None if links.traced else find_hubs(order.indptr, mutual)


def find_hubs(ptr: Tensor, mutual: bool) -> Hubs:
    """Find the nodes with more than SEGMENT in-edges; with ``mutual``, all nodes. This waits for the device."""
    degrees = ptr.diff()
    hubs = (degrees > (-1 if mutual else SEGMENT)).nonzero().flatten()
    segments = (degrees[hubs] + SEGMENT - 1) // SEGMENT
    hub_of = torch.arange(len(hubs), device=ptr.device).repeat_interleave(segments)
    first = torch.cat([segments.new_zeros(1), segments.cumsum(0)])
    return Hubs(*(x.to(torch.int32) for x in (hubs, first, hub_of)))


def sums_by_node(links: Links, votes: NodeVotes, rule: Rule, mutual: bool, coupling: bool) -> Sums:
    """Return the last s (N, K, D) in float32, with ``coupling`` the last couplings (E, K), detached, and finished s.

    Votes have no trailing dims and no prior. The gradient of z is the same in each run if torch's deterministic
    algorithms are on, but takes more memory. Sums are then not finished here.
    """
    z, scale, deterministic = votes.u, votes.scale, torch.are_deterministic_algorithms_enabled()
    if scale is not None:
        scale = scale.float().expand(links.num_edges, z.shape[1]).contiguous()
    kappa = None if rule.kappa is None else rule.kappa.float()
    finish = None if deterministic else votes.finish
    parts = [None if x is None else x.float().contiguous() for x in finish or [None] * 4]
    by_node, hubs = edges_by_node(links, mutual)
    settings = rule.iterations, mutual, votes.per_edge, coupling, deterministic, finish is not None, hubs is None
    s, v, c = route_by_node(z, scale, kappa, *parts, *by_node, *(hubs or (None, None, None)), settings=settings)
    return Sums(s, c if coupling else None, None if finish is None else v)


@dataclass(frozen=True)
class Sizes:
    """The constants of a kernel. Those with a default are routing's."""

    K: int
    D: int
    PADDED_K: int
    PADDED_D: int
    ROWS: int  # rows at a time
    SEGMENT: int = 0  # edges, a power of two
    ADDS: bool = False  # without kappa: squash(s) is added to the w before
    ATOMIC: bool = False  # whether edges with the same source add their gradients up


class _Call(NamedTuple):
    """The arguments of the operator, and what follows from them."""

    z: Tensor  # (N, K, D) or (E, K, D)
    scale: Tensor | None  # (E, K)
    kappa: Tensor | None  # ()
    finish: Finish
    edges: ByParent
    hubs: Hubs
    iterations: int
    mutual: bool
    per_edge: bool
    coupling: bool
    deterministic: bool
    finishes: bool


def _call(tensors: list[Tensor], settings: list[int]) -> _Call:
    edges, (iterations, *flags, finds_hubs) = ByParent(*tensors[7:11]), settings
    hubs = find_hubs(edges.indptr, bool(flags[0])) if finds_hubs else Hubs(*tensors[11:14])
    scale, kappa, *finish = map(or_none, tensors[1:7])
    return _Call(tensors[0], scale, kappa, Finish(*finish), edges, hubs, iterations, *map(bool, flags))


def launches(backward: bool, call: _Call, per_rho: Tensor) -> list[Callable[..., Any]]:
    """Return the launches of `route_node`, `route_segment`, `finish_hub` and `finish_node`, with what they share.

    States of hubs have as many rows in each iteration as ``per_rho``, which is 1 / rho of each hub.
    """
    z, scale, kappa, finish, edges, (hubs, first, hub_of) = call[:6]
    padded = [triton.next_power_of_2(size) for size in z.shape[1:]]
    numbers, atomic = padded[0] * padded[1], not (call.per_edge or call.deterministic)
    sizes = Sizes(*(*z.shape[1:], *padded, max(1, min(16, 512 // numbers)), SEGMENT, kappa is None, atomic))
    warps = max(1, min(8, numbers // (128 if backward else 256)))
    rows = z.contiguous(), scale, edges.eid if call.per_edge else edges.src, edges.eid
    reverse = (edges.reverse, edges.src) if call.mutual else (None, None)
    sums = per_rho.new_empty(len(hub_of), *z.shape[1:])
    squares = per_rho.new_empty(len(hub_of), z.shape[1])

    def launch(kernel: Any, programs: int, *arguments: Any, warps: int = warps) -> Callable[..., Any]:
        return partial(kernel[(programs,)], *arguments, sizes, num_warps=warps) if programs else lambda **_: None

    of_node, of_hub, num_nodes = (edges.indptr, kappa), (sums, squares, per_rho), len(edges.indptr) - 1
    of_segment = *rows, *reverse, *of_node, hubs, first, hub_of, *of_hub, len(per_rho)
    return [
        launch(kernels.route_node, 0 if call.mutual else num_nodes, *rows, *of_node, call.iterations),
        launch(kernels.route_segment, len(hub_of), *of_segment, call.iterations),
        launch(kernels.finish_hub, len(hubs), *of_node, hubs, first, *of_hub, warps=4),
        launch(kernels.finish_node, num_nodes if call.finishes else 0, rows[2], edges.indptr, *finish),
    ]


def _shapes(tensors: list[Tensor], settings: list[int]) -> list[tuple[int, ...]]:
    """Return the shapes of what `_forward` returns."""
    z, (ptr, src), (iterations, mutual, _, coupling, _, finishes, finds_hubs) = tensors[0], tensors[7:9], settings
    num_nodes, dims, most_hubs = ptr.shape[0] - 1, z.shape[1:], tensors[11].shape[0]
    if finds_hubs:  # their number isn't known
        most_hubs = num_nodes if mutual else src.shape[0] // (SEGMENT + 1)
    s, c, states = (num_nodes, *dims), (src.shape[0], dims[0]), (2, iterations - 1, most_hubs, *dims)
    return [s, s if finishes else (0,), c if coupling else (0,), states, (most_hubs, dims[0])]


def _forward(tensors: list[Tensor], settings: list[int]) -> list[Tensor]:
    """Return s and v (N, K, D), the last couplings (E, K), the hubs' (s, w), and their 1 / rho.

    v and the couplings are empty unless wanted. The tensors are z, scale, kappa (), `Finish`, `ByParent` and `Hubs`.
    """
    sums, v, coupling, states, per_rho = new_results(tensors, _shapes(tensors, settings))
    call = _call(tensors, settings)
    route_node, route_segment, finish_hub, finish_node = launches(False, call, per_rho)
    coupled = coupling.fill_(1 / sums.shape[1]) if call.coupling else None
    with torch.cuda.device_of(sums):
        route_node(sums=sums, coupling=coupled)
        for r in range(call.iterations):
            last, w = r == call.iterations - 1, states[1, r - 1] if r else None
            route_segment(w=w, coupling=coupled if last else None)
            after = {"result": sums} if last else {"s": states[0, r], "w_after": states[1, r]}
            finish_hub(w=w, **after)
        finish_node(s=sums, v=v)
    return [sums, v, coupling, states, per_rho]


def _differentiate(
    grads: list[Tensor], saved: list[Tensor], settings: list[int], needed: list[bool]
) -> tuple[Tensor | None, ...]:
    """Return the gradients of z, scale, kappa and ``Finish``."""
    call, (s, states, per_rho), (grad, dv) = _call(saved[:14], settings), saved[14:], grads
    z, edges, hubs, iterations, dims = call.z, call.edges, call.hubs.hubs, call.iterations, s.shape[1:]
    most_hubs, num_edges, grad = len(per_rho), len(edges.src), grad.contiguous()
    route_node, route_segment, finish_hub, finish_node = launches(True, call, per_rho)
    zeros = partial(torch.zeros, dtype=torch.float32, device=z.device)
    dpower = zeros(*saved[3].shape) if needed[3] else None
    dbias = dresidual = down_power = None
    by_edge = call.deterministic and not call.per_edge  # kernels store each edge's gradient, and don't add it to dz
    dz = zeros(num_edges if by_edge else len(z), *dims) if needed[0] else None
    dscale = zeros(num_edges, dims[0]) if needed[1] else None
    ds, dw = zeros(iterations, most_hubs, *dims), zeros(most_hubs, *dims)
    slopes = (s.new_zeros if len(hubs) else s.new_empty)(s.shape[:2])  # hubs add theirs
    results = {"dz": dz, "dscale": dscale, "slopes": slopes}
    with torch.cuda.device_of(z):
        if dv.dim() == 3:  # a gradient that is absent is (0,), that of a graph without nodes (0, K, D)
            of_v, dy = torch.empty_like(s), torch.empty_like(s)
            dresidual, down_power = (torch.empty_like(saved[at]) if needed[at] else None for at in (5, 6))
            of_finish = {"dresidual": dresidual, "dpower": dpower, "down_power": down_power}
            finish_node(s=s, grad=dv.contiguous(), ds=of_v, dy=dy, **of_finish)
            grad, dbias = grad + of_v if grad.dim() == 3 else of_v, dy.sum(0) if needed[4] else None
        ds[-1, : len(hubs)] = grad.index_select(0, hubs)
        route_node(grad=grad, **results)
        for r in range(iterations - 1, 0, -1):
            route_segment(w=states[1, r - 1], ds=ds[r])
            finish_hub(s=states[0, r - 1], dw=dw, ds=ds[r - 1], slopes=slopes)
        route_segment(w=states[1], ds=ds, BACK=True, **results)
    if by_edge and dz is not None:  # torch adds in a fixed order, because its deterministic algorithms are on
        dz = zeros(*z.shape).index_add(0, edges.src.long(), dz.index_select(0, edges.eid))
    dkappa = slopes.sum() if call.kappa is not None and needed[2] else None
    dz = None if dz is None else dz.view(z.shape).to(z.dtype)
    return dz, dscale, dkappa, dpower, dbias, dresidual, down_power, *[None] * 7


route_by_node = operator("by_node_on_gpu", _forward, _shapes, _differentiate, differentiable=2, by_triton=True)
