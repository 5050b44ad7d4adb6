"""EM routing of 4 x 4 poses on the CPU without the votes: what EM needs of them are sums, which Numba's kernels make.

    M-step: mass, mu and sigma^2 of each parent, from the weights R_ij a_i
    E-step: the distance sum over h of (V_ijh - mu_jh)^2 / sigma_jh^2 of each edge

Both with their gradients, and no tensor of a number per edge and pose element, neither of the votes nor of their
slopes: 16 times less memory, and most of the time that the votes take is that of reading and writing them.
Everything between these sums, numbers per parent or per edge, is torch's, as `em` has it. Images are shared out to
torch's number of threads.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from ...._dgl import DGLGraph
from ....graph import cached_per_structure, links
from ...edges import Observer, ScatterEdges
from ...em import EM, LEAST, em_procedure
from ...routing import Parents
from ...second_derivative import once_differentiable
from ...votes import MatrixVotes
from .kernels_em import Edges, Votes, distances, distances_backward, moments, moments_backward
from .passes import flat, run_on_threads, sum_of


def run(
    graph: DGLGraph,
    votes: MatrixVotes,
    routing: EM,
    b: torch.Tensor,
    activation: torch.Tensor | None,
    observer: Observer | None,
) -> Parents:
    """EM routing; of ``MatrixVotes``."""
    trailing = b.shape[1:]
    images = math.prod(trailing)
    made = _MadeVotes(graph, votes._replace(u=votes.u.reshape(len(votes.u), images, 16)), b.dtype)

    def observe(r: int, b: torch.Tensor, c: torch.Tensor, v: torch.Tensor) -> None:
        if observer is not None:
            b, c, agreement = (x.reshape(len(x), *trailing) for x in (b, c, made.agreement(v)))
            observer(r, b, c, v.reshape(len(v), *trailing, 16), agreement)

    children = None if activation is None else activation.reshape(len(activation), images)
    found = em_procedure(made, children, b.reshape(len(b), images), routing, observe)
    pose, v = (x.reshape(len(x), *trailing, 16) for x in found[:2])
    return Parents(pose, v, found.activation.reshape(len(v), *trailing))


class _EdgesByParent(NamedTuple):
    """A graph's edges sorted by parent, and parents by their first child."""

    eid: torch.Tensor  # (E,) edge k in the graph's order
    positions: torch.Tensor  # (E,) k of each edge
    parents: torch.Tensor  # (J,) the kernels' parents
    parent_positions: torch.Tensor  # (J,) where each parent is among them
    indptr: torch.Tensor  # (J + 1,)
    src: torch.Tensor  # (E,)
    max_degree: int


@cached_per_structure
def _edges_by_parent(graph: DGLGraph) -> _EdgesByParent:
    edges, num_parents = links(graph), graph.num_dst_nodes()
    src, dst = edges.src, edges.dst
    first = torch.full((num_parents,), edges.num_children).scatter_reduce(0, dst, src, "amin")
    parents = first.argsort(stable=True)
    parent_positions = torch.empty_like(parents).scatter(0, parents, torch.arange(num_parents))
    eid = parent_positions[dst].argsort(stable=True)
    positions = torch.empty_like(eid).scatter(0, eid, torch.arange(len(eid)))
    degrees = torch.bincount(parent_positions[dst], minlength=num_parents)
    indptr = torch.cat([degrees.new_zeros(1), degrees.cumsum(0)])
    max_degree = int(degrees.max()) if num_parents else 0
    return _EdgesByParent(eid, positions, parents, parent_positions, indptr, src[eid], max_degree)


