"""What a layer shows on random graphs with the same degrees, for comparison.

A layer that ``explore_graph`` trains is trained in the same way on each random graph. What counts is
``Trained.repeated``. On 16 random graphs of 90 to 2,000 edges, it was at most 0.09. On 64 of 20 to 60 edges, it was at
most 0.18; two of these were above their random graphs by 0.07 and 0.1, which is less than 1 / sqrt(E). It is 0.71 on
the visits of Davis's women, 0.85 on published graphs with four factors, and 0.15 to 0.24 on karate clubs with planted
groups.

A layer that is given routes each random graph with its features. What counts is the share of edges that choose a
capsule, or that a cause of a ``BeliefConv`` explains. The layer may have been trained on the edges of the graph, and
wasn't on those of the random graphs.
"""

from collections.abc import Callable
from typing import NamedTuple

import networkx
import numpy as np
import torch
from torch import Tensor

from .._dgl import DGLGraph, dgl
from ..graph import links_of_graph
from ..nn import CapsuleConv
from ..viz.routing.selection import CHOOSES
from .hidden_edges import Trained, train_on_hidden_edges

DRAWS, ROUNDS = 4, 40  # random graphs; rounds in which half of the edges swap ends with the other half
LEAST = 0.05  # the graph must be above all random graphs by this, by the range of these, and by 1 / sqrt(E)


class Chance(NamedTuple):
    """A graph's numbers, each followed by those of the random graphs."""

    strength: list[float]
    """``Trained.repeated``, or the share of edges that choose a capsule."""
    chosen: list[int]
    """The number of edges that choose a capsule, in a trained layer only those for which another training agrees."""
    found: list[float]
    """``Trained.found``, or none."""
    edges: int

    @property
    def beyond(self) -> bool:
        """Whether the graph is above all random graphs by a margin."""
        of_graph, *random = self.strength
        return of_graph >= max(random) + max(LEAST, max(random) - min(random), self.edges**-0.5)


def train_beside_chance(
    graph: DGLGraph, num_caps: int, weight: Tensor | None, on_progress: Callable[..., None]
) -> tuple[Trained, Chance]:
    """Train a layer on the graph, and others on random graphs with its degrees."""
    results = []
    for draw, drawn in enumerate(with_random(graph)):
        title = f"training on random graph {draw} of {DRAWS}" if draw else "training on hidden edges"

        def progress(share: float, title: str = title, draw: int = draw) -> None:
            on_progress((draw + share) / (1 + DRAWS), title)

        results.append(train_on_hidden_edges(drawn, num_caps, weight, progress))
    chosen = [int((choose(trained.coupling) & trained.agrees).sum()) for trained in results]
    repeated, found = [trained.repeated for trained in results], [trained.found for trained in results]
    return results[0], Chance(repeated, chosen, found, graph.num_edges())


@torch.no_grad()
def route_beside_chance(conv: CapsuleConv, graph: DGLGraph, feat: Tensor, weight: Tensor | None) -> Chance:
    """Route the graph, and random graphs with its degrees, with a layer that was given."""
    links = [links_of_graph(drawn, feat.device) for drawn in with_random(graph)]
    chosen = [int(choose(conv.capsules(ends, feat, weight, True)[1].flatten(1)).sum()) for ends in links]
    return Chance([number / graph.num_edges() for number in chosen], chosen, [], graph.num_edges())


def with_random(graph: DGLGraph) -> list[DGLGraph]:
    """The graph, and random graphs with its degrees."""
    return [graph, *(swapped(graph, seed) for seed in range(DRAWS))]


def choose(c: Tensor) -> Tensor:
    """Whether each edge, with couplings (E, K), chooses a capsule."""
    equal = 1 / c.shape[1]
    return c.amax(1) > equal + CHOOSES * (1 - equal)


def swapped(graph: DGLGraph, seed: int) -> DGLGraph:
    """Let edges swap ends at random. Degrees stay, and self-loops, and in a bipartite graph the two kinds of nodes.

    If each edge has its reverse, this still holds. An edge's number goes with the end that votes.
    """
    draw, links, count = np.random.default_rng(seed), links_of_graph(graph), graph.num_nodes()
    src, dst = links.src.numpy().copy(), links.dst.numpy().copy()
    forward, back = links.src * count + links.dst, links.dst * count + links.src
    two_way = torch.equal(forward.sort().values, back.sort().values)
    reverse = links.reverse.numpy() if two_way else np.arange(len(src))
    edges = ((src != dst) & (np.arange(len(src)) <= reverse)).nonzero()[0]
    mirrored = False
    if two_way:
        plain = networkx.Graph(zip(src[edges].tolist(), dst[edges].tolist(), strict=True))
        mirrored = not networkx.is_bipartite(plain)
        if not mirrored:  # all edges go from one kind to the other
            kind = networkx.bipartite.color(plain)
            edges = np.array([e if kind[src[e]] else reverse[e] for e in edges], dtype=np.int64)

    def keys(u: np.ndarray, v: np.ndarray) -> np.ndarray:
        return np.minimum(u, v) * count + np.maximum(u, v) if two_way else u * count + v

    for _ in range(ROUNDS):
        one, other = np.split(draw.permutation(edges)[: len(edges) // 2 * 2], 2)
        if mirrored:
            turn = draw.random(len(other)) < 0.5
            other = np.where(turn, reverse[other], other)
        new = np.stack([keys(src[one], dst[other]), keys(src[other], dst[one])])
        found, times = np.unique(new, return_counts=True)
        taken = np.union1d(keys(src, dst), found[times > 1])
        fits = ~np.isin(new, taken).any(0) & (src[one] != dst[other]) & (src[other] != dst[one])
        one, other = one[fits], other[fits]
        dst[one], dst[other] = dst[other], dst[one]
        if two_way:
            src[reverse[one]], src[reverse[other]] = dst[one], dst[other]
    return dgl.graph((torch.from_numpy(src), torch.from_numpy(dst)), num_nodes=count)
