"""Benchmarks ``routing``, ``sparse`` and ``memory``: formulations of dynamic routing, einsum and graphcaps' engines.

Einsum uses votes (B, J, I, D), its fastest layout. Other layouts take up to twice the time. Before timing, each
formulation is compared with engine ``dgl``. Memory is the peak of one forward and backward pass above what was
allocated before it. The indices that the first call with a graph builds are counted; the compilation of kernels isn't.
"""

import dataclasses
import functools
from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch

import graphcaps
from graphcaps import LinearVotes, bipartite_graph, complete_graph, dgl, dynamic_routing

from .measure import MB, SEED, Setup, Sizes, captured, in_process, interleaved, peak
from .plain import routed
from .tables import Row, Table, not_measured

KINDS = {"given": "given votes", "linear": "linear votes", "sparse": "sparse graph"}
# Largest accepted error, relative to the largest number. Rounding errors (2^-24, 2^-11, 2^-9) grow in sums over some
# thousand edges and in three softmaxes.
TOLERANCE = {"float32": 1e-4, "tf32": 2e-2, "bfloat16": 1e-1}
Tensors = tuple[torch.Tensor, ...]


class Case(NamedTuple):
    """A graph and its votes. ``tensors`` is (u_hat (E, *, D),) or (u (I, *, P), weight (E, P, D))."""

    graph: dgl.DGLGraph
    tensors: Tensors
    iterations: int
    cotangent: torch.Tensor  # (J, *, D)

    @property
    def linear(self) -> bool:
        return len(self.tensors) == 2

    @property
    def num_votes(self) -> int:
        """The number of elements of all votes, also of linear votes that aren't built."""
        return self.graph.num_edges() * self.cotangent[0].numel()

    def to(self, device: str, dtype: torch.dtype = torch.float32) -> "Case":
        tensors = tuple(x.to(device, dtype) for x in self.tensors)
        return self._replace(tensors=tensors, cotangent=self.cotangent.to(device, dtype))


