"""What routings are written in: sums, products and a softmax over the edges of a graph of votes.

    child_softmax(b)          softmax over each child's out-edges
    weighted_sum(c, u_hat)    for each parent, the sum over its in-edges of c u_hat
    agreement(u_hat, v)       on each edge, <u_hat, v> of its vote and its parent
    squared_lengths(u_hat)    on each edge, <u_hat, u_hat>
    sum_to_parents(x)         for each parent, the sum over its in-edges of x
    child_sum(x)              on each edge, the sum of x over its child's out-edges
    child_max(x)              on each edge, the largest x of its child's out-edges, without a gradient
    from_children(x)          to each edge, what its child has
    from_parents(x)           to each edge, what its parent has
    has_votes()               for each parent, whether it has an in-edge
    observe(r, b, c, v, u_hat)    hands iteration r to whoever observes the routing; costs nothing where nobody does

One more, on the kinds whose gradient ``gradient`` writes out:

    outer(x, y, u_hat)        to each edge, the sum over t of its x_t times its parent's y_t, laid out as u_hat

They exist in three kinds with the same numbers, so that a routing written in them once runs on all:

    DGLEdges      DGL's message, reduce and apply-edges functions, on any graph
    DenseEdges    batched matrix products, on a graph in which every child votes once for every parent
    ScatterEdges  torch's index_select and index_add, on any graph

A tensor with a number per edge is "edge numbers", one with a vector per edge "edge vectors". Between ``numbers_in`` or
``vectors_in`` and ``numbers_out`` they lie as the kind likes: (E, *) and (E, *, D) in edge order, but (J, *, I) and
(J, *, I, D) in ``DenseEdges``. Arithmetic on them works in either layout; a vector per edge has its D numbers last.

E edges, I children, J parents, * any trailing dims, D numbers in a vote.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Protocol

import torch
from torch import Tensor

from .._dgl import DGLGraph, edge_softmax, function, ops
from ..graph import Links, bipartite_graph, cached_per_structure, links
from .second_derivative import refuse_second_derivative

Observer = Callable[[int, Tensor, Tensor, Tensor, Tensor], object]  # of r, b, c, v, agreement


class EdgeOps(Protocol):
    """The operations, on edge numbers and edge vectors of one layout."""

    observer: Observer | None
    observed: int

    def numbers_in(self, x: Tensor) -> Tensor:
        """(E, *) in edge order -> edge numbers."""

    def numbers_out(self, x: Tensor) -> Tensor:
        """Edge numbers -> (E, *) in edge order."""

    def vectors_in(self, x: Tensor) -> Tensor:
        """(E, *, D) in edge order -> edge vectors."""

    def child_softmax(self, b: Tensor) -> Tensor:
        """Edge numbers -> edge numbers: softmax over each child's out-edges."""

    def child_sum(self, x: Tensor) -> Tensor:
        """Edge numbers -> edge numbers: the sum over the out-edges of each edge's child."""

    def child_max(self, x: Tensor) -> Tensor:
        """Edge numbers -> edge numbers, detached: the largest over the out-edges of each edge's child."""

    def weighted_sum(self, c: Tensor, u_hat: Tensor) -> Tensor:
        """Edge numbers and edge vectors -> (J, *, D): the sum over each parent's in-edges of c u_hat."""

    def squared_lengths(self, u_hat: Tensor) -> Tensor:
        """Edge vectors -> edge numbers: <u_hat, u_hat>."""

    def sum_to_parents(self, x: Tensor) -> Tensor:
        """Edge numbers -> (J, *), or edge vectors -> (J, *, D): the sum over each parent's in-edges."""

    def agreement(self, u_hat: Tensor, v: Tensor) -> Tensor:
        """Edge vectors and parents (J, *, D) -> edge numbers: <u_hat, v>."""

    def from_children(self, x: Tensor) -> Tensor:
        """(I, *) -> edge numbers: each edge's child."""

    def from_parents(self, x: Tensor) -> Tensor:
        """(J, *) -> edge numbers, or (J, *, D) -> edge vectors: each edge's parent."""

    def has_votes(self) -> Tensor:
        """(J,) bool: parents with an in-edge."""

    def observe(self, r: int, b: Tensor, c: Tensor, v: Tensor, u_hat: Tensor) -> None:
        """Hand iteration r, its logits, couplings and parents (J, *, D) to the observer, with the agreement."""


