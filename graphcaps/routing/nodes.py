"""Routing from the capsules of nodes to those of their neighbours, which the layers for graph networks are made of."""

from __future__ import annotations

import copy
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .._dgl import DGLGraph, dgl, ops
from ..errors import expect
from ..graph import Links, cached_per_structure, expand, links, reverse_edges
from ..graph.links import is_tracing
from .api import route_checked
from .chunks import NodeVotes as ChunkedVotes
from .chunks import products_along, sum_along
from .dynamic import Dynamic
from .edges import ScatterEdges
from .engines import asked_engine, run_on
from .observers import combined_on_nodes, watched
from .routing import Routing
from .second_derivative import once_differentiable
from .spherical import Spherical
from .uniform import Uniform

LARGEST = 1024  # numbers of a node, K_out * D: the time to compile its kernel grows with them


class Capsules(NamedTuple):
    """Sums ``s`` (N_dst, *, K_out, D), not squashed, and if wanted couplings ``c`` (E, *, K_in, K_out), detached."""

    s: Tensor
    c: Tensor | None


class NodeVotes(NamedTuple):
    """The votes of a graph's nodes, or of its edges."""

    z: Tensor
    """(N_src, *, K_in, K_out, D), what capsule k of a node says to capsule l of each neighbour; or (E, ...)."""
    scale: Tensor | None
    """Broadcastable with (E, *, K_in, K_out), how long each vote is made along its edge."""
    per_edge: bool = False
    """Whether z is (E, *, K_in, K_out, D)."""


def route_nodes(
    graph: DGLGraph | Links, votes: NodeVotes, routing: Routing, mutual: bool = False, get_coupling: bool = False
) -> tuple[Tensor, Tensor | None]:
    """Sums (N_dst, *, K_out, D), unsquashed, and couplings (E, *, K_in, K_out), detached, or None."""
    routing = copy.copy(routing)
    routing.mutual = mutual
    if isinstance(graph, Links):
        u = votes.z if votes.per_edge else votes.z.index_select(0, graph.src)
        u = u if votes.scale is None else u * votes.scale.unsqueeze(-1)
        return route_traced(graph, u, routing, get_coupling)
    return route_by_node(graph, votes.z, votes.scale, routing, get_coupling, votes.per_edge)


def route_edges(graph: DGLGraph, votes: Tensor, routing: Routing, get_coupling: bool) -> Capsules:
    """``route`` of votes (E, *, K_in, K_out, D), from capsules of an edge's source to those of its destination.

    Args:
        graph: any with one canonical edge type; E edges from N_src to N_dst nodes.
        votes: in edge order, of unit length where the routing wants them so.
        routing: the algorithm.
        get_coupling: whether couplings are wanted.
    """
    caps_in, caps_out = votes.shape[-3:-1]
    last: dict[str, Tensor] = {}
    s = route_checked(
        expand(graph, caps_in, caps_out),
        votes.movedim((-3, -2), (1, 2)).flatten(0, 2),  # (E * K_in * K_out, *, D)
        routing,
        on_iteration=(lambda r, b, c, v, agreement: last.update(c=c)) if get_coupling else None,
    ).pose
    s = s.unflatten(0, (graph.num_dst_nodes(), caps_out)).movedim(1, -2)
    if not get_coupling:
        return Capsules(s, None)
    return Capsules(s, last["c"].unflatten(0, (len(votes), caps_in, caps_out)).movedim((1, 2), (-2, -1)))


