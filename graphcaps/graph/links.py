"""What is made from a graph's structure once, and kept as long as the structure is there."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Concatenate, Generic, ParamSpec, TypeVar

import torch

from .._dgl import DGLGraph

How = ParamSpec("How")
Made = TypeVar("Made")


@dataclass(frozen=True)
class Links:
    """A graph's structure as index tensors on one device: what engines without DGL kernels work on.

    It stands for its graph where torch traces, which can't look into DGL.
    """

    src: torch.Tensor  # (E,) int64, child of each edge
    dst: torch.Tensor  # (E,) int64, parent of each edge
    num_children: int
    num_parents: int
    complete: bool  # every child linked once to every parent, source-major

    @property
    def device(self) -> torch.device:
        """Where the tensors are."""
        return self.src.device

    def num_edges(self) -> int:
        """E, by the name that it has in DGL."""
        return self.src.shape[0]

    def num_src_nodes(self) -> int:
        """I."""
        return self.num_children

    def num_dst_nodes(self) -> int:
        """J."""
        return self.num_parents

    @functools.cached_property
    def in_degrees(self) -> torch.Tensor:
        """(J,) int64, in-edges of each parent."""
        return torch.bincount(self.dst, minlength=self.num_parents)


class OncePerStructure(Generic[How, Made]):
    """``make(graph, *how)``, whose results are in ``kept`` as long as the graph's edges stay as they are.

    Keyed by the identity of DGL's immutable structure object: a graph that gains an edge gets a new one.
    """

    def __init__(self, make: Callable[Concatenate[DGLGraph, How], Made]):
        functools.update_wrapper(self, make)  # its docstring and signature, for help() and the reference
        self.make = make
        self.kept: dict[tuple[object, ...], Made] = {}

    def __call__(self, graph: DGLGraph, *how: How.args, **named: How.kwargs) -> Made:
        structure = graph._graph
        key = (id(structure), *how, *named.items())
        if key not in self.kept:
            with torch.inference_mode(False):  # what is kept serves trainings too
                found = self.make(graph, *how, **named)
            weakref.finalize(structure, self.kept.pop, key, None)
            self.kept[key] = found
        return self.kept[key]


def once_per_structure(make: Callable[Concatenate[DGLGraph, How], Made]) -> OncePerStructure[How, Made]:
    """Keep what ``make(graph, *how)`` gives as long as the graph's edges stay as they are; ``kept`` holds all of it."""
    return OncePerStructure(make)


def links(graph: DGLGraph | Links, device: torch.device | str = "cpu") -> Links:
    """The graph's edges in edge order on ``device``, taken from DGL once per structure and device.

    Links are given back as they are; they are on the device already.
    """
    return graph if isinstance(graph, Links) else taken(graph, torch.device(device))


@once_per_structure
def taken(graph: DGLGraph, device: torch.device) -> Links:
    src, dst = (end.to(device, torch.int64) for end in graph.edges(order="eid"))
    children, parents = graph.num_src_nodes(), graph.num_dst_nodes()
    grid = torch.arange(len(src), device=device) if len(src) == children * parents else None
    complete = grid is not None and bool((src * parents + dst == grid).all())
    return Links(src, dst, children, parents, complete)
