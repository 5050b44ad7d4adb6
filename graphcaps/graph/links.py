"""What is made from a graph's structure once, and kept as long as the structure is there."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from dataclasses import dataclass

import torch

from .._dgl import DGLGraph


@dataclass(frozen=True)
class Links:
    """A graph's structure as index tensors on one device: what engines without DGL kernels work on."""

    src: torch.Tensor  # (E,) int64, child of each edge
    dst: torch.Tensor  # (E,) int64, parent of each edge
    num_children: int
    num_parents: int
    complete: bool  # every child linked once to every parent, source-major

    @functools.cached_property
    def in_degrees(self) -> torch.Tensor:
        """(J,) int64, in-edges of each parent."""
        return torch.bincount(self.dst, minlength=self.num_parents)


def once_per_structure(make: Callable) -> Callable:
    """Keep what ``make(graph, *how)`` gives as long as the graph's edges stay as they are; ``kept`` holds all of it.

    Keyed by the identity of DGL's immutable structure object: a graph that gains an edge gets a new one.
    """
    kept: dict[tuple, object] = {}

    @functools.wraps(make)
    def once(graph: DGLGraph, *how):
        structure = graph._graph
        key = (id(structure), *how)
        if key not in kept:
            found = make(graph, *how)
            weakref.finalize(structure, kept.pop, key, None)
            kept[key] = found
        return kept[key]

    once.kept = kept
    return once


def links(graph: DGLGraph, device: torch.device | str = "cpu") -> Links:
    """The graph's edges in edge order on ``device``, taken from DGL once per structure and device."""
    return taken(graph, torch.device(device))


@once_per_structure
def taken(graph: DGLGraph, device: torch.device) -> Links:
    src, dst = (end.to(device, torch.int64) for end in graph.edges(order="eid"))
    children, parents = graph.num_src_nodes(), graph.num_dst_nodes()
    grid = torch.arange(len(src), device=device) if len(src) == children * parents else None
    complete = grid is not None and bool((src * parents + dst == grid).all())
    return Links(src, dst, children, parents, complete)
