"""Numbers of benchmarks for JSON, and Markdown tables of them. This module doesn't import torch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from experiments.table import table

BESIDE = {
    "images_per_second": "{:,.0f}/s",
    "ratio": "{:.1f}x",
    "gemm_share": "{:.0%}",
    "total": "{:,.0f} MB",
    "gradients": "{:,.1f}",
}
"""Numbers that are shown in brackets, and how."""


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

    def fill(self, samples: dict[str, list[float]]) -> Table:
        """Set the median and quartiles of each row's samples (seconds), and the ratio to the reference."""
        timed = {row.name: row for row in self.rows if row.name in samples}
        for name, row in timed.items():
            quartiles = 1e3 * np.quantile(samples[name], [0.5, 0.25, 0.75])
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


def not_measured(error: Exception) -> str:
    """The note of a row that failed."""
    return f"not measured: {type(error).__name__}: {(str(error).strip().splitlines() or [''])[0][:200]}"


def about(result: dict) -> str:
    """The command, the machine and its rates, from the JSON of the benchmarks."""
    machine, ceilings = result["machine"], result["ceilings"]
    rates = [f"{rate:,.0f} in {name[:-8]}" for name, rate in ceilings.items() if name.endswith("_gflop_s")]
    return (
        f"`{result['command']}` on {machine['processor']} ({machine['system']}), "
        f"{machine['threads']} thread{'s' * (machine['threads'] != 1)}, torch {machine['torch']}, "
        f"DGL {machine['dgl']}, Numba {machine['numba']}; allocator: {machine['allocator']}. Measured in the same run: "
        f"copying {ceilings['copy_gb_s']:.1f} GB/s (bytes read and written), matrix products "
        f"{' and '.join(rates)} (GFLOP/s)."
    )


def of_benchmark(name: str, result: dict, chosen: slice = slice(None)) -> str:
    """A table with one column per table of the benchmark and one line per row name. Then the reasons for gaps."""
    tables = result["benchmarks"][name]["tables"]
    unit, reference = tables[-1]["unit"], tables[-1]["reference"]
    rows, notes = [], []
    for part in tables[chosen]:
        rows += [{"": row["name"]} | {part["name"]: _cell(row["numbers"])} for row in part["rows"]]
        notes += [f"{part['name']}, {row['name']}: {row['note']}" for row in part["rows"] if row["note"]]
    title = f"Benchmark `{name}`, {unit}" + f" (x: times as fast as {reference})" * bool(reference)
    return "\n\n".join([f"{title}:", table(rows, index=1), *notes])


def _cell(numbers: dict) -> str:
    if not numbers:
        return "-"
    first = "median" if "median" in numbers else "total"
    value = numbers.get(first, float("nan"))
    beside = [form.format(numbers[key]) for key, form in BESIDE.items() if key in numbers and key != first]
    return f"{value:,.{2 if value < 10 else 1 if value < 100 else 0}f}" + f" ({'; '.join(beside)})" * bool(beside)
