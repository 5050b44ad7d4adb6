"""Dynamic routing on a GPU in few passes over the votes, and its gradient in as few and one write, in Triton.

Two arrangements of the passes (`launch`) give the same numbers: by parent, for given votes on any graph, and by
child, for complete graphs of few parents, where each iteration reads the votes once and linear votes are never built.
Linear votes on other graphs, or too wide for a processor's registers, are built first. The gradient of R iterations
takes R - 1 more passes, R if the prior needs one too.

Logits and sums are float32 for votes of half precision, which are read as they are. Linear votes are multiplied in tf32
where torch's own products may be (`torch.set_float32_matmul_precision`) or where u and weight are of half precision, of
which tf32 loses nothing; else in their own precision.

The kernels have run through Triton's interpreter and compiler, but never on a GPU.
"""

from __future__ import annotations

from typing import Any

import torch

from ...._dgl import DGLGraph
from ....graph import cached_per_structure, links
from ...dynamic import Dynamic
from ...edges import Observer
from ...routing import Parents, squashed
from ...second_derivative import once_differentiable
from ...uniform import Uniform
from ...votes import LinearVotes
from .. import passes_of
from .launch import PROGRAMS, ByChild, ByParent, EdgesByParent, by_iteration, fits

SEGMENT = 512  # in-edges of a parent that one program takes, or an even share for each of PROGRAMS if that is more


def run(
    graph: DGLGraph,
    votes: torch.Tensor | LinearVotes,
    routing: Dynamic | Uniform,
    b: torch.Tensor,
    activation: torch.Tensor | None,
    observer: Observer | None,
) -> Parents:
    """Dynamic routing, or its first pass for uniform coupling; votes may be ``LinearVotes`` and of half precision."""
    iterations, observer = passes_of(routing, observer)
    edges = _edges_by_parent(graph, b.device)
    if isinstance(votes, LinearVotes):
        child_dim, parent_dim = votes.weight.shape[-2:]
        if not (edges.complete and fits(edges.num_parents, parent_dim, child_dim)):
            votes = votes.build(graph)
    u, weight = (votes.u, _by_type(votes, edges)) if isinstance(votes, LinearVotes) else (votes, None)
    trailing = tuple(b.shape[1:])
    u = _aligned(u.reshape(len(u), -1, u.shape[-1]).contiguous())  # (I, B, P), or (E, B, D)
    s = _Dynamic.apply(u, weight, b.reshape(len(b), -1), edges, iterations, observer, trailing)
    return squashed(s.reshape(edges.num_parents, *trailing, s.shape[-1]))


def _aligned(x: torch.Tensor) -> torch.Tensor:
    """x where it starts at a multiple of 16 bytes, as torch's own tensors do; for others kernels are compiled anew."""
    return x.clone() if x.data_ptr() % 16 else x


def _by_type(votes: LinearVotes, edges: EdgesByParent) -> torch.Tensor:
    """Weights of any kind as (T, J, P, D); one matrix for all parents is repeated without a copy."""
    weight = votes.weight if votes.index is None else votes.weight.index_select(0, votes.index)
    if weight.dim() == 2:
        return _aligned(weight.contiguous()).expand(1, edges.num_parents, *weight.shape)
    return _aligned(weight.reshape(-1, edges.num_parents, *weight.shape[-2:]).contiguous())


@cached_per_structure
def _edges_by_parent(graph: DGLGraph, device: torch.device) -> EdgesByParent:
    edges = links(graph, graph.device)
    src, dst, num_edges = edges.src.to(device), edges.dst.to(device), len(edges.src)
    eid = torch.argsort(dst, stable=True)
    degrees = torch.bincount(dst, minlength=edges.num_parents)
    longest, most = int(degrees.max()), max(SEGMENT, num_edges // PROGRAMS)
    length = longest if longest <= most else SEGMENT
    pieces = ((degrees + length - 1) // length).clamp_min(1)  # a parent without edges has one, empty
    segment_parents = torch.repeat_interleave(torch.arange(edges.num_parents, device=device), pieces)
    part_starts = _starts(pieces)
    nth = torch.arange(len(segment_parents), device=device) - part_starts[segment_parents]
    segment_starts = torch.cat([_starts(degrees)[segment_parents] + nth * length, degrees.new_tensor([num_edges])])
    child_starts = _starts(torch.bincount(src, minlength=edges.num_children))
    positions = torch.argsort(src[eid], stable=True)
    index = torch.int32 if num_edges < 2**31 else torch.int64
    return EdgesByParent(
        num_children=edges.num_children,
        num_parents=edges.num_parents,
        complete=edges.complete,
        eid=eid.to(index),
        segment_starts=segment_starts.to(index),
        segment_parents=segment_parents.to(index),
        part_starts=part_starts.to(index),
        child_starts=child_starts.to(index),
        positions=positions.to(index),
    )


def _starts(counts: torch.Tensor) -> torch.Tensor:
    return torch.cat([counts.new_zeros(1), counts.cumsum(0)])


def _passes(
    u: torch.Tensor, weight: torch.Tensor | None, edges: EdgesByParent, like: torch.Tensor
) -> ByChild | ByParent:
    by_child = weight is not None or (edges.complete and fits(edges.num_parents, u.shape[-1]))
    return ByChild(u, weight, edges, like) if by_child else ByParent(u, edges, like)


class _Dynamic(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        u: torch.Tensor,
        weight: torch.Tensor | None,
        prior: torch.Tensor,
        edges: EdgesByParent,
        iterations: int,
        on_iteration: Observer | None,
        trailing: tuple[int, ...],
    ) -> torch.Tensor:
        passes = _passes(u, weight, edges, prior)
        b = prior.index_select(0, edges.eid)  # (E, B), by parent
        c = by_iteration(b, iterations, *b.shape)  # (R, E, B)
        shape = iterations, edges.num_parents, passes.batch, passes.parent_dim
        s, v = by_iteration(b, *shape), by_iteration(b, *shape)  # (R, J, B, D)

        def seen(r: int, b: torch.Tensor) -> None:
            if on_iteration is not None:
                state = (edges.in_edge_order(x) for x in (b, c[r], passes.agreement(v[r])))
                b, coupling, agreement = (x.reshape(len(x), *trailing) for x in state)
                on_iteration(r, b, coupling, v[r].reshape(edges.num_parents, *trailing, -1), agreement)

        passes.forward(b, c, s, v, seen)
        ctx.save_for_backward(u, weight, c, s, v)
        ctx.edges = edges
        return s[-1].clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        """Gradient of the last s with respect to votes (or u and weight) and prior; math: `fused/README.md`."""
        u, weight, c, s, v = ctx.saved_tensors
        passes = _passes(u, weight, ctx.edges, c)
        ds, db = by_iteration(s, *s.shape), by_iteration(c, *c.shape)
        ds[-1] = grad
        passes.backward(c, s, ds, db, since=0 if ctx.needs_input_grad[2] else 1)
        need_votes = ctx.needs_input_grad[0] or ctx.needs_input_grad[1]
        du, dweight = passes.gradient(c, ds, db, v) if need_votes else (None, None)
        dprior = ctx.edges.in_edge_order(db[0]) if ctx.needs_input_grad[2] else None
        return du, dweight, dprior, None, None, None, None
