"""Inputs of the benchmarks: sizes, graphs and random votes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch

from graphcaps import bipartite_graph, complete_graph
from graphcaps._dgl import DGLGraph, has_cuda

SEED = 0
ORDERS = ("parent-sorted", "child-sorted", "random")


@dataclass(frozen=True)
class Sizes:
    """Sizes and time limits of the benchmarks."""

    images: int = 32  # B of routing
    children: int = 1152  # I
    parents: int = 10  # J
    child_dim: int = 8  # P
    dim: int = 16  # D
    iterations: int = 3  # R
    edges: int = 1_000_000  # E of sparse; I = E / 10, J = E / 100
    growth: tuple[int, ...] = (1_000_000, 2_000_000, 5_000_000, 10_000_000)
    node_edges: tuple[int, ...] = (100_000, 1_000_000)
    batch: int = 128  # images of a training step
    epoch_images: int = 60_000  # the number of MNIST's training images
    image_shape: tuple[int, int, int] = (1, 28, 28)
    copied: int = 2**28  # bytes
    square: int = 2048  # rows and columns of the matrices that are multiplied
    seconds: float = 20.0  # time for all rounds of a table
    rounds: tuple[int, int] = (5, 50)  # smallest and largest number of rounds


SIZES = {"cpu": Sizes(), "cuda": Sizes(images=128, copied=2**30, square=8192)}


class Setup(NamedTuple):
    """The device, the sizes, and the machine's best rates in this run (``machine.ceilings``)."""

    device: str
    sizes: Sizes
    ceilings: dict[str, float]


class Case(NamedTuple):
    """A graph and its votes. ``tensors`` is (u_hat (E, *, D),) or (u (I, *, P), weight (E, P, D))."""

    graph: DGLGraph
    tensors: tuple[torch.Tensor, ...]
    iterations: int
    cotangent: torch.Tensor  # (J, *, D)

    @property
    def linear(self) -> bool:
        return len(self.tensors) == 2

    @property
    def num_votes(self) -> int:
        """The number of elements of all votes, also of linear votes that aren't built."""
        return self.graph.num_edges() * self.cotangent[0].numel()

    def to(self, device: str, dtype: torch.dtype = torch.float32) -> Case:
        graph = self.graph.to(device) if device == "cpu" or has_cuda() else self.graph
        tensors = tuple(x.to(device, dtype) for x in self.tensors)
        return Case(graph, tensors, self.iterations, self.cotangent.to(device, dtype))


def case(kind: str, sizes: Sizes, order: str = "random") -> Case:
    """Draw a case of one kind: ``"given"``, ``"linear"`` or ``"sparse"``.

    ``"given"`` has votes of image capsules on a complete graph. ``"linear"`` has their children u and weights instead.
    ``"sparse"`` has votes on a random graph, whose edges are in ``order``.
    """
    generator = torch.Generator().manual_seed(SEED)
    if kind == "sparse":
        graph, trailing = random_graph(sizes.edges, order), ()
    else:
        graph, trailing = complete_graph(sizes.children, sizes.parents), (sizes.images,)
    num_children, num_parents, num_edges = graph.num_src_nodes(), graph.num_dst_nodes(), graph.num_edges()

    def draw(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator)

    if kind == "linear":
        # As in a network, the length of a child is about 1, and that of the sum of a parent's votes is about J.
        spread = num_parents / (num_children * sizes.dim) ** 0.5
        u = draw(num_children, *trailing, sizes.child_dim) / sizes.child_dim**0.5
        tensors = (u, spread * draw(num_edges, sizes.child_dim, sizes.dim))
    else:
        tensors = (draw(num_edges, *trailing, sizes.dim),)
    return Case(graph, tensors, sizes.iterations, draw(num_parents, *trailing, sizes.dim))


def random_graph(edges: int, order: str) -> DGLGraph:
    """Draw edges uniformly between E / 10 children and E / 100 parents, and return them in one of ``ORDERS``."""
    generator = torch.Generator().manual_seed(SEED)
    sizes = max(2, edges // 10), max(2, edges // 100)
    src, dst = (torch.randint(size, (edges,), generator=generator) for size in sizes)
    if order != "random":
        by = torch.argsort(dst if order == "parent-sorted" else src, stable=True)
        src, dst = src[by], dst[by]
    return bipartite_graph(src, dst, *sizes)
