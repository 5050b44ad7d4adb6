"""Index tensors and other results computed from a graph's structure, cached as long as the structure exists."""

import functools
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar

import torch

from .._dgl import DGLGraph
from ..errors import expect
from ..tracing import run_untraced

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True)
class Links:
    """A graph's structure as index tensors on one device, for engines without DGL's kernels."""

    src: torch.Tensor  # (E,) int64, child of each edge
    dst: torch.Tensor  # (E,) int64, parent of each edge
    num_children: int
    num_parents: int
    complete: bool  # whether each child has one edge to each parent, sorted by child, then by parent
    origin: Any = None  # under torch.compile, what operators know the graph by: `graph_of`'s sizes, or rows by node
    reverse: torch.Tensor | None = None  # ``reverse_edges``, if torch.compile traces a call that needs them

    def num_src_nodes(self) -> int:
        return self.num_children

    def num_dst_nodes(self) -> int:
        return self.num_parents

    def num_edges(self) -> int:
        return self.src.shape[0]

    @functools.cached_property
    def in_degrees(self) -> torch.Tensor:
        """(J,) int64, in-edges of each parent."""
        # torch can't trace bincount, but it can trace this.
        return self.dst.new_zeros(self.num_parents).index_add(0, self.dst, torch.ones_like(self.dst))


class cached_per_structure(Generic[P, T]):
    """Decorator for ``make(graph, *arguments)`` that caches results as long as the graph's edges stay the same.

    A key contains the id of DGL's structure object. A graph that gains an edge gets a new structure object.
    """

    def __init__(self, make: Callable[Concatenate[DGLGraph, P], T]):
        functools.update_wrapper(self, make)  # keeps its docstring and signature for help() and the reference
        self.make = make
        self.cache: dict[tuple[object, ...], T] = {}

    def __call__(self, graph: DGLGraph, *arguments: P.args, **named: P.kwargs) -> T:
        expect(hasattr(graph, "_graph"), "graph", "a DGLGraph", type(graph).__name__)
        structure = graph._graph
        key = (id(structure), *arguments, *named.items())
        if key not in self.cache:
            with torch.inference_mode(False):  # training can't use inference tensors
                made = run_untraced(lambda: self.make(graph, *arguments, **named))
            weakref.finalize(structure, self.cache.pop, key, None)
            self.cache[key] = made
        return self.cache[key]


def links(graph: DGLGraph | Links, device: torch.device | str = "cpu") -> Links:
    """Return a graph's edges in edge order on ``device``, read from DGL once per structure; or ``Links`` unchanged."""
    return graph if isinstance(graph, Links) else links_on(graph, torch.device(device))


@cached_per_structure
def links_on(graph: DGLGraph, device: torch.device) -> Links:
    """Compute ``links``. The device is a ``torch.device``, so that it can be part of the cache's key."""
    formats = [name for some in graph.formats().values() for name in some]
    then = 'Only coo keeps the order of edges: graph.formats(["coo", "csr", "csc"])'
    expect("coo" in formats, "graph", "a graph whose formats include coo", ", ".join(formats), then)
    src, dst = (end.to(device, torch.int64) for end in graph.edges(order="eid"))
    children, parents = graph.num_src_nodes(), graph.num_dst_nodes()
    grid = torch.arange(len(src), device=device) if len(src) == children * parents else None
    complete = grid is not None and bool((src * parents + dst == grid).all())
    edges = Links(src, dst, children, parents, complete)
    _ = edges.in_degrees  # cache this now, because a later call may be traced
    return edges
