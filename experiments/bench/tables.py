"""What a benchmark measured, as tables of plain numbers: the same ones are printed and written as JSON."""

from __future__ import annotations

from dataclasses import dataclass, field

from .clock import quartiles


@dataclass
class Row:
    """Numbers under their names, or a note that says why there are none."""

    name: str
    about: str
    numbers: dict[str, float] = field(default_factory=dict)
    note: str = ""


@dataclass
class Table:
    """Rows measured together.

    Args:
        name: within all benchmarks, such as ``given votes, forward``.
        about: sizes, dtype and what is counted.
        unit: of ``median``, or of memory's ``total``.
        reference: the row that ratios compare with: how many times its speed, from the medians.
        rounds: how often each row was timed; 0 where the rows aren't times.
        floor: what the number ``floor_share`` is a share of.
    """

    name: str
    about: str
    unit: str
    rows: list[Row]
    reference: str = ""
    rounds: int = 0
    floor: str = ""

    def fill(self, samples: dict[str, list[float]], scale: float = 1e3) -> Table:
        """Give the rows median and quartiles of their samples, and the ratio to the reference; return the table."""
        timed = [row for row in self.rows if row.name in samples]
        for row in timed:
            row.numbers |= quartiles(samples[row.name], scale)
            self.rounds = len(samples[row.name])
        basis = next((row.numbers["median"] for row in timed if row.name == self.reference), None)
        for row in timed:
            if basis:
                row.numbers["ratio"] = basis / row.numbers["median"]
        return self

    def text(self) -> str:
        """The table as lines of text, its columns aligned."""
        heads = list(dict.fromkeys(key for row in self.rows for key in row.numbers))
        lines = [self.name + f"  ({self.rounds} rounds)" * (self.rounds > 0), f"  {self.about}; {self.unit}"]
        lines += [f"  floor: {self.floor}"] * bool(self.floor)
        lines += [f"  ratio: times as fast as {self.reference}"] * ("ratio" in heads)
        cells = [["", *heads]]
        for row in self.rows:
            numbers = [f"{row.numbers[key]:,.4g}" if key in row.numbers else "-" for key in heads]
            cells.append([row.name, *numbers])
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        notes = ["", *(row.note for row in self.rows)]
        for (name, *numbers), note in zip(cells, notes, strict=True):
            columns = "".join(f"  {cell:>{width}}" for cell, width in zip(numbers, widths[1:], strict=True))
            lines.append(f"  {name:<{widths[0]}}" + (f"  {note}" if note else columns))
        return "\n".join(line.rstrip() for line in lines)
