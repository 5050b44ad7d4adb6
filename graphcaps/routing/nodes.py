"""Routing from a node's capsules to those of its neighbours: the core of the layers for graph networks."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .._dgl import DGLGraph, dgl, ops
from ..errors import GraphcapsError, expect
from ..graph import Links, cached_per_structure, expand, links, reverse_edges
from ..graph.links import is_tracing
from .engines import asked_engine
from .engines.chunks import products_along, sum_along
from .engines.nodes import NodeEdges, NodeVotes
from .observers import observer_on_nodes, watched
from .routing import Routing, rule_of
from .second_derivative import once_differentiable
from .votes import GivenVotes

MAX_NODE_NUMBERS = 1024  # limit of K_out * D, because the time to compile a kernel grows with it

__all__ = ["NodeVotes", "products_of_ends", "route_nodes", "sum_weighted"]


def route_nodes(
    graph: DGLGraph | Links, votes: NodeVotes, routing: Routing, mutual: bool = False, get_coupling: bool = False
) -> tuple[Tensor, Tensor | None]:
    """Route the capsules of each edge's source to those of its destination. A softmax is over the votes along an edge.

    Args:
        graph: E edges from N_src to N_dst nodes, as a graph, or as ``Links`` if torch traces.
        votes: made from z (N_src, *, K_in, K_out, D), or with ``per_edge`` from z (E, *, K_in, K_out, D).
        routing: an algorithm with poses that are sums of votes.
        mutual: whether the two directions of an edge share their logits. Each edge then needs a reverse, and K_in = 1.
        get_coupling: whether to return couplings.

    Returns:
        The last sums s (N_dst, *, K_out, D), not squashed, and the couplings (E, *, K_in, K_out), detached, or None.
    """
    asked, unsupported = asked_engine(), _unsupported_by_kernels(graph, votes, routing)
    if asked in ("auto", "fused") and not unsupported:
        from .engines.cpu.nodes import route_nodes as by_kernels  # Numba takes half a second to import

        rule = rule_of(routing)
        assert rule is not None
        how = rule.kappa, rule.iterations, mutual, votes.per_edge, get_coupling
        return by_kernels(graph, votes.u, votes.scale, *how)
    if asked not in ("auto", "torch") and isinstance(graph, DGLGraph):
        then = f"Engine fused lacks {unsupported}" if asked == "fused" else ""
        expect(not mutual, "engine", "'auto' or 'torch' with mutual=True", repr(asked), then)
        return _route_expanded(graph, votes, routing, get_coupling)
    ends = graph if isinstance(graph, Links) else links(graph, votes.device)
    edges = NodeEdges(ends, votes, reverse_edges(graph).to(votes.device) if mutual else None)
    if isinstance(graph, DGLGraph):
        edges.observer = observer_on_nodes(graph, *votes.u.shape[-3:-1])
    prior = votes.u.new_zeros(ends.src.shape[0], *votes.u.shape[1:-1])
    in_chunks = not votes.per_edge and rule_of(routing) is not None and not is_tracing()
    found = edges.run(routing, votes if in_chunks else votes.build(ends), prior)
    return found.pose, _couplings(routing, found.coupling) if get_coupling else None


def _route_expanded(
    graph: DGLGraph, votes: NodeVotes, routing: Routing, get_coupling: bool
) -> tuple[Tensor, Tensor | None]:
    """``route_nodes`` with an engine for bipartite graphs, on the graph of all capsules."""
    from .api import routed

    u_hat = votes.build(graph)
    caps_in, caps_out = u_hat.shape[-3:-1]
    given = GivenVotes(u_hat.movedim((-3, -2), (1, 2)).flatten(0, 2))  # (E * K_in * K_out, *, D)
    found = routed(expand(graph, caps_in, caps_out), given, routing, coupling=get_coupling)
    s = found.pose.unflatten(0, (graph.num_dst_nodes(), caps_out)).movedim(1, -2)
    if not get_coupling:
        return s, None
    c = _couplings(routing, found.coupling)
    return s, c.unflatten(0, (graph.num_edges(), caps_in, caps_out)).movedim((1, 2), (-2, -1))


def _couplings(routing: Routing, coupling: Tensor | None) -> Tensor:
    if coupling is None:
        raise GraphcapsError(
            f"{type(routing).__name__}: expected forward to give Parents with couplings, got sums alone. "
            "Return graphcaps.routing.squashed(s, c)"
        )
    return coupling.detach()


def _unsupported_by_kernels(graph: DGLGraph | Links, votes: NodeVotes, routing: Routing) -> str:
    """Return what the kernels by node lack, for an error message, or "" if they can run."""
    rule = rule_of(routing)
    if rule is None or rule.query == "sums":
        return "passes for such a routing"
    if watched():
        return "couplings of single iterations, which an observer is to see"
    return (
        ""
        if _fits_kernels(votes.u)
        else "passes for other votes than float32 or float64 (N, K_in, K_out, D) on the CPU"
    )


def _fits_kernels(z: Tensor) -> bool:
    """Whether the kernels by node support z (N, K_in, K_out, D)."""
    return (
        z.device.type == "cpu"
        and z.dim() == 4
        and z.dtype in (torch.float32, torch.float64)
        and z.shape[-2] * z.shape[-1] <= MAX_NODE_NUMBERS
        and not is_tracing()
    )


def sum_weighted(graph: DGLGraph, z: Tensor, weight: Tensor) -> Tensor:
    """(N_dst, K, D): for each node, the sum over its in-edges of weight (E, K) times the source's z (N_src, K, D)."""
    if asked_engine() in ("auto", "fused") and _fits_kernels(z.unsqueeze(1)):
        from .engines.cpu.nodes import route_nodes as by_kernels

        # In a single iteration all couplings are 1 / K, so the weights are multiplied by K.
        return by_kernels(graph, z.unsqueeze(1), weight.unsqueeze(1) * z.shape[1], None, 1)[0]
    ends = links(graph, z.device)
    if not is_tracing():
        return sum_along(z, weight, ends)
    along = weight.unsqueeze(-1) * z.index_select(0, ends.src)
    return z.new_zeros(ends.num_parents, *z.shape[1:]).index_add(0, ends.dst, along)


def products_of_ends(graph: DGLGraph, z: Tensor) -> Tensor:
    """(E, K): on each edge (u, v) the products <z_u, z_v>, with z (N, K, D). Sources are the destinations."""
    if asked_engine() in ("auto", "fused") and _fits_kernels(z.unsqueeze(1)):
        return _ProductsOfEnds.apply(z, graph)
    ends = links(graph, z.device)
    if not is_tracing():
        return products_along(z, z, ends)
    return (z.index_select(0, ends.src) * z.index_select(0, ends.dst)).sum(-1)


@cached_per_structure
def _reversed(graph: DGLGraph) -> DGLGraph:
    return dgl.reverse(graph, copy_ndata=False, copy_edata=False)


class _ProductsOfEnds(torch.autograd.Function):
    """``products_of_ends`` by DGL. The gradient uses ``sum_weighted`` for both ends, which is faster than DGL's."""

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
