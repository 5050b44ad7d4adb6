"""Index arrays and other things made of a graph's structure, cached as long as the structure is there."""

from __future__ import annotations

import functools
import threading
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Concatenate, Generic, ParamSpec, TypeVar

import torch

from .._dgl import DGLGraph
from ..errors import expect

How = ParamSpec("How")
Made = TypeVar("Made")


def is_tracing() -> bool:
    """Whether torch traces or transforms: it wants to see the operations, and its tensors may have no numbers."""
    # The compiler can't see into all of these questions.
    return (
        torch.compiler.is_compiling()
        or torch.jit.is_tracing()
        or torch._C._are_functorch_transforms_active()
        or type(torch.empty(0)) is not torch.Tensor  # within FakeTensorMode
    )


def run_untraced(make: Callable[[], Made]) -> Made:
    """``make()``, whose tensors have numbers also where torch traces or transforms.

    A graph's structure is no part of what is traced. Traces and transforms belong to a thread, so this takes another.
    """
    if not is_tracing():
        return make()
    made: list[Made] = []
    failed: list[Exception] = []

    def run() -> None:
        try:
            made.append(make())
        except Exception as error:
            failed.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if failed:
        raise failed[0]
    return made[0]


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
        # torch can trace this, which it can't bincount.
        return self.dst.new_zeros(self.num_parents).index_add(0, self.dst, torch.ones_like(self.dst))


class PerStructure(Generic[How, Made]):
    """``make(graph, *how)``, whose results are cached as long as the graph's edges stay as they are.

    The cache's keys are the identities of DGL's immutable structure objects: a graph that gains an edge gets a new one.
    """

    def __init__(self, make: Callable[Concatenate[DGLGraph, How], Made]):
        functools.update_wrapper(self, make)  # its docstring and signature, for help() and the reference
        self.make = make
        self.cache: dict[tuple[object, ...], Made] = {}

    def __call__(self, graph: DGLGraph, *how: How.args, **named: How.kwargs) -> Made:
        structure = graph._graph
        key = (id(structure), *how, *named.items())
        if key not in self.cache:
            with torch.inference_mode(False):  # a training may use it later
                made = run_untraced(lambda: self.make(graph, *how, **named))
            weakref.finalize(structure, self.cache.pop, key, None)
            self.cache[key] = made
        return self.cache[key]


def cached_per_structure(make: Callable[Concatenate[DGLGraph, How], Made]) -> PerStructure[How, Made]:
    """Cache what ``make(graph, *how)`` gives as long as the graph's edges stay as they are."""
    return PerStructure(make)


def links(graph: DGLGraph, device: torch.device | str = "cpu") -> Links:
    """The graph's edges in edge order on ``device``, taken from DGL once per structure and device."""
    return links_on(graph, torch.device(device))


@cached_per_structure
def links_on(graph: DGLGraph, device: torch.device) -> Links:
    """``links``, made anew."""
    formats = [name for some in graph.formats().values() for name in some]
    then = 'DGL has the order of edges in coo alone: graph.formats(["coo", "csr", "csc"])'
    expect("coo" in formats, "graph", "a graph whose formats include coo", ", ".join(formats), then)
    src, dst = (end.to(device, torch.int64) for end in graph.edges(order="eid"))
    children, parents = graph.num_src_nodes(), graph.num_dst_nodes()
    grid = torch.arange(len(src), device=device) if len(src) == children * parents else None
    complete = grid is not None and bool((src * parents + dst == grid).all())
    found = Links(src, dst, children, parents, complete)
    _ = found.in_degrees  # now, outside of transforms
    return found