def route_by_node(
    graph: DGLGraph,
    z: Tensor,
    scale: Tensor | None,
    routing: Routing,
    get_coupling: bool,
    own: bool = False,
) -> Capsules:
    """``route_edges`` of what nodes have to say, or of the votes of each edge.

    Where a node says the same along all of its edges, the fused engine reads its votes for each edge, and never makes
    the votes (E, K_in, K_out, D). Engine torch makes them for a chunk of edges at a time where K_in is 1.

    Args:
        graph: with a reverse for each edge and K_in = 1 where the routing is ``mutual``.
        z: (N_src, *, K_in, K_out, D), what capsule k of a node has to say to capsule l of each neighbour.
        scale: (E, *, 1 or K_in, 1 or K_out), how long votes are made along an edge, or None.
        own: whether z is (E, *, K_in, K_out, D), the votes of each edge.
    """
    if _has_passes_by_node(z, routing):
        kappa = routing.kappa.to(z.dtype) if isinstance(routing, Spherical) else None
        iterations = 1 if isinstance(routing, Uniform) else routing.iterations
        given = graph, z, scale, kappa, iterations, get_coupling, own
        if routing.mutual:  # Numba takes half a second to import
            from .fused.cpu import mutual

            return Capsules(*mutual.route_mutually(*given, False))
        from .fused.cpu import nodes

        return Capsules(*nodes.route_nodes(*given))
    if not own and _in_chunks(z, routing):
        of_nodes = ChunkedVotes(z.squeeze(-3), None if scale is None else scale.to(z.dtype).squeeze(-2))
        return _route_own(_own_edges(graph, z, routing), of_nodes, routing, get_coupling, graph)
    votes = z if own else z.index_select(0, links(graph, z.device).src)
    if scale is not None:
        votes = votes * scale.to(votes.dtype).unsqueeze(-1)
    if routing.mutual:
        return route_mutually(graph, votes, routing, get_coupling)
    return route_edges(graph, votes, routing, get_coupling)


class _OwnEdges(ScatterEdges):
    """Edges of nodes whose K capsules compete, in the numbers' last dim. Votes may be ``NodeVotes``."""

    def weighted_sum(self, c: Tensor, u_hat: Tensor | ChunkedVotes) -> Tensor:
        if isinstance(u_hat, Tensor):
            return super().weighted_sum(c, u_hat)
        numbers = c if u_hat.scale is None else c * u_hat.scale
        return sum_along(u_hat.z, numbers, self.ends.src, self.ends.dst, self.ends.num_parents)

    def agreement(self, u_hat: Tensor | ChunkedVotes, v: Tensor) -> Tensor:
        if isinstance(u_hat, Tensor):
            return super().agreement(u_hat, v)
        found = products_along(u_hat.z, v, self.ends.src, self.ends.dst)
        return found if u_hat.scale is None else found * u_hat.scale

    def squared_lengths(self, u_hat: Tensor | ChunkedVotes) -> Tensor:
        if isinstance(u_hat, Tensor):
            return super().squared_lengths(u_hat)
        found = self.from_children(super().squared_lengths(u_hat.z))
        return found if u_hat.scale is None else found * u_hat.scale.square()

    def child_softmax(self, b: Tensor) -> Tensor:
        return b.softmax(dim=-1)

    def child_sum(self, x: Tensor) -> Tensor:
        return x.sum(dim=-1, keepdim=True).expand_as(x)

    def child_max(self, x: Tensor) -> Tensor:
        return x.detach().amax(dim=-1, keepdim=True).expand_as(x)


class _MutualEdges(_OwnEdges):
    """An edge's agreement is its reverse's too."""

    def __init__(self, ends: Links, reverse: Tensor):
        super().__init__(ends)
        self.reverse = reverse

    def agreement(self, u_hat: Tensor | ChunkedVotes, v: Tensor) -> Tensor:
        own = super().agreement(u_hat, v)
        return own + own.index_select(0, self.reverse)


def route_mutually(graph: DGLGraph, votes: Tensor, routing: Routing, get_coupling: bool) -> Capsules:
    """``route_edges`` of one capsule per source, where the two directions of an edge share their logits.

    Args:
        graph: homogeneous, with a reverse for each edge.
        votes: (E, *, 1, K_out, D), in edge order; those of an edge compete among themselves.

    Raises:
        InputError: edges without a reverse, or another engine than torch asked for.
    """
    asked = asked_engine()
    expect(asked in ("auto", "torch"), "engine", "'auto' or 'torch' with mutual=True", repr(asked))
    return _route_own(_own_edges(graph, votes, routing), votes.squeeze(-3), routing, get_coupling, graph)


def _own_edges(graph: DGLGraph, like: Tensor, routing: Routing) -> _OwnEdges:
    ends = links(graph, like.device)
    return _MutualEdges(ends, reverse_edges(graph).to(like.device)) if routing.mutual else _OwnEdges(ends)


