"""The works ``routing``, ``sparse`` and ``growth``: routing timed in each formulation."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch

from ..routing import choose_engine
from .baselines import Formulation, engine, formulations
from .clock import interleaved
from .gate import Entry, Gate, function
from .inputs import ORDERS, Case, Sizes, case, random_graph
from .machine import matmul
from .tables import Row, Table, with_ratios

MODES = {"forward": Entry.forward, "forward+backward": Entry.forward_backward}


class Setup(NamedTuple):
    """Where and how large; ``ceilings`` are the machine's, as measured in this run."""

    device: str
    sizes: Sizes
    ceilings: dict[str, float]


def routing(setup: Setup) -> Iterator[Table]:
    """Image capsules on a complete graph: from given votes, and from linear votes, whose making is in every time."""
    precisions = ("float32",) if setup.device == "cpu" else ("float32", "tf32", "bfloat16")
    for kind in ("given", "linear"):
        for precision in precisions:
            if (kind, precision) == ("given", "tf32"):
                continue  # no matrix product of float32 numbers worth the name
            with matmul(precision):
                yield from timed(setup, kind, precision, formulations())


def sparse(setup: Setup) -> Iterator[Table]:
    """A random graph, its edges in random order, one vote each."""
    # Without images there is nothing to average over: the tutorial's algorithm is the paper's here.
    ways = [way._replace(same=True) for way in formulations() if way.any_graph]
    yield from timed(setup, "sparse", "float32", ways)


def growth(setup: Setup) -> Iterator[Table]:
    """Time per edge of engine ``fused``, forward and backward, as the graph grows."""
    sizes, fused = setup.sizes, engine("fused")
    rows, calls, edges = [], {}, {}
    for count in sizes.growth:
        first = case("sparse", dataclasses.replace(sizes, edges=count), setup.device)
        for order in ORDERS:
            own = first if order == "random" else first._replace(graph=random_graph(count, order))
            # The same code for every size: the smallest graph of each order stands for it at the gate.
            entry = Gate(own).admit(fused) if count == min(sizes.growth) else _ready(fused, own)
            name = f"{order}, {count:,} edges"
            if entry.note:
                yield _growth_table(setup, [Row("fused", fused.says, note=entry.note)], 0)
                return
            calls[name], edges[name] = entry.forward_backward, count
    timings = interleaved(calls, setup.device, sizes.seconds, sizes.rounds, "growth")
    for name, timing in timings.items():
        numbers = {key: 1e9 * getattr(timing, key) / edges[name] for key in ("median", "low", "high")}
        rows.append(Row(name, fused.says, numbers))
    rows.sort(key=lambda row: ORDERS.index(row.name.split(",")[0]))
    yield _growth_table(setup, rows, max(timing.rounds for timing in timings.values()))


def _growth_table(setup: Setup, rows: list[Row], rounds: int) -> Table:
    about = f"forward+backward, I = E / 10, J = E / 100, D {setup.sizes.dim}, R {setup.sizes.iterations}, float32"
    return Table("time per edge, engine fused", about, "median", "ns/edge", rows, rounds=rounds)


def _ready(way: Formulation, own: Case) -> Entry:
    return Entry(way, own, function(way, own), tuple(x.requires_grad_() for x in own.tensors), "")


def timed(setup: Setup, kind: str, precision: str, ways: list[Formulation]) -> Iterator[Table]:
    """Forward, then forward and backward, of these formulations on votes of a kind."""
    dtype = torch.bfloat16 if precision == "bfloat16" else torch.float32
    own = case(kind, setup.sizes, setup.device, dtype)
    torch.compiler.reset()
    gate = Gate(own, precision)
    entries = [gate.admit(way) for way in ways]
    # On CUDA DGL's kernels rarely run: its wheels are for the CPU.
    reference = "dgl" if setup.device == "cpu" else "einsum" if own.complete else "torch"
    votes = {"given": "given votes", "linear": "linear votes", "sparse": "sparse graph"}[kind]
    suffix = "" if precision == "float32" else f" in {precision}"
    for mode, call in MODES.items():
        name = f"{votes}{suffix}, {mode}"
        calls = {entry.way.name: _bound(call, entry) for entry in entries if not entry.note}
        timings = interleaved(calls, setup.device, setup.sizes.seconds, setup.sizes.rounds, name)
        seconds, floor = _floor(setup, own, mode, precision)
        rows = []
        for entry in entries:
            row = Row(entry.way.name, entry.way.says, note=entry.note, another_algorithm=not entry.way.same)
            if timing := timings.get(entry.way.name):
                row.numbers = {key: 1e3 * getattr(timing, key) for key in ("median", "low", "high")}
                row.numbers["floor_share"] = seconds / timing.median
            rows.append(row)
        rounds = max(timing.rounds for timing in timings.values())
        auto = choose_engine(own.graph, own.votes)
        about = _about(own, precision)
        yield with_ratios(Table(name, about, "median", "ms", rows, reference, rounds, floor, auto))


def _bound(call: Callable[[Entry], object], entry: Entry) -> Callable[[], object]:
    return lambda: call(entry)


def _floor(setup: Setup, own: Case, mode: str, precision: str) -> tuple[float, str]:
    """Seconds that the shares are shares of, and what they are spent on.

    Given votes are counted as read once per iteration forward and once back, and their gradient as written once: 2R
    reads and 1 write. (Without a gradient of the prior, `fused` does with one read less.)
    """
    back = mode == "forward+backward"
    if own.linear:
        products = 3 if back else 1
        operations = 2 * own.votes_numel * own.tensors[0].shape[-1] * products
        what = f"making the votes{' and both their gradients' if back else ''}: {operations / 1e9:.2f} GFLOP"
        return operations / 1e9 / setup.ceilings[
            f"{precision}_gflop_s"
        ], f"{what} at the measured {precision} GEMM rate"
    passes = (2 if back else 1) * own.iterations
    moved = own.votes_numel * own.tensors[0].element_size() * (passes + back)
    what = f"{passes} reads{' and 1 write' if back else ''} of the votes: {moved / 1e6:.0f} MB"
    return moved / 1e9 / setup.ceilings["copy_gb_s"], f"{what} at the measured copy rate"


def _about(own: Case, precision: str) -> str:
    graph, dim = own.graph, own.cotangent.shape[-1]
    made = f"P {own.tensors[0].shape[-1]}, " if own.linear else ""
    images = f"B {own.cotangent.shape[1]}, " if own.cotangent.dim() > 2 else ""
    counted = "; making the votes is in every time" if own.linear else "; the votes are there"
    return (
        f"{graph.num_src_nodes():,} -> {graph.num_dst_nodes():,} capsules, {graph.num_edges():,} edges, {made}D {dim}, "
        f"{images}R {own.iterations}, {precision}{counted}"
    )