class _Observed:
    """What all kinds share: an observer, or None."""

    observer: Observer | None = None
    observed: int = 0  # how often ``observe`` was called
    agreement: Callable[[Tensor, Tensor], Tensor]
    numbers_out: Callable[[Tensor], Tensor]

    def squared_lengths(self, u_hat: Tensor) -> Tensor:
        return u_hat.square().sum(-1)

    def observe(self, r: int, b: Tensor, c: Tensor, v: Tensor, u_hat: Tensor) -> None:
        self.observed += 1
        if self.observer is not None:
            agreement = self.agreement(u_hat.detach(), v.detach())
            b, c, agreement = (self.numbers_out(x) for x in (b, c, agreement))
            self.observer(r, b, c, v, agreement)


class _InEdgeOrder(_Observed):
    """Edge numbers (E, *) and edge vectors (E, *, D), as the caller has them."""

    def numbers_in(self, x: Tensor) -> Tensor:
        return x

    def numbers_out(self, x: Tensor) -> Tensor:
        return x

    def vectors_in(self, x: Tensor) -> Tensor:
        return x


class DGLEdges(_InEdgeOrder):
    """By DGL, on the device of the graph. Votes and couplings stand on the edges of a view of the graph, sums and
    parents on its nodes; the caller's graph is not written to. DGL's kernels refuse tensors without elements, and their
    gradients have no gradients: those are refused."""

    def __init__(self, graph: DGLGraph):
        self.graph = graph.local_var()

    def child_softmax(self, b: Tensor) -> Tensor:
        return edge_softmax(self.graph, refuse_second_derivative(b), norm_by="src")

    def weighted_sum(self, c: Tensor, u_hat: Tensor) -> Tensor:
        c, u_hat = refuse_second_derivative(c), refuse_second_derivative(u_hat)
        self.graph.edata["c"], self.graph.edata["u_hat"] = c.unsqueeze(-1), u_hat
        self.graph.update_all(_message, function.sum("m", "s"))
        return self.graph.dstdata.pop("s")

    def agreement(self, u_hat: Tensor, v: Tensor) -> Tensor:
        u_hat, v = refuse_second_derivative(u_hat), refuse_second_derivative(v)
        self.graph.edata["u_hat"], self.graph.dstdata["v"] = u_hat, v
        self.graph.apply_edges(function.e_dot_v("u_hat", "v", "agreement"))
        return self.graph.edata.pop("agreement").squeeze(-1)

    # Copies and plain sums by the kernels themselves: a feature's way onto the graph and back takes 0.1 ms.
    def sum_to_parents(self, x: Tensor) -> Tensor:
        return ops.copy_e_sum(self.graph, refuse_second_derivative(x))

    def child_sum(self, x: Tensor) -> Tensor:
        return self.from_children(ops.copy_e_sum(_reversed(self.graph), refuse_second_derivative(x)))

    def child_max(self, x: Tensor) -> Tensor:
        return self.from_children(ops.copy_e_max(_reversed(self.graph), x.detach()))

    def from_children(self, x: Tensor) -> Tensor:
        return ops.copy_u(self.graph, refuse_second_derivative(x))

    def from_parents(self, x: Tensor) -> Tensor:
        return ops.copy_v(self.graph, refuse_second_derivative(x))

    def has_votes(self) -> Tensor:
        return self.graph.in_degrees() > 0


@cached_per_structure
def _reversed(graph: DGLGraph) -> DGLGraph:
    """The same edges, from parents to children."""
    src, dst = graph.edges(order="eid")
    return bipartite_graph(dst, src, graph.num_dst_nodes(), graph.num_src_nodes())


def _message(edges) -> dict[str, Tensor]:
    return {"m": edges.data["c"] * edges.data["u_hat"]}


