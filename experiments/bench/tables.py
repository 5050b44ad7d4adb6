"""A benchmark's numbers as tables: the same ones are printed and written as JSON."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pandas as pd


@dataclass
class Row:
    """Numbers under their names, or a note that says why there are none."""

    name: str
    numbers: dict[str, float] = field(default_factory=dict)
    note: str = ""


@dataclass
class Table:
    """Rows measured together."""

    name: str  # within all benchmarks, such as "given votes, forward"
    about: str  # sizes, dtype and what is counted
    unit: str  # of the number "median", or of memory's "total"
    rows: list[Row]
    reference: str = ""  # the row that ratios compare with: how many times its speed, from the medians
    rounds: int = 0  # how often each row was timed; 0 if the rows aren't times
    floor: str = ""  # the time that the number "floor_share" is a share of

    def fill(self, samples: dict[str, list[float]], scale: float = 1e3) -> Table:
        """Give the rows median and quartiles of their samples (seconds), and the ratio to the reference."""
        timed = {row.name: row for row in self.rows if row.name in samples}
        for name, row in timed.items():
            quartiles = scale * np.quantile(samples[name], [0.5, 0.25, 0.75])
            row.numbers |= dict(zip(("median", "low", "high"), quartiles.tolist(), strict=True))
            self.rounds = len(samples[name])
        if self.reference in timed:
            for row in timed.values():
                row.numbers["ratio"] = timed[self.reference].numbers["median"] / row.numbers["median"]
        return self

    def text(self) -> str:
        """The table as lines of text, its columns aligned."""
        frame = pd.DataFrame({row.name: row.numbers for row in self.rows}).T
        lines = [self.name + f"  ({self.rounds} rounds)" * (self.rounds > 0), f"  {self.about}; {self.unit}"]
        lines += [f"  floor: {self.floor}"] * bool(self.floor)
        lines += [f"  ratio: times as fast as {self.reference}"] * ("ratio" in frame)
        lines += [frame.to_string(float_format="{:,.4g}".format, na_rep="-")] * (not frame.empty)
        return "\n".join(lines + [f"  {row.name}: {row.note}" for row in self.rows if row.note])
