"""Targets of the benchmarks. Each is reported as met, missed or not measured."""

from dataclasses import dataclass

from .nodes import CAPSULES, GAT, GAT_PYG, MUTUAL
from .tables import Table
from .training import OURS, OURS_CAPTURED, PLAIN, PLAIN_CAPTURED, PRESETS, READABLE

GIVEN, LINEAR, SPARSE, BOTH = "given votes", "linear votes", "sparse graph", "forward+backward"
NODES = "full-graph training step, 1,000,000 edges"
COMPILED = "einsum, compiled, captured"


@dataclass
class Target:
    """A bound for a number in a table. It is the smallest allowed number; with ``most``, it is the largest.

    With ``others``, the bound is for a ratio: the smallest number of the rows ``others``, divided by the number of
    ``row``. With ``most``, the ratio is the inverse of this one.
    """

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

    def judged(self, tables: list[Table]) -> dict:
        """The wanted and the measured number, and whether the target was met; None if a number wasn't measured."""
        rows = {row.name: row.numbers for table in tables if table.name == self.table for row in table.rows}
        own, *others = (rows.get(name, {}).get(self.number) for name in (self.row, *self.others))
        got = own if own and all(others) else None
        if got and others:
            got = got / min(others) if self.most else min(others) / got
        met = None if got is None else got <= self.bound if self.most else got >= self.bound
        wanted = f"{'at most' if self.most else 'at least'} {self.bound:g}"
        text = "not measured" if got is None else f"{got:.2f}"
        return {"about": self.about(), "wanted": wanted, "got": got, "text": text, "met": met}


TARGETS = {
    ("routing", "cpu"): [
        Target(f"{GIVEN}, {BOTH}", "fused", 4, ("dgl",)),
        Target(f"{GIVEN}, {BOTH}", "fused, by image", 1.2, ("einsum, compiled",)),
        Target(f"{GIVEN}, {BOTH}", "fused", 0.25, number="floor_share"),
        Target(f"{LINEAR}, {BOTH}", "fused", 4, ("dgl",)),
    ],
    ("sparse", "cpu"): [
        Target(f"{SPARSE}, forward", "fused", 8, ("dgl",)),
        Target(f"{SPARSE}, {BOTH}", "fused", 6, ("dgl",)),
    ],
    ("training", "cpu"): [
        Target("training step of paper", OURS, 0.55, number="gemm_share"),
        *(Target(f"training step of {name}", OURS, 1.5, (PLAIN, READABLE)) for name in PRESETS),
    ],
    ("memory", "cpu"): [
        Target(LINEAR, "fused", 0.1, number="scratch_per_votes", most=True),
        Target(SPARSE, "fused", 2.6, number="total_per_votes", most=True),
    ],
    ("nodes", "cpu"): [
        Target(NODES, CAPSULES, 1.5, (GAT,), most=True),
        Target(NODES, MUTUAL, 1.3, (CAPSULES,), most=True),
        Target(NODES, CAPSULES, 1, (GAT,), number="total", most=True),
    ],
    # The others are for an H100 or H200.
    ("training", "cuda"): [
        *(
            Target(f"training step of {name}", OURS_CAPTURED, bound, (PLAIN_CAPTURED,), most=True)
            for name, bound in (("paper", 0.8), ("compact", 0.9), ("parts", 0.9))
        ),
        Target("training step of paper", OURS_CAPTURED, 1, number="launches", most=True),
    ],
    ("routing", "cuda"): [
        Target(f"{LINEAR} in bfloat16, {BOTH}", "fused, captured", 5, (COMPILED,)),
        Target(f"{LINEAR}, {BOTH}", "fused, captured", 3, (COMPILED,)),
    ],
    ("nodes", "cuda"): [
        *(
            Target(nodes + hub, CAPSULES, bound, (GAT_PYG,), number, most=True)
            for nodes in (NODES, NODES.replace("1,", "10,"))
            for hub in ("", ", 28,000 into one node")
            for number, bound in (("median", 0.4), ("total", 0.1))
        ),
        Target(NODES, MUTUAL, 1.6, (CAPSULES,), most=True),
    ],
}