class _MadeVotes:
    """What EM needs of the votes (`em.SumsOverVotes` has the same of votes that are built), made by kernels."""

    def __init__(self, graph: DGLGraph, votes: MatrixVotes, dtype: torch.dtype) -> None:
        self.graph, self.votes, self.by_parent = graph, votes, _edges_by_parent(graph)
        self.edges = ScatterEdges(links(graph))
        self.child_softmax = self.edges.child_softmax
        u = votes.u.unflatten(-1, (4, 4))  # (I, B, r, k)
        left = u.permute(1, 0, 3, 2).unsqueeze(-1).expand(-1, -1, -1, -1, 4).to(dtype)
        right = votes.weight.unsqueeze(2).expand(-1, -1, 4, -1).to(dtype)
        self.left, self.right = left.flatten(3).contiguous(), right.flatten(2).contiguous()  # (B, I, 4, 16), (M, 4, 16)
        shift = votes.u.new_empty(0) if votes.shift is None else votes.shift
        self.passes = _Passes(self.by_parent, votes.index, shift.to(dtype), len(votes.u))

    def from_children(self, x: torch.Tensor) -> torch.Tensor:
        """(I, B) -> (E, B): each edge's child."""
        return x.index_select(0, self.edges.ends.src)

    def from_parents(self, x: torch.Tensor) -> torch.Tensor:
        """(J, B) -> (E, B): each edge's parent."""
        return x.index_select(0, self.edges.ends.dst)

    def moments(self, weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """mass (J, B), mu and sigma^2 without its floor (J, B, 16) for weights (E, B)."""
        weight = _Permuted.apply(weight, self.by_parent.eid, self.by_parent.positions).t().contiguous()
        # image-first, parents in the kernels' order
        mass, self.mu, variance = _Moments.apply(weight, self.left, self.right, self.passes)
        return self._in_order(mass), self._in_order(self.mu), self._in_order(variance)

    def distances(self, variance: torch.Tensor) -> torch.Tensor:
        """(E, B): sum over h of (V_h - mu_h)^2 / sigma_h^2, of the last moments' mu."""
        by_parent = self.by_parent
        precision = _Permuted.apply(1 / variance, by_parent.parents, by_parent.parent_positions)
        precision = precision.transpose(0, 1).contiguous()
        found = _Distances.apply(self.mu, precision, self.left, self.right, self.passes)
        return _Permuted.apply(found.t(), by_parent.positions, by_parent.eid)

    def agreement(self, v: torch.Tensor) -> torch.Tensor:
        """(E, B): <V, v>, of votes that are built for it."""
        return self.edges.agreement(self.votes.build(self.graph), v)

    def _in_order(self, x: torch.Tensor) -> torch.Tensor:
        """(B, J, ...) in the kernels' order -> (J, B, ...)."""
        return _Permuted.apply(x.transpose(0, 1), self.by_parent.parent_positions, self.by_parent.parents)


class _Passes:
    """Calls the kernels on all threads."""

    def __init__(self, edges: _EdgesByParent, index: torch.Tensor, shift: torch.Tensor, num_children: int) -> None:
        matrix = index[edges.eid].to(torch.int64).numpy()
        self.edges = Edges(edges.indptr.numpy(), edges.src.numpy(), matrix, num_children, edges.max_degree)
        self.num_parents, self.num_edges, self.shift = len(edges.parents), len(edges.src), flat(shift)

    def run(self, kernel: Callable, left: torch.Tensor, right: torch.Tensor, **arguments: Any) -> None:
        """Call ``kernel`` on each thread's images, as `run_on_threads` does."""
        votes = Votes(flat(left), flat(right), self.shift)
        run_on_threads(kernel, _ranges(len(left)), edges=self.edges, votes=votes, **arguments)

    def slopes(self, left: torch.Tensor, right: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Zeros for the slopes of ``left``, and of ``right`` for each thread."""
        return torch.zeros_like(left), right.new_zeros(len(_ranges(len(left))), *right.shape)


def _ranges(images: int) -> list[tuple[int, int]]:
    """The images of each thread (begin, end)."""
    parts = max(1, min(torch.get_num_threads(), images))
    return [(images * k // parts, images * (k + 1) // parts) for k in range(parts)]


class _Permuted(torch.autograd.Function):
    """Rows in another order, whose gradient is rows in the order before, not sums."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, order: torch.Tensor, back: torch.Tensor) -> torch.Tensor:
        ctx.back = back
        return x.index_select(0, order)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, slopes: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        return slopes.index_select(0, ctx.back), None, None


class _Moments(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, weight: torch.Tensor, left: torch.Tensor, right: torch.Tensor, passes: _Passes
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        batch = len(left)
        mass = left.new_empty(batch, passes.num_parents)
        mu, variance = left.new_empty(2, batch, passes.num_parents, 16)
        least = flat(left).dtype.type(LEAST)
        passes.run(moments, left, right, weight=weight, least=least, mass=mass, mu=mu, variance=variance)
        ctx.save_for_backward(weight, left, right, mass, mu, variance)
        ctx.passes = passes
        return mass, mu, variance

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any, dmass: torch.Tensor, dmu: torch.Tensor, dvariance: torch.Tensor
    ) -> tuple[torch.Tensor | None, ...]:
        """With n = mass + least, s = sum of w V and q = sum of w (V - mu)^2: mu = s / n and sigma^2 = q / n.

        dq = dsigma^2 / n, ds = (dmu + dq dq/dmu) / n with dq/dmu = -2 sum of w (V - mu) = -2 least mu, and
        dn = -sum over h of (dsigma^2 q / n + ds n mu) / n.
        """
        weight, left, right, mass, mu, variance = ctx.saved_tensors
        divisor = (mass + LEAST).unsqueeze(-1)
        dq = dvariance / divisor
        ds = (dmu - 2 * LEAST * mu * dq) / divisor
        dmass = dmass - (dq * variance + ds * mu).sum(-1)
        dweight = torch.empty_like(weight)
        dleft, dright = ctx.passes.slopes(left, right)
        given = {"weight": weight, "mu": mu, "ds": ds, "dq": dq, "dmass": dmass}
        filled = {"dweight": dweight, "dleft": dleft, "dright": list(dright)}
        ctx.passes.run(moments_backward, left, right, **given, **filled)
        return dweight, dleft, sum_of(dright), None


class _Distances(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        mu: torch.Tensor,
        precision: torch.Tensor,
        left: torch.Tensor,
        right: torch.Tensor,
        passes: _Passes,
    ) -> torch.Tensor:
        distance = left.new_empty(len(left), passes.num_edges)
        passes.run(distances, left, right, mu=mu, precision=precision, distance=distance)
        ctx.save_for_backward(mu, precision, left, right)
        ctx.passes = passes
        return distance

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, slopes: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        mu, precision, left, right = ctx.saved_tensors
        dmu, dprecision = torch.empty_like(mu), torch.empty_like(mu)
        dleft, dright = ctx.passes.slopes(left, right)
        given = {"mu": mu, "precision": precision, "slopes": slopes.contiguous()}
        filled = {"dmu": dmu, "dprecision": dprecision, "dleft": dleft, "dright": list(dright)}
        ctx.passes.run(distances_backward, left, right, **given, **filled)
        return dmu, dprecision, dleft, sum_of(dright), None
