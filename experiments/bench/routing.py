"""Benchmarks ``routing`` and ``sparse``: times of routing in each formulation."""

from collections.abc import Callable, Iterator
from functools import partial

import torch

from .clock import captured, interleaved
from .formulations import COMPILED, DGL, FORMULATIONS, FUSED, Formulation, results, unsupported_reason
from .inputs import Case, Setup, case
from .tables import Row, Table

KINDS = {"given": "given votes", "linear": "linear votes", "sparse": "sparse graph"}


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
    exact = case(kind, setup.sizes)
    own = exact.to(setup.device, torch.bfloat16 if precision == "bfloat16" else torch.float32)
    ways = [way for way in FORMULATIONS if kind in way.kinds and not (setup.sizes.on_gpu and way is DGL)]
    torch.compiler.reset()
    torch.set_float32_matmul_precision("high" if precision == "tf32" else "highest")
    wanted = results(DGL, exact)
    notes = {way.name: unsupported_reason(way, own, wanted, precision) for way in ways}
    for mode in ("forward", "forward+backward")[setup.sizes.on_gpu :]:
        name = KINDS[kind] + f" in {precision}" * (precision != "float32") + f", {mode}"
        rows = [Row(name, note=note) for name, note in notes.items()]
        reference = f"{COMPILED.name}, captured" if setup.sizes.on_gpu else "dgl"
        table = Table(name, about_of(own, precision), "ms", rows, reference)
        calls = {way.name: call_of(way, own, mode != "forward") for way in ways if not notes[way.name]}
        for each in (COMPILED.name, FUSED.name) if setup.sizes.on_gpu else ():
            if each in calls:
                table.add(f"{each}, captured", calls, partial(captured, calls[each]))
        table.fill(interleaved(calls, setup.device, setup.sizes.seconds, setup.sizes.rounds))
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
