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
from typing import NamedTuple

import torch
from torch.autograd.function import once_differentiable

from ....graph import links, once_per_structure
from ...edge_ops import ScatterEdges
from ...em import EPSILON, LEAST, EMParameters, em_procedure
from ...votes import MatrixVotes
from .kernels_em import distances, distances_back, moments, moments_back
from .passes import added, flat, pool

WIDTH = (0,) * 16


def em(graph, votes: MatrixVotes, activation, b, iterations, on_iteration, squash_output=True, parameters=None):
    """EM routing; of ``MatrixVotes``."""
    trailing = b.shape[1:]
    images = math.prod(trailing)
    made = _MadeVotes(graph, votes._replace(u=votes.u.reshape(len(votes.u), images, 16)), b.dtype)
    found = em_procedure(
        made,
        None if activation is None else activation.reshape(len(activation), images),
        b.reshape(len(b), images),
        iterations,
        on_iteration and _of_shape(on_iteration, trailing),
        parameters or EMParameters(),
    )
    v, a = found.v if squash_output else found.pose, found.activation
    return v.reshape(len(v), *trailing, 16), a.reshape(len(a), *trailing)


def _of_shape(on_iteration, trailing):
    def hand_out(r, b, c, v, agreement):
        b, c, agreement = (x.reshape(len(x), *trailing) for x in (b, c, agreement))
        on_iteration(r, b, c, v.reshape(len(v), *trailing, 16), agreement)

    return hand_out


class _Order(NamedTuple):
    """A graph's edges sorted by parent, and parents by their first child."""

    eid: torch.Tensor  # (E,)
    back: torch.Tensor  # (E,), where edge e stands
    parents: torch.Tensor  # (J,)
    places: torch.Tensor  # (J,), where parent j stands
    indptr: torch.Tensor  # (J + 1,)
    src: torch.Tensor  # (E,)
    longest: int


@once_per_structure
def _order(graph) -> _Order:
    edges, num_parents = links(graph), graph.num_dst_nodes()
    src, dst = edges.src, edges.dst
    first = torch.full((num_parents,), edges.num_children).scatter_reduce(0, dst, src, "amin")
    parents = first.argsort(stable=True)
    places = torch.empty_like(parents).scatter(0, parents, torch.arange(num_parents))
    eid = places[dst].argsort(stable=True)
    back = torch.empty_like(eid).scatter(0, eid, torch.arange(len(eid)))
    degrees = torch.bincount(places[dst], minlength=num_parents)
    indptr = torch.cat([degrees.new_zeros(1), degrees.cumsum(0)])
    return _Order(eid, back, parents, places, indptr, src[eid], int(degrees.max()) if num_parents else 0)


class _MadeVotes:
    """What EM needs of the votes (`em.SumsOverVotes` has the same of votes that are built), made by kernels."""

    def __init__(self, graph, votes, dtype):
        self.graph, self.votes, self.order = graph, votes, _order(graph)
        self.edges = ScatterEdges(links(graph))
        self.child_softmax = self.edges.child_softmax
        u = votes.u.unflatten(-1, (4, 4))  # (I, B, r, k)
        left = u.permute(1, 0, 3, 2).unsqueeze(-1).expand(-1, -1, -1, -1, 4).to(dtype)
        right = votes.weight.unsqueeze(2).expand(-1, -1, 4, -1).to(dtype)
        self.left, self.right = left.flatten(3).contiguous(), right.flatten(2).contiguous()  # (B, I, 4, 16), (M, 4, 16)
        shift = votes.u.new_empty(0) if votes.shift is None else votes.shift
        self.passes = _Passes(self.order, votes.index[self.order.eid], shift.to(dtype), len(votes.u))

    def from_children(self, x):
        """(I, B) -> (E, B): each edge's child."""
        return x.index_select(0, self.edges.ends.src)

    def from_parents(self, x):
        """(J, B) -> (E, B): each edge's parent."""
        return x.index_select(0, self.edges.ends.dst)

    def moments(self, weight):
        """mass (J, B), mu and sigma^2 (J, B, 16) for weights (E, B)."""
        found = _Moments.apply(
            _Moved.apply(weight, self.order.eid, self.order.back).t().contiguous(), self.left, self.right, self.passes
        )
        mass, self.mu, variance = found  # image-first, parents in the kernels' order
        return self._by_parent(mass), self._by_parent(self.mu), self._by_parent(variance)

    def distances(self, variance):
        """(E, B): sum over h of (V_h - mu_h)^2 / sigma_h^2, of the last moments' mu."""
        precision = _Moved.apply(1 / variance, self.order.parents, self.order.places).transpose(0, 1).contiguous()
        found = _Distances.apply(self.mu, precision, self.left, self.right, self.passes)
        return _Moved.apply(found.t(), self.order.back, self.order.eid)

    def agreement(self, v):
        """(E, B): <V, v>, of votes that are built for it."""
        return self.edges.agreement(self.votes.tensor(self.graph), v)

    def _by_parent(self, x):
        return _Moved.apply(x.transpose(0, 1), self.order.places, self.order.parents)


