"""What must be reached, as data; a run says of each whether it was met, missed or not measured."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import NamedTuple

from .contention import ALONE, BESIDE, OF_TORCH
from .contention import NAME as CONTENTION
from .nodes import CAPSULES, GAT
from .tables import Table
from .training import OURS

Numbers = dict[str, dict[str, dict[str, float]]]  # table, row, name of the number
BOTH = "forward+backward"
GIVEN, LINEAR = f"given votes, {BOTH}", f"linear votes, {BOTH}"
NODES = "full-graph training step, 1,000,000 edges"


class Target(NamedTuple):
    """``of(numbers)`` must be at least (or, with ``most``, at most) ``bound``; a KeyError: it wasn't measured."""

    benchmark: str
    device: str
    about: str
    bound: float
    of: Callable[[Numbers], float]
    most: bool = False
    form: str = "{:.1f}x"


def faster(table: str, row: str, *others: str) -> Callable[[Numbers], float]:
    """How many times as fast ``row`` is as the fastest of ``others``."""
    return lambda of: min(of[table][other]["median"] for other in others) / of[table][row]["median"]


def share(table: str, row: str, number: str) -> Callable[[Numbers], float]:
    return lambda of: of[table][row][number]


def over(table: str, number: str, row: str, other: str) -> Callable[[Numbers], float]:
    return lambda of: of[table][row][number] / of[table][other][number]


def flatness(order: str) -> Callable[[Numbers], float]:
    """The largest time per edge over the smallest, of the graphs in this order."""

    def of(numbers: Numbers) -> float:
        found = [
            row["median"] for name, row in numbers["time per edge, engine fused"].items() if name.startswith(order)
        ]
        return max(found) / min(found)

    return of


EINSUMS = ("einsum", "einsum, compiled")
TARGETS = [
    Target("routing", "cpu", f"{GIVEN}: fused over dgl", 4, faster(GIVEN, "fused", "dgl")),
    Target("routing", "cpu", f"{GIVEN}: fused over compiled einsum", 2.4, faster(GIVEN, "fused", EINSUMS[1])),
    Target("routing", "cpu", f"{GIVEN}: fused's share of the floor", 0.25, share(GIVEN, "fused", "floor_share"),
           form="{:.0%}"),
    Target("routing", "cpu", f"{LINEAR}: fused over dgl", 4, faster(LINEAR, "fused", "dgl")),
    Target("routing", "cuda", f"{GIVEN}: fused's share of the copy rate", 0.5, share(GIVEN, "fused", "floor_share"),
           form="{:.0%}"),
    *(
        Target("routing", "cuda", f"{table}: fused over the best einsum", 10, faster(table, "fused", *EINSUMS))
        for table in (LINEAR, f"linear votes in tf32, {BOTH}", f"linear votes in bfloat16, {BOTH}")
    ),
    Target("epoch", "cuda", "an MNIST epoch of the paper's network on an H100 or H200", 1,
           share("training epoch", OURS, "median"), most=True, form="{:.2f} s"),
    Target("sparse", "cpu", "sparse graph, forward: fused over dgl", 8,
           faster("sparse graph, forward", "fused", "dgl")),
    Target("sparse", "cpu", f"sparse graph, {BOTH}: fused over dgl", 6,
           faster(f"sparse graph, {BOTH}", "fused", "dgl")),
    Target("training", "cpu", "graphcaps' share of the bfloat16 GEMM rate", 0.55,
           share("training step of paper", OURS, "gemm_share"), form="{:.0%}"),
    Target("memory", "cpu", "linear votes: fused's scratch, of the votes", 0.1,
           share("linear votes", "fused", "scratch_per_votes"), most=True, form="{:.0%}"),
    Target("memory", "cpu", "sparse graph: fused's peak, index cache included, of the votes", 2.6,
           share("sparse graph", "fused", "total_per_votes"), most=True, form="{:.2f}x"),
    *(
        Target("growth", "cpu", f"{order} edges: largest over smallest time per edge", 1.3, flatness(order), most=True,
               form="{:.2f}x")
        for order in ("parent-sorted", "random")
    ),
    Target("nodes", "cpu", "a million edges: CapsuleConv's time, of that of DGL's GATConv", 1.5,
           over(NODES, "median", CAPSULES, GAT), most=True, form="{:.2f}x"),
    Target("nodes", "cpu", "a million edges: CapsuleConv's memory, of that of DGL's GATConv", 1,
           over(NODES, "total", CAPSULES, GAT), most=True, form="{:.2f}x"),
    Target("contention", "cpu", "training beside busy programs: times as long as alone", 2.2,
           faster(CONTENTION, ALONE, BESIDE), most=True, form="{:.2f}x"),
    Target("contention", "cpu", "training alone: speed, of that with torch's own threads", 0.97,
           faster(CONTENTION, ALONE, ALONE + OF_TORCH), form="{:.2f}x"),
]  # fmt: skip


def judged(benchmark: str, device: str, tables: list[Table]) -> list[dict]:
    """Each target of a benchmark on a device: what was wanted, what was got, and whether it was met."""
    numbers = {table.name: {row.name: row.numbers for row in table.rows} for table in tables}
    found = []
    for target in TARGETS:
        if (target.benchmark, target.device) != (benchmark, device):
            continue
        got = None
        with contextlib.suppress(KeyError):
            got = target.of(numbers)
        wanted = f"{'at most' if target.most else 'at least'} {target.form.format(target.bound)}"
        text = "not measured" if got is None else target.form.format(got)
        met = None if got is None else got <= target.bound if target.most else got >= target.bound
        found.append({"about": target.about, "wanted": wanted, "got": got, "text": text, "met": met})
    return found
