"""The votes that are routed: a tensor of votes, or children and the matrices that turn them into votes."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import NamedTuple, TypeVar

import torch
from torch import Tensor

from .._dgl import DGLGraph
from ..errors import check_tensor, expect, min_max
from ..graph import Links, links_of_graph

V = TypeVar("V", bound="Votes")


@dataclass(frozen=True)
class Votes:
    """The base class of all kinds of votes. They are built from the tensor ``u``."""

    u: Tensor

    @property
    def dim(self) -> int:
        """D, the size of a vote."""
        return self.u.shape[-1]

    @property
    def trailing(self) -> tuple[int, ...]:
        """The dims ``*`` between the first dim (edges or children) and the last (the numbers of a capsule)."""
        return tuple(self.u.shape[1:-1])

    @property
    def device(self) -> torch.device:
        return self.u.device

    @property
    def dtype(self) -> torch.dtype:
        return self.u.dtype

    def to(self: V, target: torch.device | str | torch.dtype) -> V:
        """Return the votes on another device or in another dtype. An index keeps its dtype."""
        moved = {}
        for field in fields(self):
            x = getattr(self, field.name)
            keep = x is None or (isinstance(target, torch.dtype) and not x.is_floating_point())
            moved[field.name] = x if keep else x.to(target)
        return replace(self, **moved)

    def check(self, links: Links) -> None:
        """Raise ``InputError`` if shapes, dtypes or devices don't fit each other or the graph."""
        raise NotImplementedError

    def tensor(self, graph: DGLGraph) -> Tensor:
        """Check the votes, then build them (E, *, D) in the graph's edge order."""
        links = links_of_graph(graph, self.device)
        self.check(links)
        return self.build(links)

    def build(self, links: Links) -> Tensor:
        """Build the votes (E, *, D) in the graph's edge order, without checks."""
        raise NotImplementedError

    def grid(self, links: Links) -> Tensor:
        """Build the votes of a complete graph as (I, J, *, D), in any memory layout."""
        return self.build(links).unflatten(0, (links.num_children, links.num_parents))


@dataclass(frozen=True)
class GivenVotes(Votes):
    """Votes given as a tensor: ``u`` is u_hat (E, *, D), in the graph's edge order."""

    def check(self, links: Links) -> None:
        u_hat, num_edges, children, parents = self.u, links.num_edges, links.num_children, links.num_parents
        check_tensor("u_hat", u_hat)
        shape, advice = tuple(u_hat.shape), ""
        fits = len(shape) >= 2 and shape[0] == num_edges
        if not fits and len(shape) >= 3 and shape[1] == num_edges:
            advice = "Edges come first: u_hat.transpose(0, 1)"
        elif not fits and len(shape) >= 3 and shape[:2] == (children, parents):
            advice = "Edges are one dim: u_hat.flatten(0, 1), if the graph is complete_graph's"
        elif not fits and len(shape) >= 4 and shape[1:3] == (children, parents):
            advice = "Edges come first: u_hat.flatten(1, 2).transpose(0, 1), if the graph is complete_graph's"
        expect(fits, "u_hat", f"(E={num_edges}, *, D)", shape, advice)

    def build(self, links: Links) -> Tensor:
        return self.u


@dataclass(frozen=True)
class LinearVotes(Votes):
    """Votes that are a linear map of the children: u_hat_e = u_i W_e (the 2017 paper's equation 2).

    An engine may route them without building the votes.

    Args:
        u: (I, *, P) child capsules.
        weight: (E, P, D), one matrix per edge; or with ``index``, any number of matrices (M, P, D).
        index: (E,) int32 or int64 in [0, M), on u's device: edge e uses the matrix ``weight[index[e]]``. Use it if
            edges share matrices, like the positions of ``graphcaps.graph.local_graph``.

    >>> from graphcaps import complete_graph
    >>> votes = LinearVotes(torch.ones(3, 5, 8), torch.ones(6, 8, 16))
    >>> votes.tensor(complete_graph(3, 2)).shape
    torch.Size([6, 5, 16])
    """

    weight: Tensor
    index: Tensor | None = None

    @property
    def dim(self) -> int:
        return self.weight.shape[-1]

    def check(self, links: Links) -> None:
        """Raise ``InputError`` if shapes, dtypes or devices don't fit each other or the graph.

        The values of ``index`` are checked only on the CPU: on a GPU, the check would wait for the device.
        """
        u, weight = self.u, self.weight
        num_children, num_edges = links.num_children, links.num_edges
        check_tensor("u", u)
        check_tensor("weight", weight)
        expect(u.dim() >= 2 and len(u) == num_children, "u", f"(I={num_children}, *, P)", tuple(u.shape))
        expect(weight.dtype == u.dtype, "weight", f"{u.dtype} as u", weight.dtype)
        expect(weight.device == u.device, "weight", f"device {u.device} as u", weight.device)
        advice = "If edges share matrices, pass an index"
        expect(weight.dim() == 3, "weight", "(E, P, D), or (M, P, D) with an index", tuple(weight.shape), advice)
        expect(weight.shape[-2] == u.shape[-1], "weight", f"P={u.shape[-1]} as in u", tuple(weight.shape))
        if self.index is not None:
            _check_index(self.index, len(weight), u, links)
        else:
            expect(len(weight) == num_edges, "weight", f"(E={num_edges}, P, D)", tuple(weight.shape), advice)

    def matrices(self) -> Tensor:
        """Return the matrix of each edge, (E, P, D)."""
        return self.weight if self.index is None else self.weight.index_select(0, self.index)

    def build(self, links: Links) -> Tensor:
        if links.complete:
            return self.grid(links).flatten(0, 1)
        return torch.einsum("e...p,epd->e...d", self.u.index_select(0, links.src), self.matrices())

    def grid(self, links: Links) -> Tensor:
        by_child = self.matrices().unflatten(0, (len(self.u), links.num_parents))  # (I, J, P, D)
        return torch.einsum("i...p,ijpd->ij...d", self.u, by_child)


