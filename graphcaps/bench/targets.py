"""What must be reached, as data; a run says of each whether it was met, missed or not measured."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ..routing.engines import engine_names
from .busy import ALONE, BESIDE, TORCHS
from .busy import NAME as BUSY
from .inputs import ORDERS
from .nodes import CAPSULES, GAT
from .nodes import NAME as STEP
from .tables import Table

Tables = dict[str, Table]


class Target(NamedTuple):
    """``of(tables of the work)`` must be at least (or, with ``most``, at most) ``bound``; None: not measured."""

    work: str
    device: str
    says: str
    bound: float
    of: Callable[[Tables], float | None]
    most: bool = False
    form: str = "{:.1f}x"


def times(table: str, row: str, *others: str) -> Callable[[Tables], float | None]:
    """How many times as fast ``row`` is as the fastest of ``others``, from the medians."""

    def of(tables: Tables) -> float | None:
        if table not in tables:
            return None
        own, *found = (tables[table].number(name, "median") for name in (row, *others))
        compared = [seconds for seconds in found if seconds is not None]
        return min(compared) / own if own is not None and len(compared) == len(others) else None

    return of


def number(table: str, row: str, key: str) -> Callable[[Tables], float | None]:
    """A number of a row."""
    return lambda tables: tables[table].number(row, key) if table in tables else None


def ratio(table: str, key: str, row: str, other: str) -> Callable[[Tables], float | None]:
    """A number of a row over that of another."""

    def of(tables: Tables) -> float | None:
        own, basis = (tables[table].number(name, key) if table in tables else None for name in (row, other))
        return own / basis if own is not None and basis else None

    return of


def flatness(order: str) -> Callable[[Tables], float | None]:
    """The largest time per edge over the smallest, of the graphs in this order."""

    def of(tables: Tables) -> float | None:
        rows = [row for table in tables.values() for row in table.rows if row.name.startswith(order)]
        found = [row.numbers["median"] for row in rows if row.numbers]
        return max(found) / min(found) if found else None

    return of


def auto_of(engines: list[str]) -> Callable[[Tables], float | None]:
    """Over all tables, the most that the engine chosen by ``auto`` takes, over the fastest engine."""

    def of(tables: Tables) -> float | None:
        most = []
        for table in tables.values():
            own = table.number(table.auto, "median")
            found = [x for x in (table.number(name, "median") for name in engines) if x]
            if own and found:
                most.append(own / min(found))
        return max(most) if most else None

    return of


GIVEN, LINEAR, SPARSE = "given votes", "linear votes", "sparse graph"
NODES = f"{STEP}, 1,000,000 edges"
BOTH = "forward+backward"
PRECISIONS = "", " in tf32", " in bfloat16"


def _auto(work: str) -> list[Target]:
    says = f"{work}: auto takes at most 1.1 times the fastest engine's time"
    return [
        Target(work, device, says, 1.1, auto_of(engine_names()), most=True, form="{:.2f}x")
        for device in ("cpu", "cuda")
    ]


def _on_gpu(work: str, suffix: str) -> Target:
    rows = ("fused", "einsum", "einsum, compiled", *(["readable"] if work == "gpu" else []))
    says = f"linear votes{suffix}, {BOTH}: fused over the best einsum"
    return Target(work, "cuda", says, 10, times(f"{LINEAR}{suffix}, {BOTH}", *rows))


TARGETS = [
    Target(
        "gpu", "cuda", f"{GIVEN}, {BOTH}: fused's share of the copy rate", 0.5,
        number(f"{GIVEN}, {BOTH}", "fused", "floor_share"), form="{:.0%}",
    ),
    *(_on_gpu("gpu", suffix) for suffix in PRECISIONS),
    Target(
        "gpu", "cuda", "an MNIST epoch of the paper's network on an H100 or H200", 1.0,
        number("training epoch", "graphcaps", "median"), most=True, form="{:.2f} s",
    ),
    Target("routing", "cpu", f"{GIVEN}, {BOTH}: fused over dgl", 4, times(f"{GIVEN}, {BOTH}", "fused", "dgl")),
    Target(
        "routing", "cpu", f"{GIVEN}, {BOTH}: fused over compiled einsum", 2.4,
        times(f"{GIVEN}, {BOTH}", "fused", "einsum, compiled"),
    ),
    Target(
        "routing", "cpu", f"{GIVEN}, {BOTH}: fused's share of the floor", 0.25,
        number(f"{GIVEN}, {BOTH}", "fused", "floor_share"), form="{:.0%}",
    ),
    Target("routing", "cpu", f"{LINEAR}, {BOTH}: fused over dgl", 4, times(f"{LINEAR}, {BOTH}", "fused", "dgl")),
    Target(
        "routing", "cuda", f"{GIVEN}, {BOTH}: fused's share of the floor", 0.5,
        number(f"{GIVEN}, {BOTH}", "fused", "floor_share"), form="{:.0%}",
    ),
    *(_on_gpu("routing", suffix) for suffix in PRECISIONS),
    *_auto("routing"),
    Target("sparse", "cpu", f"{SPARSE}, forward: fused over dgl", 8, times(f"{SPARSE}, forward", "fused", "dgl")),
    Target("sparse", "cpu", f"{SPARSE}, {BOTH}: fused over dgl", 6, times(f"{SPARSE}, {BOTH}", "fused", "dgl")),
    *_auto("sparse"),
    *(
        Target(
            "growth", device, f"{order} edges: largest over smallest time per edge", 1.3, flatness(order), most=True,
            form="{:.2f}x",
        )
        for device in ("cpu", "cuda") for order in ORDERS if order != "child-sorted"
    ),
    Target("train", "cpu", "graphcaps over broadcast", 6, times("training step", "graphcaps", "broadcast")),
    Target("train", "cpu", "graphcaps over tutorial", 4, times("training step", "graphcaps", "tutorial")),
    Target(
        "train", "cpu", "graphcaps' share of the bfloat16 GEMM rate", 0.55,
        number("training step", "graphcaps", "gemm_share"), form="{:.0%}",
    ),
    Target(
        "memory", "cpu", f"{LINEAR}: fused's scratch, of the votes", 0.1, number(LINEAR, "fused", "scratch_per_votes"),
        most=True, form="{:.0%}",
    ),
    Target(
        "memory", "cpu", f"{SPARSE}: fused's peak, index cache included, of the votes", 2.6,
        number(SPARSE, "fused", "total_per_votes"), most=True, form="{:.2f}x",
    ),
    Target(
        "busy", "cpu", "training beside busy programs: times as long as alone", 2.2, times(BUSY, ALONE, BESIDE),
        most=True, form="{:.2f}x",
    ),
    Target(
        "busy", "cpu", "training alone: speed, of that with torch's own threads", 0.97,
        times(BUSY, ALONE, ALONE + TORCHS), form="{:.2f}x",
    ),
    Target(
        "nodes", "cpu", "a million edges: CapsuleConv's time, of that of DGL's GATConv", 1.5,
        ratio(NODES, "median", CAPSULES, GAT), most=True, form="{:.2f}x",
    ),
    Target(
        "nodes", "cpu", "a million edges: CapsuleConv's memory, of that of DGL's GATConv", 1,
        ratio(NODES, "total", CAPSULES, GAT), most=True, form="{:.2f}x",
    ),
]  # fmt: skip


def judged(work: str, device: str, tables: list[Table], targets: list[Target] = TARGETS) -> list[dict]:
    """Each target of a work on a device: what was wanted, what was got, and whether it was met (None: not measured)."""
    by_name, found = {table.name: table for table in tables}, []
    for target in targets:
        if (target.work, target.device) != (work, device):
            continue
        got = target.of(by_name)
        met = None if got is None else bool(got <= target.bound if target.most else got >= target.bound)
        wanted = f"{'at most' if target.most else 'at least'} {target.form.format(target.bound)}"
        said = "not measured" if got is None else target.form.format(got)
        found.append(dict(says=target.says, wanted=wanted, bound=target.bound, got=got, said=said, met=met))
    return found


def verdict(target: dict) -> str:
    """``met``, ``MISSED`` or ``not measured``."""
    return {True: "met", False: "MISSED", None: "not measured"}[target["met"]]
