"""Benchmarks ``routing`` and ``sparse``: formulations of dynamic routing, einsum and graphcaps' engines.

Einsum uses votes (B, J, I, D), its fastest layout. Other layouts take up to twice the time. Before timing, each
formulation is compared with engine ``dgl``.
"""

import functools
from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch

import graphcaps
from graphcaps import LinearVotes, bipartite_graph, complete_graph, dgl, dynamic_routing

from .measure import DIM, ITERATIONS, SEED, Setup, captured, interleaved
from .plain import routed
from .tables import Row, Table, not_measured

CHILDREN, PARENTS, CHILD_DIM = 1152, 10, 8
EDGES = 1_000_000
"""Edges of the sparse graph, which has a tenth as many children and a hundredth as many parents."""
# Largest accepted error, relative to the largest number. Rounding errors (2^-24, 2^-9) grow in sums over some thousand
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

    def to(self, device: str, dtype: torch.dtype) -> "Case":
        tensors = tuple(x.to(device, dtype) for x in self.tensors)
        return self._replace(tensors=tensors, cotangent=self.cotangent.to(device, dtype))


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


def einsum_layout(case: Case, tensors: Tensors) -> Tensors:
    *u, of_edges = tensors
    grid = of_edges.unflatten(0, (case.graph.num_src_nodes(), case.graph.num_dst_nodes()))  # (I, J, ...)
    return (u[0].transpose(0, 1).contiguous(), grid) if u else (grid.permute(2, 1, 0, 3).contiguous(),)


def by_image(case: Case, tensors: Tensors) -> Tensors:
    """Lay out votes as (B, I, J, D), and return them as a view (E, B, D)."""
    return (tensors[0].transpose(0, 1).contiguous().transpose(0, 1),)


def on_engine(name: str, case: Case, *tensors: torch.Tensor) -> torch.Tensor:
    votes = LinearVotes(*tensors) if case.linear else tensors[0]
    with graphcaps.engine(name):
        return dynamic_routing(case.graph, votes, ITERATIONS)


class Formulation(NamedTuple):
    """A formulation of dynamic routing."""

    route: Callable[..., torch.Tensor]  # (case, *tensors) -> parents (J, *, D)
    layout: Callable[[Case, Tensors], Tensors] = lambda case, tensors: tensors  # the formulation's layout, untimed
    kinds: tuple[str, ...] = ("given", "linear", "sparse")  # the kinds of votes it can route


COMPILED = "einsum, compiled"
FORMULATIONS = {
    "einsum": Formulation(lambda case, *tensors: einsum(*tensors), einsum_layout, ("given", "linear")),
    COMPILED: Formulation(lambda case, *tensors: compiled_einsum()(*tensors), einsum_layout, ("given", "linear")),
    **{name: Formulation(functools.partial(on_engine, name)) for name in ("dgl", "torch", "fused")},
    "fused, by image": Formulation(functools.partial(on_engine, "fused"), by_image, ("given",)),
}


def results(formulation: Formulation, case: Case) -> list[torch.Tensor]:
    """The parents, and the gradients of the case's tensors, on the CPU."""
    leaves = tuple(x.detach().requires_grad_() for x in case.tensors)
    v = formulation.route(case, *formulation.layout(case, leaves))
    return [x.detach().cpu().float() for x in (v, *torch.autograd.grad(v, leaves, case.cotangent))]


def unsupported_reason(formulation: Formulation, case: Case, wanted: list[torch.Tensor]) -> str:
    """The reason why the formulation isn't timed here, or "" if it is.

    It can't run, or its value or gradients differ from the wanted ones, which engine dgl computed.
    """
    try:
        got = results(formulation, case)
    except Exception as error:  # an engine's message names what it needs
        return not_measured(error)
    off = max(float((x - right).abs().max() / right.abs().max()) for x, right in zip(got, wanted, strict=True))
    allowed = TOLERANCE[case.cotangent.dtype]
    if off <= allowed:  # False for NaN
        return ""
    return f"WRONG: value or gradients differ from engine dgl's by {off:.1e} of the largest number ({allowed=:.0e})"


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
    own = exact.to(setup.device, dtype)
    ways = {name: way for name, way in FORMULATIONS.items() if kind in way.kinds and not (on_gpu and name == "dgl")}
    torch.compiler.reset()
    wanted = results(FORMULATIONS["dgl"], exact)
    notes = {name: unsupported_reason(way, own, wanted) for name, way in ways.items()}
    for mode in ("forward", "forward+backward")[on_gpu:]:
        rows = [Row(name, note=note) for name, note in notes.items()]
        reference = f"{COMPILED}, captured" if on_gpu else "dgl"
        table = Table(f"{title}, {mode}", about_of(own, dtype), "ms", rows, reference)
        calls = {name: call_of(way, own, mode != "forward") for name, way in ways.items() if not notes[name]}
        for name in [name for name in (COMPILED, "fused") if on_gpu and name in calls]:
            table.add(f"{name}, captured", calls, functools.partial(captured, calls[name]))
        yield table.fill(interleaved(calls, setup))


def call_of(formulation: Formulation, own: Case, backward: bool) -> Callable[[], object]:
    """The routing as a function without arguments. Its tensors are laid out in advance."""
    tensors = tuple(x.detach().requires_grad_() for x in formulation.layout(own, own.tensors))
    if backward:
        return lambda: torch.autograd.grad(formulation.route(own, *tensors), tensors, own.cotangent)
    return torch.no_grad()(lambda: formulation.route(own, *tensors))


def about_of(own: Case, dtype: torch.dtype) -> str:
    graph, shape = own.graph, tuple(own.cotangent.shape[1:])
    capsules = f"{graph.num_src_nodes():,} -> {graph.num_dst_nodes():,} capsules, {graph.num_edges():,} edges"
    counted = "times include making the votes" if own.linear else "the votes are there"
    return f"{capsules}, votes per edge {shape}, R {ITERATIONS}, {str(dtype)[6:]}; {counted}"
