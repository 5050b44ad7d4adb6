"""Tables of a benchmark's numbers, for printing and for JSON."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import pandas as pd


@dataclass
class Row:
    """Numbers by name, or a note with the reason why there are none."""

    name: str
    numbers: dict[str, float] = field(default_factory=dict)
    note: str = ""


@dataclass
class Table:
    """Rows that were measured together."""

    name: str  # unique in all benchmarks, for example "given votes, forward"
    about: str  # sizes, dtype, and what the numbers include
    unit: str  # unit of the number "median", or of memory's "total"
    rows: list[Row]
    reference: str = ""  # name of a row; each row's ratio is the speedup over this row, from medians
    rounds: int = 0  # number of timings of each row; 0 for numbers that aren't times

    def fill(self, samples: dict[str, list[float]], scale: float = 1e3) -> Table:
        """Set the median and quartiles of each row's samples (seconds), and the ratio to the reference."""
        timed = {row.name: row for row in self.rows if row.name in samples}
        for name, row in timed.items():
            quartiles = scale * np.quantile(samples[name], [0.5, 0.25, 0.75])
            row.numbers |= dict(zip(("median", "low", "high"), quartiles.tolist(), strict=True))
            self.rounds = len(samples[name])
        if self.reference in timed:
            for row in timed.values():
                row.numbers["ratio"] = timed[self.reference].numbers["median"] / row.numbers["median"]
        return self

    def add(self, name: str, calls: dict[str, Callable], make: Callable[[], Callable]) -> None:
        """Add a row, and to ``calls`` the call that ``make`` returns. If it fails, the row's note is the reason."""
        row = Row(name)
        self.rows.append(row)
        try:
            calls[name] = make()
        except Exception as error:
            row.note = not_measured(error)

    def text(self) -> str:
        """The table as lines of text with aligned columns."""
        frame = pd.DataFrame({row.name: row.numbers for row in self.rows}).T
        lines = [self.name + f"  ({self.rounds} rounds)" * (self.rounds > 0), f"  {self.about}; {self.unit}"]
        lines += [f"  ratio: times as fast as {self.reference}"] * ("ratio" in frame)
        lines += [frame.to_string(float_format="{:,.4g}".format, na_rep="-")] * (not frame.empty)
        return "\n".join(lines + [f"  {row.name}: {row.note}" for row in self.rows if row.note])


def not_measured(error: Exception) -> str:
    """The note of a row that failed."""
    return f"not measured: {type(error).__name__}: {(str(error).strip().splitlines() or [''])[0][:200]}"
