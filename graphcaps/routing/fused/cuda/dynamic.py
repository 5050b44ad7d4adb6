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

from dataclasses import dataclass

import torch
from torch.autograd.function import once_differentiable

from ....functional import squash
from ....graph import links, once_per_structure
from ...votes import LinearVotes
from .launch import PROGRAMS, ByChild, ByParent, fits

SEGMENT = 512  # in-edges of a parent that one program takes, or an even share for each of PROGRAMS if that is more


def dynamic(graph, votes, activation, b, iterations, on_iteration, squash_output=True):
    """Dynamic routing; arguments as the other engines', and votes may be ``LinearVotes`` and of half precision."""
    linear = isinstance(votes, LinearVotes)
    rows = _rows(graph, b.device)
    if linear and not (rows.complete and fits(rows.num_parents, *reversed(votes.weight.shape[-2:]))):
        votes, linear = votes.tensor(graph), False
    u, weight = (votes.u, _by_type(votes, rows)) if linear else (votes, None)
    trailing = b.shape[1:]
    u = u.reshape(len(u), -1, u.shape[-1])  # (I, B, P), or (E, B, D)
    s = _Dynamic.apply(u, weight, b.reshape(len(b), -1), rows, iterations, on_iteration, trailing)
    s = s.reshape(rows.num_parents, *trailing, s.shape[-1])
    v = squash(s)
    return v if squash_output else s, torch.linalg.vector_norm(v, dim=-1)


def _by_type(votes, rows):
    """Weights of any kind as (T, J, P, D); one matrix for all parents is repeated without a copy."""
    weight = votes.weight if votes.index is None else votes.weight[votes.index]
    if weight.dim() == 2:
        return weight.contiguous().expand(1, rows.num_parents, *weight.shape)
    return weight.reshape(-1, rows.num_parents, *weight.shape[-2:]).contiguous()


@dataclass(frozen=True)
class _Rows:
    """A graph's edges sorted by parent and cut into segments, and the way from each child to its edges, on one device.

    ``k`` counts the edges by parent. Index arrays are int32 where the number of edges allows.
    """

    num_children: int
    num_parents: int
    complete: bool  # every child linked once to every parent, source-major
    eid: torch.Tensor  # (E,) edge k in the graph's order
    starts: torch.Tensor  # (S + 1,) first k of each segment
    owners: torch.Tensor  # (S,) parent of each segment
    segments: torch.Tensor  # (J + 1,) first segment of each parent
    out_starts: torch.Tensor  # (I + 1,) first of each child in ``positions``
    positions: torch.Tensor  # (E,) k of each edge, sorted by child

    @staticmethod
    def of(graph, device):
        edges = links(graph, graph.device)
        src, dst, num_edges = edges.src.to(device), edges.dst.to(device), len(edges.src)
        eid = torch.argsort(dst, stable=True)
        degrees = torch.bincount(dst, minlength=edges.num_parents)
        longest, most = int(degrees.max()), max(SEGMENT, num_edges // PROGRAMS)
        length = longest if longest <= most else SEGMENT
        pieces = ((degrees + length - 1) // length).clamp_min(1)  # a parent without edges has one, empty
        owners = torch.repeat_interleave(torch.arange(edges.num_parents, device=device), pieces)
        segments = _starts(pieces)
        nth = torch.arange(len(owners), device=device) - segments[owners]
        starts = torch.cat([_starts(degrees)[owners] + nth * length, degrees.new_tensor([num_edges])])
        out_starts = _starts(torch.bincount(src, minlength=edges.num_children))
        positions = torch.argsort(src[eid], stable=True)
        index = torch.int32 if num_edges < 2**31 else torch.int64
        tensors = (x.to(index) for x in (eid, starts, owners, segments, out_starts, positions))
        return _Rows(edges.num_children, edges.num_parents, edges.complete, *tensors)

    def in_edge_order(self, values):
        """(E, ...) values in the order of k -> in the graph's edge order."""
        return torch.empty_like(values).index_copy_(0, self.eid.long(), values)


def _starts(counts):
    return torch.cat([counts.new_zeros(1), counts.cumsum(0)])


_rows = once_per_structure(_Rows.of)


def _passes(u, weight, rows, like):
    by_child = weight is not None or (rows.complete and fits(rows.num_parents, u.shape[-1]))
    return ByChild(u, weight, rows, like) if by_child else ByParent(u, rows, like)


class _Dynamic(torch.autograd.Function):
    @staticmethod
    def forward(ctx, u, weight, prior, rows, iterations, on_iteration, trailing):
        u = u.contiguous()
        passes = _passes(u, weight, rows, prior)
        b = prior.index_select(0, rows.eid)  # (E, B), by parent
        c = b.new_empty(iterations, *b.shape)  # (R, E, B)
        s = b.new_empty(iterations, rows.num_parents, passes.batch, passes.dim)  # (R, J, B, D)
        v = torch.empty_like(s)

        def seen(r, b):
            if on_iteration is not None:
                state = (rows.in_edge_order(x) for x in (b, c[r], passes.agreement(v[r])))
                b, coupling, agreement = (x.reshape(len(x), *trailing) for x in state)
                on_iteration(r, b, coupling, v[r].reshape(rows.num_parents, *trailing, -1), agreement)

        passes.forward(b, c, s, v, seen)
        ctx.save_for_backward(u, weight, c, s, v)
        ctx.rows = rows
        return s[-1].clone()

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        """Gradient of the parents' last s with respect to votes (or u and weight) and prior; math: `cpu.dynamic`."""
        u, weight, c, s, v = ctx.saved_tensors
        passes = _passes(u, weight, ctx.rows, c)
        ds, db = torch.empty_like(s), torch.empty_like(c)
        ds[-1] = grad
        passes.backward(c, s, ds, db, since=0 if ctx.needs_input_grad[2] else 1)
        need_votes = ctx.needs_input_grad[0] or ctx.needs_input_grad[1]
        du, dweight = passes.gradient(c, ds, db, v) if need_votes else (None, None)
        dprior = ctx.rows.in_edge_order(db[0]) if ctx.needs_input_grad[2] else None
        return du, dweight, dprior, None, None, None, None
