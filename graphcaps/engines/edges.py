"""The operations on edges that routings are written with, and the simplest engine: torch on any graph and device.

"Edge numbers" are a tensor with a number for each edge, "edge vectors" one with a vector for each edge. Each engine has
its own layout for them: (E, *) and (E, *, D) in edge order here, (J, *, I) and (J, *, I, D) in ``DenseEdges``, and
(E, *, K) and (E, *, K, D) in ``NodeEdges``. Elementwise arithmetic works in all; D comes last.

E edges, I children, J parents, * any trailing dims, D numbers in a vote.
"""

from typing import Any, ClassVar

import torch
from torch import Tensor

from ..algorithms.base import Parents, Routing, squashed
from ..algorithms.observers import Observer
from ..algorithms.votes import Votes
from ..errors import GraphcapsError, expect
from ..graph import Links
from ..tracing import is_tracing


class Edges:
    """Routing by torch's ``index_select`` and ``index_add``, and the base of the other engines.

    A subclass with another layout also has ``vectors_in``, ``numbers_in`` and ``numbers_out``. They may pad: a softmax
    must then ignore the padding, where logits are -inf, and so must sums.
    """

    engine: ClassVar[str] = "torch"
    """The name in ``with graphcaps.engine(name)``. Two classes may share a name and support different calls."""

    observer: Observer | None = None
    half: torch.dtype | None = None
    """The dtype in which kernels on a GPU multiply float32 votes; None for exact products."""

    observed: int = 0
    """How often ``observe`` was called."""

    @classmethod
    def needs(cls, links: Links, votes: Votes, routing: Routing) -> str:
        """Return what the engine needs that this call isn't, such as "a complete graph"; "" if it can route it."""
        return ""

    def __init__(self, links: Links, votes: Votes):
        self.links, self.votes = links, votes

    def route(self, routing: Routing, prior: Tensor, activation: Tensor | None, coupling: bool) -> Parents:
        """Route by the routing's ``forward``. ``prior`` (E, *) is in edge order and has the dtype of the computation.

        ``coupling``: whether to return couplings (E, *).
        """
        parents = self.run(routing, self.vectors_in(prior.dtype), self.numbers_in(prior), activation)
        c = parents.coupling if coupling else None
        return parents._replace(coupling=None if c is None else self.numbers_out(c.detach()))

    def run(self, routing: Routing, u_hat: Any, prior: Tensor, activation: Tensor | None = None) -> Parents:
        """Run the routing's ``forward`` on votes and a prior in the engine's layout."""
        result = routing(self, u_hat, prior, activation)
        name, wanted = f"{type(routing).__name__}.forward", "Parents, or the sums s (J, *, D) alone"
        fits = isinstance(result, (Parents, Tensor))
        expect(fits, name, wanted, type(result).__name__, "Return graphcaps.routing.squashed(s, c)")
        if self.observer is not None and not self.observed:
            raise GraphcapsError(
                f"{type(routing).__name__}: expected edges.observe(r, b, c, v, votes) in each iteration, got none. "
                "Observers and graphcaps.watch are handed the state there"
            )
        parents = result if isinstance(result, Parents) else squashed(result)
        sizes = self.links.num_parents, *self.votes.trailing, self.votes.dim
        for part, x, shape in zip(Parents._fields, parents, (sizes, sizes, sizes[:-1], prior.shape), strict=True):
            if x is not None and x.shape != shape and not is_tracing():
                expect(False, name, f"{part} of shape {tuple(shape)}", tuple(x.shape))
        return parents

    def numbers_in(self, x: Tensor) -> Tensor:
        """(E, *) in edge order -> edge numbers, in the engine's layout."""
        return x

    def numbers_out(self, x: Tensor) -> Tensor:
        """Edge numbers -> (E, *) in edge order."""
        return x

    def vectors_in(self, dtype: torch.dtype) -> Any:
        """The votes as edge vectors of this dtype."""
        return self.precise(dtype).build(self.links).to(dtype)

    def precise(self, dtype: torch.dtype) -> Votes:
        """The votes for a multiplication in this dtype. On CUDA, half precision is multiplied as it is."""
        return self.votes if self.votes.device.type == "cuda" else self.votes.to(dtype)

    def child_softmax(self, b: Tensor) -> Tensor:
        """Edge numbers -> edge numbers: softmax over each child's out-edges."""
        exp = torch.exp(b - self.child_max(b))  # subtracting a number from all logits of a child changes nothing
        return exp / self.child_sum(exp)

    def weighted_sum(self, c: Tensor, u_hat: Any) -> Tensor:
        """Edge numbers and edge vectors -> (J, *, D): the sum over each parent's in-edges of c u_hat."""
        return self.sum_to_parents(c.unsqueeze(-1) * u_hat)

    def agreement(self, u_hat: Any, v: Tensor) -> Tensor:
        """Edge vectors and parents (J, *, D) -> edge numbers: <u_hat, v>."""
        return (u_hat * self.from_parents(v)).sum(-1)

    def sum_to_parents(self, x: Tensor) -> Tensor:
        """Edge numbers -> (J, *), or edge vectors -> (J, *, D): the sum over each parent's in-edges."""
        return x.new_zeros(self.links.num_parents, *x.shape[1:]).index_add(0, self.links.dst, x)

    def child_sum(self, x: Tensor) -> Tensor:
        """Edge numbers -> edge numbers: the sum over the out-edges of each edge's child."""
        total = x.new_zeros(self.links.num_children, *x.shape[1:]).index_add(0, self.links.src, x)  # (I, *)
        return total.index_select(0, self.links.src)

    def child_max(self, x: Tensor) -> Tensor:
        """Edge numbers -> edge numbers, detached: the largest number of the out-edges of each edge's child."""
        src = self.links.src
        child = src.view(-1, *[1] * (x.dim() - 1)).expand_as(x)
        top = x.detach().new_zeros(self.links.num_children, *x.shape[1:])
        return top.scatter_reduce(0, child, x.detach(), "amax", include_self=False).index_select(0, src)

    def child_topk(self, x: Tensor, k: int) -> Tensor:
        """Edge numbers -> bool edge numbers: True for the k largest of each child's out-edges.

        Of equal numbers, the first in edge order are. Mask only the logits that the softmax receives, because
        ``observe`` needs finite ones: ``edges.child_softmax(b.masked_fill(~edges.child_topk(b, k), -torch.inf))``.
        """
        src = self.links.src
        by_size = x.detach().argsort(dim=0, descending=True, stable=True)
        child_by_size = src[by_size]  # (E, *)
        order = by_size.gather(0, child_by_size.argsort(dim=0, stable=True))  # child by child, the largest first
        begin = src.bincount(minlength=self.links.num_children).cumsum(0).roll(1)
        begin[:1] = 0
        place = torch.arange(len(x), device=x.device).view(-1, *[1] * (x.dim() - 1))
        return torch.zeros_like(x, dtype=torch.bool).scatter(0, order, place - begin[src[order]] < k)

    def from_children(self, x: Tensor) -> Tensor:
        """(I, *) -> edge numbers: the number of each edge's child."""
        return x.index_select(0, self.links.src)

    def from_parents(self, x: Tensor) -> Tensor:
        """(J, *) -> edge numbers, or (J, *, D) -> edge vectors: the number or vector of each edge's parent."""
        return x.index_select(0, self.links.dst)

    def has_votes(self) -> Tensor:
        """(J,) bool: whether each parent has an in-edge."""
        none = torch.zeros(self.links.num_parents, device=self.links.dst.device)
        return none.index_fill(0, self.links.dst, 1.0) > 0  # unlike counting, this doesn't wait for a GPU

    def observe(self, r: int, b: Tensor, c: Tensor, v: Tensor, u_hat: Any) -> None:
        """Call the observer, if any, with the logits, couplings, parents (J, *, D) and agreement of iteration r."""
        self.observed += 1
        if self.observer is not None:
            agreement = self.agreement(u_hat.detach(), v.detach())
            b, c, agreement = (self.numbers_out(x) for x in (b, c, agreement))
            self.observer(r, b, c, v, agreement)


class AlignedEdges(Edges):
    """Base of engines whose edge numbers have a dim along which each child's out-edges lie."""

    softmax_dim: ClassVar[int]

    def child_softmax(self, b: Tensor) -> Tensor:
        return b.softmax(self.softmax_dim)

    def child_sum(self, x: Tensor) -> Tensor:
        return x.sum(self.softmax_dim, keepdim=True).expand_as(x)

    def child_max(self, x: Tensor) -> Tensor:
        return x.detach().amax(self.softmax_dim, keepdim=True).expand_as(x)

    def child_topk(self, x: Tensor, k: int) -> Tensor:
        by_size = x.detach().argsort(stable=True, dim=self.softmax_dim, descending=True)
        top = by_size.narrow(self.softmax_dim, 0, min(k, x.shape[self.softmax_dim]))
        return torch.zeros_like(x, dtype=torch.bool).scatter(self.softmax_dim, top, True)