class ScatterEdges(_InEdgeOrder):
    """By torch, on the device of the votes; the graph may stay on the CPU."""

    def __init__(self, ends: Links):
        self.ends = ends

    def child_softmax(self, b: Tensor) -> Tensor:
        exp = torch.exp(b - self.child_max(b))  # shifting all logits of a child changes nothing
        return exp / self.child_sum(exp)

    def child_sum(self, x: Tensor) -> Tensor:
        total = x.new_zeros(self.ends.num_children, *x.shape[1:]).index_add(0, self.ends.src, x)  # (I, *)
        return total.index_select(0, self.ends.src)

    def child_max(self, x: Tensor) -> Tensor:
        src = self.ends.src
        child = src.view(-1, *[1] * (x.dim() - 1)).expand_as(x)
        top = x.detach().new_zeros(self.ends.num_children, *x.shape[1:])
        return top.scatter_reduce(0, child, x.detach(), "amax", include_self=False).index_select(0, src)

    def weighted_sum(self, c: Tensor, u_hat: Tensor) -> Tensor:
        return self.sum_to_parents(c.unsqueeze(-1) * u_hat)

    def sum_to_parents(self, x: Tensor) -> Tensor:
        return x.new_zeros(self.ends.num_parents, *x.shape[1:]).index_add(0, self.ends.dst, x)

    def agreement(self, u_hat: Tensor, v: Tensor) -> Tensor:
        return (u_hat * self.from_parents(v)).sum(-1)

    def from_children(self, x: Tensor) -> Tensor:
        return x.index_select(0, self.ends.src)

    def from_parents(self, x: Tensor) -> Tensor:
        return x.index_select(0, self.ends.dst)

    def outer(self, x: Sequence[Tensor], y: Sequence[Tensor], u_hat: Tensor) -> Tensor:
        total = torch.zeros_like(u_hat)
        for numbers, parents in zip(x, y, strict=True):
            total.addcmul_(numbers.unsqueeze(-1), self.from_parents(parents))
        return total

    def has_votes(self) -> Tensor:
        fed = torch.zeros(self.ends.num_parents, dtype=torch.bool, device=self.ends.dst.device)
        return fed.index_fill(0, self.ends.dst, True)  # without waiting for a GPU, as counting would


