"""Inputs of the benchmarks: sizes, graphs and random votes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch

from graphcaps import bipartite_graph, complete_graph
from graphcaps._dgl import DGLGraph, has_cuda

SEED = 0


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
    node_edges: tuple[int, ...] = (100_000, 1_000_000)
    batch: int = 128  # images of a training step
    on_gpu: bool = False  # more rows: captured in CUDA graphs, other precisions, power-law graphs
    hub: int = 28_000  # edges into one node of a power-law graph
    dataset: str = "mnist"  # the data set of whole trainings
    epochs: int = 10
    image_shape: tuple[int, int, int] = (1, 28, 28)
    copied: int = 2**28  # bytes
    square: int = 2048  # rows and columns of the matrices that are multiplied
    seconds: float = 20.0  # time for all rounds of a table
    rounds: tuple[int, int] = (5, 50)  # smallest and largest number of rounds


ON_GPU = {"on_gpu": True, "images": 128, "copied": 2**30, "square": 8192, "seconds": 2.0, "rounds": (5, 20)}
SIZES = {"cpu": Sizes(), "cuda": Sizes(**ON_GPU, node_edges=(1_000_000, 10_000_000))}  # type: ignore[arg-type]


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


def case(kind: str, sizes: Sizes) -> Case:
    """Draw a case of one kind: ``"given"``, ``"linear"`` or ``"sparse"``.

    ``"given"`` has votes of image capsules on a complete graph. ``"linear"`` has their children u and weights instead.
    ``"sparse"`` has votes on a random graph.
    """
    generator = torch.Generator().manual_seed(SEED)
    if kind == "sparse":
        graph, trailing = random_graph(sizes.edges), ()
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


def random_graph(edges: int) -> DGLGraph:
    """Draw edges uniformly between E / 10 children and E / 100 parents, in random order."""
    generator = torch.Generator().manual_seed(SEED)
    sizes = max(2, edges // 10), max(2, edges // 100)
    return bipartite_graph(*(torch.randint(size, (edges,), generator=generator) for size in sizes), *sizes)
