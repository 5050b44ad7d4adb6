"""The operations on edges that routings are written with. Each engine implements them.

    child_softmax(b)          softmax over each child's out-edges
    weighted_sum(c, u_hat)    for each parent, the sum over its in-edges of c u_hat
    agreement(u_hat, v)       on each edge, <u_hat, v> of its vote and its parent
    squared_lengths(u_hat)    on each edge, <u_hat, u_hat>
    sum_to_parents(x)         for each parent, the sum over its in-edges of x
    child_sum(x)              on each edge, the sum of x over its child's out-edges
    child_max(x)              on each edge, the largest x of its child's out-edges, without a gradient
    child_topk(x, k)          on each edge, whether its x is among the k largest of its child's out-edges (bool: a mask)
    from_children(x)          on each edge, its child's x
    from_parents(x)           on each edge, its parent's x
    has_votes()               for each parent, whether it has an in-edge
    observe(r, b, c, v, u_hat)    calls the observer with iteration r; costs nothing without an observer

"Edge numbers" are a tensor with a number per edge, and "edge vectors" one with a vector per edge. ``numbers_in`` and
``vectors_in`` convert them to the engine's own layout, and ``numbers_out`` back: (J, *, I) and (J, *, I, D) in
``DenseEdges``, but (E, *) and (E, *, D) in edge order otherwise. Elementwise arithmetic works in all; D comes last.

E edges, I children, J parents, * any trailing dims, D numbers in a vote.
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor

from ..._dgl import DGLGraph
from ...errors import GraphcapsError, expect
from ...tracing import is_tracing
from ..observers import Observer
from ..routing import Parents, Routing, squashed
from ..votes import Votes


class Edges:
    """The base class of the engines. A subclass supports some calls and implements the operations in its layout."""

    engine: ClassVar[str]
    """The name in ``with graphcaps.engine(name)``. Two classes may share a name and support different calls."""

    observer: Observer | None = None
    observed: int = 0
    """How often ``observe`` was called."""

    @classmethod
    def supports(cls, graph: DGLGraph, votes: Votes, routing: Routing) -> str:
        """Return what the engine needs to route these votes and lacks, or "" if it can route them."""
        raise NotImplementedError

    def __init__(self, graph: DGLGraph, votes: Votes):
        raise NotImplementedError

    def route(
        self, graph: DGLGraph, votes: Votes, routing: Routing, prior: Tensor, activation: Tensor | None, coupling: bool
    ) -> Parents:
        """Route by the routing's ``forward``. ``prior`` (E, *) is in edge order and has the dtype of the computation.

        ``coupling``: whether to return couplings (E, *).
        """
        u_hat = self.vectors_in(graph, votes, prior.dtype)
        found = self.run(routing, u_hat, self.numbers_in(prior), activation)
        wanted, got = (graph.num_dst_nodes(), *votes.trailing, votes.dim), tuple(found.v.shape)
        expect(is_tracing() or got == wanted, f"{type(routing).__name__}.forward", f"parents (J, *, D)={wanted}", got)
        c = found.coupling if coupling else None
        return found._replace(coupling=None if c is None else self.numbers_out(c.detach()))

    def run(self, routing: Routing, u_hat: Any, prior: Tensor, activation: Tensor | None = None) -> Parents:
        """Run the routing's ``forward`` on votes and prior that are in the engine's layout."""
        found = routing(self, u_hat, prior, activation)
        name, wanted = f"{type(routing).__name__}.forward", "Parents, or the sums s (J, *, D) alone"
        fits = isinstance(found, (Parents, Tensor))
        expect(fits, name, wanted, type(found).__name__, "Return graphcaps.routing.squashed(s, c)")
        if self.observer is not None and not self.observed:
            raise GraphcapsError(
                f"{type(routing).__name__}: expected edges.observe(r, b, c, v, votes) in each iteration, got none. "
                "Observers and graphcaps.watch are handed the state there"
            )
        return found if isinstance(found, Parents) else squashed(found)

    def numbers_in(self, x: Tensor) -> Tensor:
        """(E, *) in edge order -> edge numbers."""
        return x

    def numbers_out(self, x: Tensor) -> Tensor:
        """Edge numbers -> (E, *) in edge order."""
        return x

    def vectors_in(self, graph: DGLGraph, votes: Votes, dtype: torch.dtype) -> Any:
        """Votes -> edge vectors of this dtype."""
        return votes.build(graph).to(dtype)

    def child_softmax(self, b: Tensor) -> Tensor:
        """Edge numbers -> edge numbers: softmax over each child's out-edges."""
        exp = torch.exp(b - self.child_max(b))  # shifting all logits of a child changes nothing
        return exp / self.child_sum(exp)

    def weighted_sum(self, c: Tensor, u_hat: Any) -> Tensor:
        """Edge numbers and edge vectors -> (J, *, D): the sum over each parent's in-edges of c u_hat."""
        return self.sum_to_parents(c.unsqueeze(-1) * u_hat)

    def agreement(self, u_hat: Any, v: Tensor) -> Tensor:
        """Edge vectors and parents (J, *, D) -> edge numbers: <u_hat, v>."""
        return (u_hat * self.from_parents(v)).sum(-1)

    def squared_lengths(self, u_hat: Any) -> Tensor:
        """Edge vectors -> edge numbers: <u_hat, u_hat>."""
        return u_hat.square().sum(-1)

    def sum_to_parents(self, x: Tensor) -> Tensor:
        """Edge numbers -> (J, *), or edge vectors -> (J, *, D): the sum over each parent's in-edges."""
        raise NotImplementedError

    def child_sum(self, x: Tensor) -> Tensor:
        """Edge numbers -> edge numbers: the sum over the out-edges of each edge's child."""
        raise NotImplementedError

    def child_max(self, x: Tensor) -> Tensor:
        """Edge numbers -> edge numbers, detached: the largest over the out-edges of each edge's child."""
        raise NotImplementedError

    def child_topk(self, x: Tensor, k: int) -> Tensor:
        """Edge numbers -> bool edge numbers: the k largest over each child's out-edges. Ties are broken arbitrarily.

        To mask logits: ``b.masked_fill(~edges.child_topk(b, k), -torch.inf)``.
        """
        raise NotImplementedError

    def from_children(self, x: Tensor) -> Tensor:
        """(I, *) -> edge numbers: each edge's child."""
        raise NotImplementedError

    def from_parents(self, x: Tensor) -> Tensor:
        """(J, *) -> edge numbers, or (J, *, D) -> edge vectors: each edge's parent."""
        raise NotImplementedError

    def has_votes(self) -> Tensor:
        """(J,) bool: whether each parent has an in-edge."""
        raise NotImplementedError

    def observe(self, r: int, b: Tensor, c: Tensor, v: Tensor, u_hat: Any) -> None:
        """Call the observer with iteration r's logits, couplings, parents (J, *, D) and agreement."""
        self.observed += 1
        if self.observer is not None:
            agreement = self.agreement(u_hat.detach(), v.detach())
            b, c, agreement = (self.numbers_out(x) for x in (b, c, agreement))
            self.observer(r, b, c, v, agreement)


def largest_of_group(x: Tensor, group: Tensor, num_groups: int, k: int) -> Tensor:
    """(E, *) bool: whether each x (E, *) is among the k largest in its ``group`` (E,)."""
    by_size = x.argsort(dim=0, descending=True, stable=True)
    group_by_size = group[by_size]  # (E, *)
    order = by_size.gather(0, group_by_size.argsort(dim=0, stable=True))  # group by group, the largest first
    begin = group.bincount(minlength=num_groups).cumsum(0).roll(1)
    begin[:1] = 0
    place = torch.arange(len(x), device=x.device).view(-1, *[1] * (x.dim() - 1))
    return torch.zeros_like(x, dtype=torch.bool).scatter(0, order, place - begin[group[order]] < k)


def per_parent(numbers: Tensor | float, like: Tensor) -> Tensor:
    """Return a number, or one per parent (J,), as a tensor like ``like`` (J, *) that broadcasts with it."""
    x = torch.as_tensor(numbers, dtype=like.dtype, device=like.device)
    return x.reshape(-1, *[1] * (like.dim() - 1)) if x.dim() else x
