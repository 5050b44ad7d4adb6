"""Benchmarks ``routing`` and ``sparse``: formulations of dynamic routing, einsum and graphcaps' engines.

Einsum uses votes (B, J, I, D), its fastest layout. Other layouts take up to twice the time. Before timing, each
formulation is compared with engine ``dgl``.
"""

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import torch

import graphcaps
from graphcaps import LinearVotes, bipartite_graph, complete_graph, dgl, dynamic_routing

from .measure import DIM, ITERATIONS, SEED, Setup, Table, captured, check
from .plain import routed

CHILDREN, PARENTS, CHILD_DIM = 1152, 10, 8
EDGES = 1_000_000
"""Edges of the sparse graph, which has a tenth as many children and a hundredth as many parents."""
# Largest accepted error, relative to a result's length. Rounding errors (2^-24, 2^-9) grow in sums over some thousand
# edges and in three softmaxes.
TOLERANCE = {torch.float32: 1e-4, torch.bfloat16: 1e-1}
Tensors = tuple[torch.Tensor, ...]


class Case(NamedTuple):
    """A graph and its votes. ``tensors`` is (u_hat (E, *, D),) or (u (I, *, P), weight (E, P, D))."""

    graph: dgl.DGLGraph
    tensors: Tensors
    cotangent: torch.Tensor  # (J, *, D)

    @property
    def linear(self) -> bool:
        return len(self.tensors) == 2


def case(kind: str, images: int) -> Case:
    """Draw votes of image capsules on a complete graph, or their children and weights, or votes on a random graph."""
    generator = torch.Generator().manual_seed(SEED)
    if kind == "sparse":
        size, trailing = (EDGES // 10, EDGES // 100), ()
        graph = bipartite_graph(*(torch.randint(n, (EDGES,), generator=generator) for n in size), *size)
    else:
        graph, trailing = complete_graph(CHILDREN, PARENTS), (images,)

    def draw(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator)

    if kind == "linear":
        # As in a network, the length of a child is about 1, and that of the sum of a parent's votes is about J.
        u, spread = draw(CHILDREN, images, CHILD_DIM) / CHILD_DIM**0.5, PARENTS / (CHILDREN * DIM) ** 0.5
        tensors: Tensors = (u, spread * draw(graph.num_edges(), CHILD_DIM, DIM))
    else:
        tensors = (draw(graph.num_edges(), *trailing, DIM),)
    return Case(graph, tensors, draw(graph.num_dst_nodes(), *trailing, DIM))


def einsum(*tensors: torch.Tensor) -> torch.Tensor:
    """Route votes (B, J, I, D), or children (B, I, P) and weights (I, J, P, D), to parents (J, B, D)."""
    votes = tensors[0] if len(tensors) == 1 else torch.einsum("bip,ijpd->bjid", *tensors).contiguous()
    return routed(ITERATIONS, votes).transpose(0, 1)


@functools.cache
def compiled_einsum() -> Callable[..., torch.Tensor]:
    return torch.compile(einsum, dynamic=False)


COMPILED = "einsum, compiled"
ENGINES = ("dgl", "torch", "fused")


def routed_by(name: str, case: Case, *tensors: torch.Tensor) -> torch.Tensor:
    """The parents (J, *, D) by einsum or by an engine, from tensors in its own layout."""
    if name not in ENGINES:
        return (compiled_einsum() if name == COMPILED else einsum)(*tensors)
    votes = LinearVotes(*tensors) if case.linear else tensors[0]
    with graphcaps.engine(name):
        return dynamic_routing(case.graph, votes, ITERATIONS)


def laid_out(name: str, case: Case, tensors: Tensors) -> Tensors:
    """The tensors of a case in the layout that einsum or an engine routes."""
    if name in ENGINES:
        return tensors
    *u, of_edges = tensors
    grid = of_edges.unflatten(0, (case.graph.num_src_nodes(), case.graph.num_dst_nodes()))  # (I, J, ...)
    return (u[0].transpose(0, 1).contiguous(), grid) if u else (grid.permute(2, 1, 0, 3).contiguous(),)


def results(name: str, case: Case) -> list[torch.Tensor]:
    """The parents, and the gradients of the case's tensors, on the CPU."""
    leaves = tuple(x.detach().requires_grad_() for x in case.tensors)
    v = routed_by(name, case, *laid_out(name, case, leaves))
    return [x.detach().cpu().float() for x in (v, *torch.autograd.grad(v, leaves, case.cotangent))]


def routing(setup: Setup) -> Iterator[Table]:
    """Image capsules on a complete graph: with given votes, and with linear votes, whose computation is timed too."""
    yield from timed(setup, "given", "given votes")
    yield from timed(setup, "linear", "linear votes")
    if setup.on_gpu:
        yield from timed(setup, "linear", "linear votes in bfloat16", torch.bfloat16)


def sparse(setup: Setup) -> Iterator[Table]:
    """A random graph with edges in random order and one vote per edge."""
    yield from timed(setup, "sparse", "sparse graph")


def timed(setup: Setup, kind: str, title: str, dtype: torch.dtype = torch.float32) -> Iterator[Table]:
    """Time all formulations on one kind of votes: forward, except on a GPU, then forward and backward."""
    exact, on_gpu = case(kind, setup.images), setup.on_gpu
    *tensors, cotangent = (x.to(setup.device, dtype) for x in (*exact.tensors, exact.cotangent))
    own = Case(exact.graph, tuple(tensors), cotangent)
    names = [*(() if kind == "sparse" else ("einsum", COMPILED)), *ENGINES[on_gpu:]]  # engine dgl needs a CPU
    torch.compiler.reset()
    wanted, reference = results("dgl", exact), f"{COMPILED}, captured" if on_gpu else "dgl"

    def checked(name: str, backward: bool) -> Callable[[], object]:
        check(name, results(name, own), wanted, TOLERANCE[dtype])
        return call_of(name, own, backward)

    for mode in ("forward", "forward+backward")[on_gpu:]:
        table = Table(f"{title}, {mode}", "ms", reference)
        for name in names:
            table.add(name, functools.partial(checked, name, mode != "forward"))
        for name in [name for name in (COMPILED, "fused") if on_gpu and name in table.calls]:
            table.add(f"{name}, captured", functools.partial(captured, table.calls[name]))
        yield table.time(setup)


def call_of(name: str, own: Case, backward: bool = True) -> Callable[[], Sequence[torch.Tensor]]:
    """The routing as a function without arguments. Its tensors are laid out in advance."""
    tensors = tuple(x.detach().requires_grad_() for x in laid_out(name, own, own.tensors))

    def call() -> Sequence[torch.Tensor]:
        with torch.set_grad_enabled(backward):
            v = routed_by(name, own, *tensors)
            return [v, *torch.autograd.grad(v, tensors, own.cotangent)] if backward else [v]

    return call
