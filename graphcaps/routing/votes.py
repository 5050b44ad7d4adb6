"""Votes that are a linear map of the children: u_hat_e = u_i W_e (the 2017 paper's equation 2), or of 4 x 4 poses."""

from __future__ import annotations

from typing import NamedTuple

import torch

from .._dgl import DGLGraph
from ..errors import check_tensor, expect, min_max
from ..graph import Links, links


class LinearVotes(NamedTuple):
    """Children and the weights that turn them into votes; an engine may use both without building the votes.

    Args:
        u: (I, *, P) child capsules.
        weight: one matrix per edge (E, P, D), one per type of child and parent (T, J, P, D), or one for all (P, D).
            With types, the I children are T runs of I / T neighbours: type of child i = i // (I / T). With ``index``,
            any number of matrices (M, P, D).
        index: (E,) int32 or int64 in [0, M), on u's device: edge e takes the matrix ``weight[index[e]]``. For matrices
            that edges share in any other way, as the positions of ``graphcaps.graph.local_graph`` do.

    >>> from graphcaps import complete_graph
    >>> votes = LinearVotes(torch.ones(3, 5, 8), torch.ones(6, 8, 16))
    >>> votes.tensor(complete_graph(3, 2)).shape
    torch.Size([6, 5, 16])
    """

    u: torch.Tensor
    weight: torch.Tensor
    index: torch.Tensor | None = None  # type: ignore[assignment]  # hides tuple.index, which nobody asks for

    def to(self, target: torch.device | str | torch.dtype) -> LinearVotes:
        """The same votes on another device, or with u and weight in another dtype."""
        index = self.index if self.index is None or isinstance(target, torch.dtype) else self.index.to(target)
        return LinearVotes(self.u.to(target), self.weight.to(target), index)

    def check(self, graph: DGLGraph) -> None:
        """Raise ``InputError`` where shapes, dtypes or devices don't fit each other or the graph.

        Off the CPU, numbers in ``index`` are not looked at: that would wait for the device.
        """
        u, weight, index = self
        num_edges, num_children, num_parents = graph.num_edges(), graph.num_src_nodes(), graph.num_dst_nodes()
        check_tensor("u", u)
        check_tensor("weight", weight)
        expect(u.dim() >= 2 and len(u) == num_children, "u", f"(I={num_children}, *, P)", tuple(u.shape))
        expect(weight.dtype == u.dtype, "weight", f"{u.dtype} as u", weight.dtype)
        expect(weight.device == u.device, "weight", f"device {u.device} as u", weight.device)
        expect(weight.dim() in (2, 3, 4), "weight", "(E, P, D), (T, J, P, D) or (P, D)", tuple(weight.shape))
        expect(weight.shape[-2] == u.shape[-1], "weight", f"P={u.shape[-1]} as in u", tuple(weight.shape))
        if weight.dim() == 4:
            types = weight.shape[0]
            fits = weight.shape[1] == num_parents and types >= 1 and num_children % types == 0
            wanted = f"(T, J={num_parents}, P, D) with T a divisor of I={num_children}"
            expect(fits, "weight", wanted, tuple(weight.shape))
        if index is None:
            per_edge = weight.dim() != 3 or len(weight) == num_edges
            expect(per_edge, "weight", f"(E={num_edges}, P, D)", tuple(weight.shape))
            return
        expect(weight.dim() == 3, "weight", "(M, P, D) beside an index", tuple(weight.shape))
        check_tensor("index", index, floating=False)
        expect(index.dtype in (torch.int32, torch.int64), "index", "int32 or int64", index.dtype)
        expect(index.shape == (num_edges,), "index", f"(E={num_edges},)", tuple(index.shape))
        expect(index.device == u.device, "index", f"device {u.device} as u", index.device)
        if (ends := min_max(index)) is not None:
            inside = ends[0] >= 0 and ends[1] < len(weight)
            expect(inside, "index", f"matrices in [0, M={len(weight)})", f"{ends[0]:.0f} to {ends[1]:.0f}")

    def tensor(self, graph: DGLGraph) -> torch.Tensor:
        """Build the votes (E, *, D) in the graph's edge order; raise ``InputError`` where the shapes don't fit."""
        self.check(graph)
        return self.build(graph)

    def build(self, graph: DGLGraph) -> torch.Tensor:
        """``tensor`` of votes that ``check`` has passed."""
        (u, weight, index), edges = self, links(graph, self.u.device)
        if edges.complete:
            return self.grid(edges).flatten(0, 1)
        if index is not None:
            weight = weight.index_select(0, index)
        if weight.dim() == 2:
            return (u @ weight).index_select(0, edges.src)
        if weight.dim() == 4:
            type_of_child = edges.src // (edges.num_children // weight.shape[0])
            weight = weight.flatten(0, 1).index_select(0, type_of_child * edges.num_parents + edges.dst)
        return torch.einsum("e...p,epd->e...d", u.index_select(0, edges.src), weight)

    def grid(self, edges: Links) -> torch.Tensor:
        """``build`` for a complete graph, as (I, J, *, D) and not laid out in any order."""
        u, weight, index = self
        if index is not None:
            weight = weight.index_select(0, index)
        if weight.dim() == 2:
            return (u @ weight).unsqueeze(1).expand(-1, edges.num_parents, *u.shape[1:-1], -1)
        if weight.dim() == 4:
            by_type = u.unflatten(0, (len(weight), len(u) // len(weight)))  # (T, I/T, *, P)
            return torch.einsum("tn...p,tjpd->tnj...d", by_type, weight).flatten(0, 1)
        by_child = weight.unflatten(0, (edges.num_children, edges.num_parents))  # (I, J, P, D)
        return torch.einsum("i...p,ijpd->ij...d", u, by_child)


class MatrixVotes(NamedTuple):
    """4 x 4 poses and the 4 x 4 matrices that turn them into votes: V_e = M_i W_e (Hinton, Sabour & Frosst 2018).

    A vote is a matrix product, 64 multiplications, where ``LinearVotes`` of 16 numbers have 256. An engine may make the
    votes as it goes.

    Args:
        u: (I, *, 16) poses M, row by row.
        weight: (M, 4, 4), any number of matrices W.
        index: (E,) int32 or int64 in [0, M), on u's device: edge e takes the matrix ``weight[index[e]]``.
        shift: (I, 16) that is added to all votes of a child, or None; a constant, which gets no gradient.

    >>> from graphcaps import complete_graph
    >>> votes = MatrixVotes(torch.ones(3, 5, 16), torch.ones(2, 4, 4), torch.tensor([0, 1, 0, 1, 0, 1]))
    >>> votes.tensor(complete_graph(3, 2)).shape
    torch.Size([6, 5, 16])
    """

    u: torch.Tensor
    weight: torch.Tensor
    index: torch.Tensor  # type: ignore[assignment]  # hides tuple.index, which nobody asks for
    shift: torch.Tensor | None = None

    def check(self, graph: DGLGraph) -> None:
        """Raise ``InputError`` where shapes, dtypes or devices don't fit each other or the graph."""
        u, weight, index, shift = self
        expect(u.dim() >= 2 and u.shape[-1] == 16, "u", "(I, *, 16)", tuple(u.shape))
        expect(weight.dim() == 3 and weight.shape[1:] == (4, 4), "weight", "(M, 4, 4)", tuple(weight.shape))
        LinearVotes(u.unflatten(-1, (4, 4)), weight, index).check(graph)
        if shift is not None:
            expect(shift.shape == (len(u), 16), "shift", f"(I={len(u)}, 16)", tuple(shift.shape))
            same = shift.dtype == u.dtype and shift.device == u.device
            expect(same, "shift", f"{u.dtype} on {u.device} as u", f"{shift.dtype} on {shift.device}")

    def tensor(self, graph: DGLGraph) -> torch.Tensor:
        """Build the votes (E, *, 16) in the graph's edge order; raise ``InputError`` where the shapes don't fit."""
        self.check(graph)
        return self.build(graph)

    def build(self, graph: DGLGraph) -> torch.Tensor:
        """``tensor`` of votes that ``check`` has passed."""
        u, weight, index, shift = self
        votes = LinearVotes(u.unflatten(-1, (4, 4)), weight, index).build(graph).flatten(-2)
        if shift is None:
            return votes
        shift = shift.detach().index_select(0, links(graph, u.device).src)  # (E, 16)
        return votes + shift.reshape(len(shift), *[1] * (votes.dim() - 2), 16)
