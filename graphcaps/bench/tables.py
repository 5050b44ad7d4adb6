"""What a work measured, as tables of plain numbers: the same ones are printed, written as JSON and drawn."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field

# What a number of a row means: (head of its column, how it is printed).
COLUMNS = {
    "median": ("{unit}", "{:,.2f}"),
    "quartiles": ("quartiles", "{}"),
    "speed": ("images/s", "{:,.0f}"),
    "ratio": ("times {reference}", "{:.2f}"),
    "floor_share": ("of floor", "{:.0%}"),
    "gemm_share": ("of bf16 GEMM", "{:.0%}"),
    "total": ("MB", "{:,.2f}"),
    "gradients": ("gradients", "{:,.2f}"),
    "scratch": ("scratch", "{:,.2f}"),
    "total_per_votes": ("per votes", "{:.3f}"),
    "scratch_per_votes": ("scratch per votes", "{:.3f}"),
}


@dataclass
class Row:
    """Numbers under their names (of ``COLUMNS``, and ``low`` and ``high``, the quartiles); or a note in their place."""

    name: str
    says: str
    numbers: dict[str, float] = field(default_factory=dict)
    note: str = ""
    another_algorithm: bool = False


@dataclass
class Table:
    """Rows measured together.

    Args:
        name: within its work, such as ``given votes, forward``.
        about: sizes, dtype and what is counted.
        shown: the number that is drawn, a key of ``COLUMNS``, in ``unit``.
        reference: the row that ratios compare with: how many times its speed, from the medians.
        rounds: how often each row was timed; 0 where the rows aren't times.
        floor: what the shares are shares of.
        auto: the engine that ``auto`` stands for on this input.
    """

    name: str
    about: str
    shown: str
    unit: str
    rows: list[Row]
    reference: str = ""
    rounds: int = 0
    floor: str = ""
    auto: str = ""

    def row(self, name: str) -> Row | None:
        return next((row for row in self.rows if row.name == name), None)

    def number(self, name: str, key: str) -> float | None:
        """A number of a row, or None where it wasn't measured."""
        row = self.row(name)
        return row.numbers.get(key) if row else None


def with_ratios(table: Table) -> Table:
    """Fill in how many times as fast as the reference row each row is, from the medians."""
    basis = table.number(table.reference, "median")
    for row in table.rows:
        if basis and "median" in row.numbers:
            row.numbers["ratio"] = basis / row.numbers["median"]
    return table


def text(table: Table) -> str:
    """The table as lines of text, its columns aligned."""
    keys = [key for key in COLUMNS if any(_has(row, key) for row in table.rows)]
    heads = [COLUMNS[key][0].format(unit=table.unit, reference=table.reference) for key in keys]
    cells = [[_cell(row, key) for key in keys] for row in table.rows]
    names = [row.name + (" *" if row.another_algorithm else "") for row in table.rows]
    widths = [max(map(len, column)) for column in zip(heads, *cells, strict=True)]
    wide = max(map(len, names), default=0)
    rounds = f"  ({table.rounds} rounds)" if table.rounds else ""
    lines = [f"{table.name}{rounds}", f"  {table.about}"]
    if table.floor:
        lines.append(f"  floor: {table.floor}")
    lines.append("  " + " " * wide + _joined(heads, widths))
    for row, name, line in zip(table.rows, names, cells, strict=True):
        lines.append(f"  {name:<{wide}}" + (f"  {row.note}" if row.note else _joined(line, widths)))
    if any(row.another_algorithm for row in table.rows):
        lines.append("  * another algorithm: not the paper's numbers")
    return "\n".join(line.rstrip() for line in lines)


def _has(row: Row, key: str) -> bool:
    return ("low" if key == "quartiles" else key) in row.numbers


def _cell(row: Row, key: str) -> str:
    if not _has(row, key):
        return "-"
    if key == "quartiles":
        return "{:,.2f} to {:,.2f}".format(row.numbers["low"], row.numbers["high"])
    return COLUMNS[key][1].format(row.numbers[key])


def _joined(cells: list[str], widths: list[int]) -> str:
    return "".join(f"  {cell:>{width}}" for cell, width in zip(cells, widths, strict=True))


def plain(table: Table) -> dict:
    """The table as dicts, lists, strings and numbers."""
    return dataclasses.asdict(table)