class _Passes:
    """Calls the kernels on all threads."""

    def __init__(self, order, wid, shift, children):
        self.graph = order.indptr.numpy(), order.src.numpy(), wid.to(torch.int64).numpy(), children, order.longest
        self.parents, self.edges, self.shift = len(order.parents), len(order.src), flat(shift)

    def run(self, kernel, left, right, *numbers):
        """Call ``kernel`` on each thread's images; the k-th call gets the k-th of each list in ``numbers``."""
        ranges = _ranges(len(left))

        def part(k):
            own = [number[k] if isinstance(number, list) else number for number in numbers]
            own = [flat(number) if isinstance(number, torch.Tensor) else number for number in own]
            kernel(*ranges[k], self.graph, flat(left), flat(right), self.shift, WIDTH, *own)

        others = [pool(len(ranges)).submit(part, k) for k in range(1, len(ranges))]
        part(0)
        for other in others:
            other.result()

    def slopes(self, left, right):
        """Zeros for the slopes of ``left``, and of ``right`` for each thread."""
        return torch.zeros_like(left), right.new_zeros(len(_ranges(len(left))), *right.shape)


def _ranges(images):
    """(lo, hi) of images for each thread."""
    parts = max(1, min(torch.get_num_threads(), images))
    return [(images * k // parts, images * (k + 1) // parts) for k in range(parts)]


class _Moved(torch.autograd.Function):
    """Rows in another order, whose gradient is rows in the order before, not sums."""

    @staticmethod
    def forward(ctx, x, order, back):
        ctx.back = back
        return x.index_select(0, order)

    @staticmethod
    @once_differentiable
    def backward(ctx, slopes):
        return slopes.index_select(0, ctx.back), None, None


class _Moments(torch.autograd.Function):
    @staticmethod
    def forward(ctx, weight, left, right, passes):
        batch = len(left)
        mass = left.new_empty(batch, passes.parents)
        mu, variance = left.new_empty(2, batch, passes.parents, 16)
        least, epsilon = (flat(left).dtype.type(number) for number in (LEAST, EPSILON))
        passes.run(moments, left, right, weight, least, epsilon, mass, mu, variance)
        ctx.save_for_backward(weight, left, right, mass, mu, variance)
        ctx.passes = passes
        return mass, mu, variance

    @staticmethod
    @once_differentiable
    def backward(ctx, dmass, dmu, dvariance):
        """With n = mass + least, s = sum of w V and q = sum of w (V - mu)^2: mu = s / n and sigma^2 = q / n + epsilon.

        dq = dsigma^2 / n, ds = (dmu + dq dq/dmu) / n with dq/dmu = -2 sum of w (V - mu) = -2 least mu, and
        dn = -sum over h of (dsigma^2 q / n + ds n mu) / n.
        """
        weight, left, right, mass, mu, variance = ctx.saved_tensors
        some = (mass + LEAST).unsqueeze(-1)
        dq = dvariance / some
        ds = (dmu - 2 * LEAST * mu * dq) / some
        dmass = dmass - (dq * (variance - EPSILON) + ds * mu).sum(-1)
        dweight = torch.empty_like(weight)
        dleft, dright = ctx.passes.slopes(left, right)
        ctx.passes.run(moments_back, left, right, weight, mu, ds, dq, dmass, dweight, dleft, list(dright))
        return dweight, dleft, added(dright), None


class _Distances(torch.autograd.Function):
    @staticmethod
    def forward(ctx, mu, precision, left, right, passes):
        distance = left.new_empty(len(left), passes.edges)
        passes.run(distances, left, right, mu, precision, distance)
        ctx.save_for_backward(mu, precision, left, right)
        ctx.passes = passes
        return distance

    @staticmethod
    @once_differentiable
    def backward(ctx, slopes):
        mu, precision, left, right = ctx.saved_tensors
        dmu, dprecision = torch.empty_like(mu), torch.empty_like(mu)
        dleft, dright = ctx.passes.slopes(left, right)
        slopes = slopes.contiguous()
        ctx.passes.run(distances_back, left, right, mu, precision, slopes, dmu, dprecision, dleft, list(dright))
        return dmu, dprecision, dleft, added(dright), None