def route_traced(ends: Links, votes: Tensor, routing: Routing, get_coupling: bool) -> Capsules:
    """``route_edges`` of one capsule per source, those of an edge competing: without a graph, on edges torch traces."""
    return _route_own(_OwnEdges(ends), votes.squeeze(-3), routing, get_coupling, None)


def _route_own(edges: _OwnEdges, votes: Any, routing: Routing, get_coupling: bool, graph: DGLGraph | None) -> Capsules:
    """Votes are (E, *, K, D), or ``NodeVotes``."""
    of = votes.z if isinstance(votes, ChunkedVotes) else votes
    prior = of.new_zeros(edges.ends.src.shape[0], *of.shape[1:-1])
    last: dict[str, Tensor] = {}
    own = (lambda r, b, c, v, agreement: last.update(c=c.detach())) if get_coupling else None
    edges.observer = own if graph is None else combined_on_nodes(graph, of.shape[-2], own)
    s = run_on(edges, routing, votes, prior).pose
    return Capsules(s, last["c"].unsqueeze(-2) if get_coupling else None)


def sum_weighted(graph: DGLGraph, z: Tensor, weight: Tensor) -> Tensor:
    """For each node the sum over its in-edges of their weights (E, K) times the source's z (N_src, K, D)."""
    if _fits_kernels(z.unsqueeze(1)):
        from .fused.cpu.nodes import route_nodes as fused

        # One iteration, in which couplings are equal, 1 / K.
        return fused(graph, z.unsqueeze(1), weight.unsqueeze(1) * z.shape[1], None, 1, False)[0]
    ends = links(graph, z.device)
    if not is_tracing():
        return sum_along(z, weight, ends.src, ends.dst, ends.num_parents)
    along = weight.unsqueeze(-1) * z.index_select(0, ends.src)
    return z.new_zeros(ends.num_parents, *z.shape[1:]).index_add(0, ends.dst, along)


def products_of_ends(graph: DGLGraph, z: Tensor) -> Tensor:
    """(E, K), on each edge <z_u, z_v> of both ends' z (N, K, D), of a graph whose sources are its destinations."""
    if _fits_kernels(z.unsqueeze(1)):
        return _ProductsOfEnds.apply(z, graph)
    ends = links(graph, z.device)
    if not is_tracing():
        return products_along(z, z, ends.src, ends.dst)
    return (z.index_select(0, ends.src) * z.index_select(0, ends.dst)).sum(-1)


@cached_per_structure
def _reversed(graph: DGLGraph) -> DGLGraph:
    return dgl.reverse(graph, copy_ndata=False, copy_edata=False)


class _ProductsOfEnds(torch.autograd.Function):
    """``products_of_ends`` by DGL; its gradient for both ends by ``sum_weighted``, which is faster."""

    @staticmethod
    def forward(ctx: Any, z: Tensor, graph: DGLGraph) -> Tensor:
        ctx.save_for_backward(z)
        ctx.graph = graph
        return ops.u_dot_v(graph, z, z).squeeze(-1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (z,) = ctx.saved_tensors
        return sum_weighted(ctx.graph, z, grad) + sum_weighted(_reversed(ctx.graph), z, grad), None


def _in_chunks(z: Tensor, routing: Routing) -> bool:
    """Whether engine torch routes votes that aren't made: on a CPU where nothing else would, or it is asked for."""
    asked = asked_engine()
    here = asked == "torch" or (asked == "auto" and (z.device.type != "cpu" or routing.mutual))
    return here and type(routing) in (Spherical, Dynamic, Uniform) and z.shape[-3] == 1 and not is_tracing()


def _has_passes_by_node(z: Tensor, routing: Routing) -> bool:
    return (
        type(routing) in (Spherical, Dynamic, Uniform)
        and _fits_kernels(z)
        and not watched()  # the fused pass makes no couplings of single iterations
    )


def _fits_kernels(z: Tensor) -> bool:
    return (
        asked_engine() in ("auto", "fused")
        and z.device.type == "cpu"
        and z.dim() == 4
        and z.dtype in (torch.float32, torch.float64)
        and z.shape[-2] * z.shape[-1] <= LARGEST
        and not is_tracing()
    )