def case(kind: str, sizes: Sizes) -> Case:
    """Draw votes of image capsules on a complete graph, or their children and weights, or votes on a random graph."""
    generator = torch.Generator().manual_seed(SEED)
    if kind == "sparse":
        size, trailing = (max(2, sizes.edges // 10), max(2, sizes.edges // 100)), ()
        graph = bipartite_graph(*(torch.randint(n, (sizes.edges,), generator=generator) for n in size), *size)
    else:
        graph, trailing = complete_graph(sizes.children, sizes.parents), (sizes.images,)
    num_children, num_parents, num_edges = graph.num_src_nodes(), graph.num_dst_nodes(), graph.num_edges()

    def draw(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator)

    if kind == "linear":
        # As in a network, the length of a child is about 1, and that of the sum of a parent's votes is about J.
        spread = num_parents / (num_children * sizes.dim) ** 0.5
        u = draw(num_children, *trailing, sizes.child_dim) / sizes.child_dim**0.5
        tensors: Tensors = (u, spread * draw(num_edges, sizes.child_dim, sizes.dim))
    else:
        tensors = (draw(num_edges, *trailing, sizes.dim),)
    return Case(graph, tensors, sizes.iterations, draw(num_parents, *trailing, sizes.dim))


class Formulation(NamedTuple):
    """A formulation of dynamic routing."""

    name: str
    layout: Callable[[Case, Tensors], Tensors]  # converts tensors to the formulation's layout, untimed
    route: Callable[..., torch.Tensor]  # (case, *tensors) -> parents (J, *, D)
    kinds: tuple[str, ...] = ("given", "linear", "sparse")  # the kinds of votes it can route


def einsum(iterations: int, *tensors: torch.Tensor) -> torch.Tensor:
    """Route votes (B, J, I, D), or children (B, I, P) and weights (I, J, P, D), to parents (J, B, D)."""
    votes = tensors[0] if len(tensors) == 1 else torch.einsum("bip,ijpd->bjid", *tensors).contiguous()
    return routed(iterations, votes).transpose(0, 1)


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
        return dynamic_routing(case.graph, votes, case.iterations)


DGL, TORCH, FUSED = (
    Formulation(name, lambda case, tensors: tensors, functools.partial(on_engine, name))
    for name in ("dgl", "torch", "fused")
)
EINSUM, COMPILED = (
    Formulation(name, einsum_layout, route, ("given", "linear"))
    for name, route in (
        ("einsum", lambda case, *tensors: einsum(case.iterations, *tensors)),
        ("einsum, compiled", lambda case, *tensors: compiled_einsum()(case.iterations, *tensors)),
    )
)
FORMULATIONS = (EINSUM, COMPILED, DGL, TORCH, FUSED, Formulation("fused, by image", by_image, FUSED.route, ("given",)))
IN_MEMORY = {way.name: way for way in (EINSUM, DGL, TORCH, FUSED)}  # torch.compile's own memory would count


def results(way: Formulation, case: Case) -> list[torch.Tensor]:
    """The parents, and the gradients of the case's tensors, on the CPU."""
    leaves = tuple(x.detach().requires_grad_() for x in case.tensors)
    v = way.route(case, *way.layout(case, leaves))
    return [x.detach().cpu().float() for x in (v, *torch.autograd.grad(v, leaves, case.cotangent))]


def unsupported_reason(way: Formulation, case: Case, wanted: list[torch.Tensor], precision: str) -> str:
    """The reason why the formulation isn't timed here, or "" if it is.

    It can't run, or its value or gradients differ from the wanted ones, which engine dgl computed.
    """
    try:
        got = results(way, case)
    except Exception as error:  # an engine's message names what it needs
        return not_measured(error)
    off = max(float((x - right).abs().max() / right.abs().max()) for x, right in zip(got, wanted, strict=True))
    if off <= TOLERANCE[precision]:  # False for NaN
        return ""
    allowed = f"(allowed: {TOLERANCE[precision]:.0e})"
    return f"WRONG: value or gradients differ from engine dgl's by {off:.1e} of the largest number {allowed}"


def routing(setup: Setup) -> Iterator[Table]:
    """Image capsules on a complete graph: with given votes, and with linear votes, whose computation is timed too."""
    yield from timed(setup, "given")
    for precision in ("float32", "tf32", "bfloat16") if setup.sizes.on_gpu else ("float32",):
        yield from timed(setup, "linear", precision)


def sparse(setup: Setup) -> Iterator[Table]:
    """A random graph with edges in random order and one vote per edge."""
    yield from timed(setup, "sparse")


def timed(setup: Setup, kind: str, precision: str = "float32") -> Iterator[Table]:
    """Time all formulations on one kind of votes: forward, except on a GPU, then forward and backward."""
    exact, on_gpu = case(kind, setup.sizes), setup.sizes.on_gpu
    own = exact.to(setup.device, torch.bfloat16 if precision == "bfloat16" else torch.float32)
    ways = [way for way in FORMULATIONS if kind in way.kinds and not (on_gpu and way is DGL)]
    torch.compiler.reset()
    torch.set_float32_matmul_precision("high" if precision == "tf32" else "highest")
    wanted = results(DGL, exact)
    notes = {way.name: unsupported_reason(way, own, wanted, precision) for way in ways}
    for mode in ("forward", "forward+backward")[on_gpu:]:
        name = KINDS[kind] + f" in {precision}" * (precision != "float32") + f", {mode}"
        rows = [Row(name, note=note) for name, note in notes.items()]
        table = Table(name, about_of(own, precision), "ms", rows, f"{COMPILED.name}, captured" if on_gpu else "dgl")
        calls = {way.name: call_of(way, own, mode != "forward") for way in ways if not notes[way.name]}
        for name in [name for name in (COMPILED.name, FUSED.name) if on_gpu and name in calls]:
            table.add(f"{name}, captured", calls, functools.partial(captured, calls[name]))
        table.fill(interleaved(calls, setup))
        for row in rows:
            if row.numbers and not own.linear:
                row.numbers["floor_share"] = floor_of(setup, own, mode != "forward") / row.numbers["median"]
        yield table
    torch.set_float32_matmul_precision("highest")


def call_of(way: Formulation, own: Case, backward: bool) -> Callable[[], object]:
    """The routing as a function without arguments. Its tensors are laid out in advance."""
    tensors = tuple(x.detach().requires_grad_() for x in way.layout(own, own.tensors))
    forward = torch.no_grad()(lambda: way.route(own, *tensors))
    return (lambda: torch.autograd.grad(way.route(own, *tensors), tensors, own.cotangent)) if backward else forward


def floor_of(setup: Setup, own: Case, backward: bool) -> float:
    """Milliseconds for the memory traffic of given votes, at the measured copy rate.

    Each pass reads the votes once per iteration, and the backward pass also writes their gradient once. If the prior
    needs no gradient, engine ``fused`` needs one read less.
    """
    reads = (2 if backward else 1) * own.iterations
    size = own.num_votes * own.tensors[0].element_size() * (reads + backward)
    return size / 1e6 / setup.ceilings["copy_gb_s"]


def about_of(own: Case, precision: str) -> str:
    graph, shape = own.graph, tuple(own.cotangent.shape[1:])
    capsules = f"{graph.num_src_nodes():,} -> {graph.num_dst_nodes():,} capsules, {graph.num_edges():,} edges"
    counted = "times include making the votes" if own.linear else "the votes are there"
    return f"{capsules}, votes per edge {shape}, R {own.iterations}, {precision}; {counted}"


def memory(setup: Setup) -> Iterator[Table]:
    """Make a table for each kind of input: given votes, linear votes, and a sparse graph."""
    for kind, name in KINDS.items():
        about = "one forward+backward, float32, above what was allocated before; scratch is all but the gradients"
        rows = [Row(name) for name, way in IN_MEMORY.items() if kind in way.kinds]
        for row in rows:
            row.numbers, row.note = in_process(of_pass, kind, row.name, setup.sizes, device=setup.device)
        yield Table(name, about, "MB", rows)


def of_pass(kind: str, name: str, sizes: Sizes, device: str) -> dict[str, float]:
    """Measure a row: peak memory and the gradients' part of it in MB, and ratios to the size of the votes."""
    own, small = (case(kind, part).to(device) for part in (sizes, dataclasses.replace(sizes, children=16, edges=1000)))
    call_of(IN_MEMORY[name], small, backward=True)()  # compile kernels first
    total = peak(call_of(IN_MEMORY[name], own, backward=True), device)
    votes, gradients = 4 * own.num_votes, sum(x.numel() * x.element_size() for x in own.tensors)
    per_votes = {"total_per_votes": total / votes, "scratch_per_votes": (total - gradients) / votes}
    return {"total": total / MB, "gradients": gradients / MB} | per_votes