class DenseEdges(_Observed):
    """By batched matrix products, on the device of the votes; the graph is complete, source-major.

    The I votes for one parent and image are the rows of one matrix: edge vectors are (J, *, I, D), edge numbers
    (J, *, I), and each edge's parent or child is a broadcast, not a copy. On a CPU rows that lie apart take twice the
    time of neighbouring ones, and the votes are copied once. Elsewhere they stay as they lie: a row of 16 numbers fills
    two of a GPU's units of reading, wherever the next one is.

    Args:
        ends: the graph's index arrays.
        vector_dims: the dims of (E, *, D) and of (J, *, D).
        copied: whether votes are copied so that rows are neighbours; default: on a CPU.
    """

    def __init__(self, ends: Links, vector_dims: int, copied: bool | None = None):
        self.ends, self.vector_dims = ends, vector_dims
        self.copied = ends.src.device.type == "cpu" if copied is None else copied
        self.by_image = False  # whether an image's votes for all parents are neighbours, not a parent's of all images

    def _grid(self, x: Tensor) -> Tensor:
        """(E, ...) -> (I, J, ...)."""
        return x.unflatten(0, (self.ends.num_children, self.ends.num_parents))

    def numbers_in(self, x: Tensor) -> Tensor:
        return self._grid(x).movedim(0, -1)  # (J, *, I)

    def numbers_out(self, x: Tensor) -> Tensor:
        return x.movedim(-1, 0).flatten(0, 1)  # (E, *)

    def vectors_in(self, x: Tensor) -> Tensor:
        return self.vectors_of(self._grid(x), by_image=False)

    def vectors_of(self, grid: Tensor, by_image: bool) -> Tensor:
        """Edge vectors of votes (I, J, *, D), which lie in memory as that, or as (I, *, J, D)."""
        votes = grid.movedim(0, -2)  # (J, *, I, D)
        if self.copied or grid.stride(1) == 0:  # one vote for all parents would be copied by each product
            return votes.contiguous()
        self.by_image = by_image and grid.dim() > 3
        return votes

    def _product(self, left: Tensor, right: Tensor, out: Tensor | None = None) -> Tensor:
        """Products of matrices (J, *, ., .), with J and * in the order in which they are one dim of the votes."""
        if self.by_image:
            left, right = left.movedim(0, -3), right.movedim(0, -3)
            out = out if out is None else out.movedim(0, -3)
        if out is None:
            found = torch.matmul(left, right)
        else:
            found = out
            torch.bmm(*(x.reshape(-1, *x.shape[-2:]) for x in (left, right)), out=out.view(-1, *out.shape[-2:]))
        return found.movedim(-3, 0) if self.by_image else found

    def child_softmax(self, b: Tensor) -> Tensor:
        return b.softmax(dim=0)

    def child_sum(self, x: Tensor) -> Tensor:
        return x.sum(dim=0).expand_as(x)

    def child_max(self, x: Tensor) -> Tensor:
        return x.detach().amax(dim=0).expand_as(x)

    def weighted_sum(self, c: Tensor, u_hat: Tensor) -> Tensor:
        return self._product(c.unsqueeze(-2), u_hat).squeeze(-2)  # (J, *, 1, I) (J, *, I, D) -> (J, *, D)

    def sum_to_parents(self, x: Tensor) -> Tensor:
        return x.sum(-1 if x.dim() == self.vector_dims else -2)

    def agreement(self, u_hat: Tensor, v: Tensor) -> Tensor:
        return self._product(u_hat, v.unsqueeze(-1)).squeeze(-1)  # (J, *, I, D) (J, *, D, 1) -> (J, *, I)

    def from_children(self, x: Tensor) -> Tensor:
        return x.movedim(0, -1).expand(self.ends.num_parents, *x.shape[1:], len(x))  # (J, *, I), a view

    def from_parents(self, x: Tensor) -> Tensor:
        return x.unsqueeze(-2 if x.dim() == self.vector_dims else -1)  # (J, *, 1, D) or (J, *, 1)

    def outer(self, x: Sequence[Tensor], y: Sequence[Tensor], u_hat: Tensor) -> Tensor:
        return self._product(torch.stack(list(x), -1), torch.stack(list(y), -2), out=torch.empty_like(u_hat))

    def has_votes(self) -> Tensor:
        some = self.ends.num_children > 0
        return torch.full((self.ends.num_parents,), some, device=self.ends.dst.device)


def edges_of(
    engine: str, graph: DGLGraph, shape: Sequence[int], device: torch.device
) -> DGLEdges | DenseEdges | ScatterEdges:
    """The kind of operations that ``engine``, "dgl" or "torch", has for votes of this shape (E, *, D)."""
    some = math.prod(shape) > 0
    if engine == "dgl" and some:
        return DGLEdges(graph)
    ends = links(graph, device)
    return DenseEdges(ends, len(shape)) if ends.complete and some else ScatterEdges(ends)


def with_length(pose: Tensor, length: Tensor) -> Tensor:
    """Vectors along ``pose`` (J, *, D) that are ``length`` (J, *) long; no pose, shorter than 1e-12, has no direction.

    It is given shorter still, which is 0 for 0, so that slopes are finite.
    """
    n = torch.linalg.vector_norm(pose, dim=-1, keepdim=True)
    return pose * (length.unsqueeze(-1) / torch.where(n > 1e-12, n, 1))


def per_parent(numbers: Tensor | float, like: Tensor) -> Tensor:
    """A number, or one per parent (J,), as a tensor of ``like``'s kind that broadcasts with (J, *)."""
    found = torch.as_tensor(numbers, dtype=like.dtype, device=like.device)
    return found.reshape(-1, *[1] * (like.dim() - 1)) if found.dim() else found
