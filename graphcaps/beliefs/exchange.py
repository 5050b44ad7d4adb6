"""An iteration of ``BeliefConv``: beliefs of nodes, and the messages that edges send to their two ends."""

import functools
from dataclasses import dataclass

import torch
from torch import Tensor

from .. import kernels
from ..graph import Links
from ..graph.links import ByParent

DAMPING = 0.3  # share of a message's previous value in the next one, so that messages of hubs don't oscillate
INERTIA = 0.5  # the same for the means over the graph, so that all nodes don't change sides at once


@dataclass(frozen=True)
class Rates:
    """Rates of edges: epsilon, g (), and rho (K,), and how they depend on the states of an edge's two ends."""

    epsilon: Tensor
    gain: Tensor
    rho: Tensor
    evidence: Tensor  # S (K, D, D), symmetric: what an edge says about the state of one end, by the state of the other
    ratio: Tensor  # A (K, D, D): the rate of edges between two states over rho

    @classmethod
    def of(cls, epsilon: Tensor, gain: Tensor, rho: Tensor, table: Tensor) -> "Rates":
        """``table`` (K, D, D) is S, perhaps not symmetric."""
        evidence = (table + table.transpose(1, 2)) / 2
        strength = (rho / epsilon).log1p().view(-1, 1, 1)
        return cls(epsilon, gain, rho, evidence, (evidence * strength).expm1() * (epsilon / rho).view(-1, 1, 1))


@dataclass(frozen=True)
class Exchange:
    """All that the iterations of a call share: z (N, K, D), each edge's weight (E, 1), and each node's degree."""

    links: Links
    members: Links  # from each node to its graph
    rates: Rates
    z: Tensor
    weight: Tensor
    relative: Tensor  # d_v / d (N, 1, 1)
    pairs: Tensor  # nu rho_k d_v / sum over l of 1 / D_l (N, K, 1)

    def first(self, h: Tensor) -> tuple[Tensor, Tensor]:
        """The messages (E, K, D) and the field before the first iteration."""
        return h.index_select(0, self.links.src), self.field(h)

    def field(self, h: Tensor) -> Tensor:
        """The mean of d_u h_uk / d over the nodes u of each graph, (graphs, K, D)."""
        return mean_of_graph(self.relative * h, self.members)

    def without_edges(self, h: Tensor, field: Tensor) -> tuple[Tensor, Tensor]:
        """The next field, and logits (N, K, D) before the evidence of edges is added."""
        field = torch.lerp(self.field(h), field, INERTIA)
        return field, self.z - self.pairs * of_nodes(along(field, self.rates.ratio), self.members)

    def step(self, h: Tensor, m: Tensor, field: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return the next beliefs (N, K, D), messages (E, K, D) and field, and the explanations rho a (E, K)."""
        links, rates = self.links, self.rates
        field, base = self.without_edges(h, field)
        explained = rates.rho * (along(m, rates.ratio) * m.index_select(0, links.reverse)).sum(-1).clamp_min(0)
        others = (explained.sum(1, keepdim=True) - explained).clamp_min(0)  # rounding can make it slightly negative
        strength = rates.gain * (rates.rho / (rates.epsilon + others)).log1p() * self.weight
        from_edges = strength.unsqueeze(-1) * along(m, rates.evidence)  # (E, K, D), logits
        logits = base.index_add(0, links.dst, from_edges)
        without = logits.index_select(0, links.src) - from_edges.index_select(0, links.reverse)
        return logits.softmax(-1), torch.lerp(without.softmax(-1), m, DAMPING), field, explained

    def in_edge_order(self, x: Tensor) -> Tensor:
        """Numbers (E, *) of messages, in the order of the graph's edges."""
        return x


class ExchangeByKernels(Exchange):
    """An exchange by Numba's or Triton's kernels. Its messages are sorted by the node that receives them."""

    @functools.cached_property
    def rows(self) -> ByParent:
        return self.links.by_parent(True)

    @functools.cached_property
    def numbers(self) -> list[Tensor]:
        """What the kernels of all iterations read, besides logits and messages."""
        rates, weight = self.rates, self.weight.flatten().index_select(0, self.rows.eid)
        of_all = torch.stack([rates.epsilon, rates.gain, torch.full_like(rates.gain, DAMPING)])
        tables = (table.transpose(0, 1).contiguous() for table in (rates.evidence, rates.ratio))
        return [weight, rates.rho, of_all, *tables, self.rows.indptr, self.rows.reverse]

    def first(self, h: Tensor) -> tuple[Tensor, Tensor]:
        return h.index_select(0, self.rows.src), self.field(h)

    def step(self, h: Tensor, m: Tensor, field: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        field, base = self.without_edges(h, field)
        h, m, explained = kernels.exchange(base, m, *self.numbers)
        return h, m, field, explained

    def in_edge_order(self, x: Tensor) -> Tensor:
        return torch.empty_like(x).index_copy_(0, self.rows.eid.long(), x)


def along(h: Tensor, table: Tensor) -> Tensor:
    """(M, K, D): the distributions h (M, K, D) times the table (K, D, D) of each capsule."""
    return torch.bmm(h.transpose(0, 1), table).transpose(0, 1)


def mean_of_graph(x: Tensor, members: Links) -> Tensor:
    """The mean of x (N, *) over the nodes of each graph, (graphs, *)."""
    if members.num_parents == 1:
        return x.mean(0, keepdim=True)
    total = x.new_zeros(members.num_parents, *x.shape[1:]).index_add(0, members.dst, x)
    return total / members.in_degrees.clamp_min(1).view(-1, *[1] * (x.dim() - 1))


def of_nodes(x: Tensor, members: Links) -> Tensor:
    """Numbers x (graphs, *) for each node, (N, *), or (1, *) if there is one graph."""
    return x if members.num_parents == 1 else x.index_select(0, members.dst)
