"""Targets of the benchmarks. Each is reported as met, missed or not measured."""

from typing import NamedTuple

from .nodes import CAPSULES, GAT, GAT_PYG, MUTUAL
from .tables import Table
from .training import OURS, OURS_CAPTURED, PLAIN, PLAIN_CAPTURED, PRESETS, READABLE

GIVEN, LINEAR, SPARSE = "given votes", "linear votes", "sparse graph"
BOTH = "forward+backward"
NODES = "full-graph training step, 1,000,000 edges"
EINSUMS = ("einsum", "einsum, compiled")


class Target(NamedTuple):
    """A bound for a number in a table. It is the smallest allowed number; with ``most``, it is the largest.

    With ``others``, the bound is for a ratio: the smallest number of the rows ``others``, divided by the number of
    ``row``. With ``most``, the ratio is the inverse of this one.
    """

    benchmark: str
    device: str
    table: str
    row: str
    bound: float
    others: tuple[str, ...] = ()
    number: str = "median"
    most: bool = False

    def about(self) -> str:
        number = "time" if self.number == "median" else self.number.replace("_", " ")
        if self.others and not self.most:
            return f"{self.table}: {self.row}, times as fast as {' or '.join(self.others)}"
        return f"{self.table}: {number} of {self.row}" + "".join(f", relative to {other}" for other in self.others)

    def got(self, tables: list[Table]) -> float | None:
        """The number, or the ratio; None if a number for it wasn't measured."""
        rows = {row.name: row.numbers for table in tables if table.name == self.table for row in table.rows}
        own, *others = (rows.get(name, {}).get(self.number) for name in (self.row, *self.others))
        if not own or not all(others):
            return None
        return own if not others else own / min(others) if self.most else min(others) / own


TARGETS = [
    Target("routing", "cpu", f"{GIVEN}, {BOTH}", "fused", 4, ("dgl",)),
    Target("routing", "cpu", f"{GIVEN}, {BOTH}", "fused, by image", 1.2, EINSUMS[1:]),
    Target("routing", "cpu", f"{GIVEN}, {BOTH}", "fused", 0.25, number="floor_share"),
    Target("routing", "cpu", f"{LINEAR}, {BOTH}", "fused", 4, ("dgl",)),
    Target("sparse", "cpu", f"{SPARSE}, forward", "fused", 8, ("dgl",)),
    Target("sparse", "cpu", f"{SPARSE}, {BOTH}", "fused", 6, ("dgl",)),
    Target("training", "cpu", "training step of paper", OURS, 0.55, number="gemm_share"),
    *(Target("training", "cpu", f"training step of {name}", OURS, 1.5, (PLAIN, READABLE)) for name in PRESETS),
    Target("memory", "cpu", LINEAR, "fused", 0.1, number="scratch_per_votes", most=True),
    Target("memory", "cpu", SPARSE, "fused", 2.6, number="total_per_votes", most=True),
    Target("nodes", "cpu", NODES, CAPSULES, 1.5, (GAT,), most=True),
    Target("nodes", "cpu", NODES, MUTUAL, 1.3, (CAPSULES,), most=True),
    Target("nodes", "cpu", NODES, CAPSULES, 1, (GAT,), number="total", most=True),
    # The others are for an H100 or H200.
    *(
        Target("training", "cuda", f"training step of {name}", OURS_CAPTURED, bound, (PLAIN_CAPTURED,), most=True)
        for name, bound in (("paper", 0.8), ("compact", 0.9), ("parts", 0.9))
    ),
    Target("training", "cuda", "training step of paper", OURS_CAPTURED, 1, number="launches", most=True),
    Target("routing", "cuda", f"{LINEAR} in bfloat16, {BOTH}", "fused, captured", 5, ("einsum, compiled, captured",)),
    Target("routing", "cuda", f"{LINEAR}, {BOTH}", "fused, captured", 3, ("einsum, compiled, captured",)),
    *(
        Target("nodes", "cuda", nodes + hub, CAPSULES, bound, (GAT_PYG,), number, most=True)
        for nodes in (NODES, NODES.replace("1,", "10,"))
        for hub in ("", ", 28,000 into one node")
        for number, bound in (("median", 0.4), ("total", 0.1))
    ),
    Target("nodes", "cuda", NODES, MUTUAL, 1.6, (CAPSULES,), most=True),
]


def judged(benchmark: str, device: str, tables: list[Table]) -> list[dict]:
    """For each target of a benchmark on a device: the wanted and the measured number, and whether it was met."""
    verdicts = []
    for target in (target for target in TARGETS if (target.benchmark, target.device) == (benchmark, device)):
        got = target.got(tables)
        met = None if got is None else got <= target.bound if target.most else got >= target.bound
        wanted = f"{'at most' if target.most else 'at least'} {target.bound:g}"
        text = "not measured" if got is None else f"{got:.2f}"
        verdicts.append({"about": target.about(), "wanted": wanted, "got": got, "text": text, "met": met})
    return verdicts