@dataclass(frozen=True)
class MatrixVotes(Votes):
    """Votes that are matrix products of 4 x 4 poses: V_e = M_i W_e (Hinton, Sabour & Frosst 2018).

    A vote takes 64 multiplications, and a vote of ``LinearVotes`` with P = D = 16 takes 256.

    Args:
        u: (I, *, 16), the poses M_i, flattened row by row.
        weight: (M, 4, 4), any number of matrices W.
        index: (E,) int32 or int64 in [0, M), on u's device: edge e uses the matrix ``weight[index[e]]``.
        shift: (I, 16), a constant that is added to all votes of a child, or None. It gets no gradient.

    >>> from graphcaps import complete_graph
    >>> votes = MatrixVotes(torch.ones(3, 5, 16), torch.ones(2, 4, 4), torch.tensor([0, 1, 0, 1, 0, 1]))
    >>> votes.tensor(complete_graph(3, 2)).shape
    torch.Size([6, 5, 16])
    """

    weight: Tensor
    index: Tensor
    shift: Tensor | None = None

    def check(self, links: Links) -> None:
        u, weight, shift = check_tensor("u", self.u), check_tensor("weight", self.weight), self.shift
        expect(u.dim() >= 2 and u.shape[-1] == 16, "u", "(I, *, 16)", tuple(u.shape))
        expect(weight.dim() == 3 and weight.shape[1:] == (4, 4), "weight", "(M, 4, 4)", tuple(weight.shape))
        self._rows().check(links)
        if shift is not None:
            check_tensor("shift", shift)
            expect(shift.shape == (len(u), 16), "shift", f"(I={len(u)}, 16)", tuple(shift.shape))
            same = shift.dtype == u.dtype and shift.device == u.device
            expect(same, "shift", f"{u.dtype} on {u.device} as u", f"{shift.dtype} on {shift.device}")

    def build(self, links: Links) -> Tensor:
        votes = self._rows().build(links).flatten(-2)
        if self.shift is None:
            return votes
        shift = self.shift.detach().index_select(0, links.src)  # (E, 16)
        return votes + shift.reshape(len(shift), *[1] * (votes.dim() - 2), 16)

    def _rows(self) -> LinearVotes:
        """Return the votes as those of the poses' four rows, because W multiplies each row on its own."""
        return LinearVotes(self.u.unflatten(-1, (4, 4)), self.weight, self.index)


class Finish(NamedTuple):
    """How a layer finishes the sums s of a node: squash(s K / in-degree / f + residual / f' + bias)."""

    power: Tensor | None  # (N_src, *), or with ``per_edge`` (E, *): f^2 is its mean over the in-edges; None if f is 1
    bias: Tensor | None  # (K, D)
    residual: Tensor | None  # (N_dst, *, K, D)
    own_power: Tensor | None  # (N_dst, *): f'^2, the mean square of the node's own features; None if f' is 1


@dataclass(frozen=True)
class NodeVotes(Votes):
    """Votes along edges e = (u, v): node u gives capsule k of v the vote w_ek z_uk. Layers make them, unchecked.

    Args:
        u: z (N_src, *, K, D), shared by all out-edges of a node; or with ``per_edge`` (E, *, K, D). With a prior, K may
            be 1 here: the votes for all capsules are then the same.
        scale: w, the factors of the votes, (E, *, K) or broadcastable with it, or None for 1.
        per_edge: whether each edge has its own votes.
        prior: logits (E, *, K) that are added to b, or None.
        finish: what kernels may do with the sums, or None.
    """

    scale: Tensor | None = None
    per_edge: bool = False
    prior: Tensor | None = None
    finish: Finish | None = None

    @property
    def num_caps(self) -> int:
        """K, the number of capsules of a node."""
        return self.u.shape[-2] if self.prior is None else self.prior.shape[-1]

    @property
    def trailing(self) -> tuple[int, ...]:
        return (*self.u.shape[1:-2], self.num_caps)  # those of the parents: (*, K)

    def build(self, links: Links) -> Tensor:
        """Build the votes (E, *, K, D) in edge order."""
        z = self.u.expand(*self.u.shape[:-2], self.num_caps, -1)
        votes = z if self.per_edge else z.index_select(0, links.src)
        return votes if self.scale is None else votes * self.scale.to(votes.dtype).unsqueeze(-1)


def _check_index(index: Tensor, num_matrices: int, u: Tensor, links: Links) -> None:
    check_tensor("index", index, floating=False)
    expect(index.dtype in (torch.int32, torch.int64), "index", "int32 or int64", index.dtype)
    expect(index.shape == (links.num_edges,), "index", f"(E={links.num_edges},)", tuple(index.shape))
    expect(index.device == u.device, "index", f"device {u.device} as u", index.device)
    if (ends := min_max(index)) is not None:
        inside = ends[0] >= 0 and ends[1] < num_matrices
        expect(inside, "index", f"matrices in [0, M={num_matrices})", f"{ends[0]:.0f} to {ends[1]:.0f}")


def as_votes(votes: Votes | Tensor) -> Votes:
    """Return ``votes`` unchanged, or wrap a tensor in ``GivenVotes``."""
    return votes if isinstance(votes, Votes) else GivenVotes(votes)
