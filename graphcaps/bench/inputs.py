"""What the benchmark routes: sizes, graphs and random votes, the same for every formulation."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch

from .._dgl import DGLGraph, has_cuda
from ..graph import bipartite_graph, complete_graph
from ..routing import LinearVotes

SEED = 0
ORDERS = ("parent-sorted", "child-sorted", "random")


@dataclass(frozen=True)
class Sizes:
    """How large each work is, and how long it may take."""

    images: int = 32  # B of routing
    children: int = 1152  # I
    parents: int = 10  # J
    child_dim: int = 8  # P
    dim: int = 16  # D
    iterations: int = 3  # R
    edges: int = 1_000_000  # E of sparse; I = E / 10, J = E / 100
    growth: tuple[int, ...] = (1_000_000, 2_000_000, 5_000_000, 10_000_000)
    node_edges: tuple[int, ...] = (100_000, 1_000_000)  # of the work nodes
    batch: int = 64  # images of a training step
    epoch_images: int = 60_000  # of a training epoch, MNIST's
    image_shape: tuple[int, int, int] = (1, 28, 28)
    copied: int = 2**28  # bytes
    square: int = 2048  # side of the matrices of the GEMM rate
    seconds: float = 20.0  # of rounds, per table
    rounds: tuple[int, int] = (5, 50)  # at least, at most


FULL = {"cpu": Sizes(), "cuda": Sizes(images=128, batch=128, copied=2**30, square=8192)}


class Case(NamedTuple):
    """A graph and what is routed on it: ``tensors`` is (u_hat (E, *, D),) or (u (I, *, P), weight (E, P, D))."""

    graph: DGLGraph
    tensors: tuple[torch.Tensor, ...]
    iterations: int
    cotangent: torch.Tensor  # (J, *, D)

    @property
    def linear(self) -> bool:
        return len(self.tensors) == 2

    @property
    def votes(self) -> torch.Tensor | LinearVotes:
        return LinearVotes(*self.tensors) if self.linear else self.tensors[0]

    @property
    def complete(self) -> bool:
        return self.graph.num_edges() == self.graph.num_src_nodes() * self.graph.num_dst_nodes()

    @property
    def votes_numel(self) -> int:
        """Numbers in the votes, built or not."""
        trailing = math.prod(self.cotangent.shape[1:])
        return self.graph.num_edges() * trailing

    def to(self, **where) -> Case:
        """The same on another device or in another dtype; the graph stays where it is."""
        tensors = tuple(x.to(**where) for x in self.tensors)
        return self._replace(tensors=tensors, cotangent=self.cotangent.to(**where))


def case(kind: str, sizes: Sizes, device: str = "cpu", dtype: torch.dtype = torch.float32) -> Case:
    """``"given"`` or ``"linear"`` votes of image capsules on a complete graph, or those of a ``"sparse"`` graph."""
    if kind == "sparse":
        graph = random_graph(sizes.edges, "random")
        made = _case(graph, sizes, (), linear=False)
    else:
        graph = complete_graph(sizes.children, sizes.parents)
        made = _case(graph, sizes, (sizes.images,), linear=kind == "linear")
    made = made.to(device=device, dtype=dtype)
    return made._replace(graph=graph.to(device)) if device == "cuda" and has_cuda() else made


def random_graph(edges: int, order: str) -> DGLGraph:
    """Edges drawn uniformly between E / 10 children and E / 100 parents, in one of ``ORDERS``."""
    generator = torch.Generator().manual_seed(SEED)
    children, parents = max(2, edges // 10), max(2, edges // 100)
    src = torch.randint(children, (edges,), generator=generator)
    dst = torch.randint(parents, (edges,), generator=generator)
    if order != "random":
        by = torch.argsort(dst if order == "parent-sorted" else src, stable=True)
        src, dst = src[by], dst[by]
    return bipartite_graph(src, dst, children, parents)


def small_cases(like: Case, complete: bool) -> list[Case]:
    """Float64, small enough for naive: a complete graph and, unless ``complete``, one with duplicate and no edges.

    Votes are given or linear, and with or without images, as in ``like``.
    """
    sizes = Sizes(child_dim=4, dim=6)
    graphs = [complete_graph(5, 3)]
    if not complete:
        src = torch.tensor([0, 0, 0, 1, 2, 2, 2, 4, 4, 5, 5])
        graphs.append(bipartite_graph(src, torch.tensor([1, 1, 2, 3, 2, 1, 3, 1, 3, 2, 2]), 7, 4))
    trailing = (2,) * (like.cotangent.dim() - 2)
    return [_case(graph, sizes, trailing, like.linear).to(dtype=torch.float64) for graph in graphs]


def _case(graph: DGLGraph, sizes: Sizes, trailing: tuple[int, ...], linear: bool) -> Case:
    generator = torch.Generator().manual_seed(SEED)

    def draw(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator)

    edges = graph.num_edges()
    # As in a network: children of length below 1, weights with which a parent's sum is about as long as a child.
    tensors: tuple[torch.Tensor, ...]
    if linear:
        spread = graph.num_dst_nodes() / (graph.num_src_nodes() * sizes.dim) ** 0.5
        u = draw(graph.num_src_nodes(), *trailing, sizes.child_dim) / sizes.child_dim**0.5
        tensors = (u, spread * draw(edges, sizes.child_dim, sizes.dim))
    else:
        tensors = (draw(edges, *trailing, sizes.dim),)
    return Case(graph, tensors, sizes.iterations, draw(graph.num_dst_nodes(), *trailing, sizes.dim))
