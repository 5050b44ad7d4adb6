"""Markdown tables of the benchmarks' numbers. This module doesn't import torch."""

from collections.abc import Sequence

from experiments.table import counted, lines

BESIDE = {
    "images_per_second": "{:,.0f}/s",
    "ratio": "{:.1f}x",
    "gemm_share": "{:.0%}",
    "launches": "{:,.0f} launches",
    "total": "{:,.0f} MB",
    "gradients": "{:,.1f}",
    "test_accuracy": "{:.2%} right",
}
"""Numbers that are shown in brackets, and how."""


def bench_tables(result: dict, names: Sequence[str] = ()) -> str:
    """Tables of the named benchmarks, or of all, and of all targets, from the JSON of the benchmarks."""
    machine, ceilings = result["machine"], result["ceilings"]
    rates = [f"{rate:,.0f} in {name[:-8]}" for name, rate in ceilings.items() if name.endswith("_gflop_s")]
    parts = [
        f"`{result['command']}` on {machine['processor']} ({machine['system']}), "
        f"{counted(machine['threads'], 'thread')}, torch {machine['torch']}, "
        f"DGL {machine['dgl']}, Numba {machine['numba']}; allocator: {machine['allocator']}. Measured in the same run: "
        f"copying {ceilings['copy_gb_s']:.1f} GB/s (bytes read and written), matrix products "
        f"{' and '.join(rates)} (GFLOP/s)."
    ]
    names = names or [name for name, part in result["benchmarks"].items() if part["tables"]]
    parts += [of_benchmark(name, result) for name in names]
    verdicts = {True: "met", False: "**missed**", None: "not measured"}
    targets = [target for part in result["benchmarks"].values() for target in part["targets"]]
    rows = [[target["about"], target["wanted"], target["text"], verdicts[target["met"]]] for target in targets]
    return "\n\n".join([*parts, lines("target | wanted | got | ", rows)])


def of_benchmark(name: str, result: dict) -> str:
    """A table with one column per table of the benchmark and one line per row name. Then the reasons for gaps."""
    tables = result["benchmarks"][name]["tables"]
    unit, reference = tables[-1]["unit"], tables[-1]["reference"]
    numbers = [{row["name"]: row["numbers"] for row in table["rows"] if row["numbers"]} for table in tables]
    names = dict.fromkeys(row["name"] for table in tables for row in table["rows"])
    rows = [[name, *(_cell(column[name]) if name in column else "-" for column in numbers)] for name in names]
    notes = [f"{t['name']}, {row['name']}: {row['note']}" for t in tables for row in t["rows"] if row["note"]]
    title = f"Benchmark `{name}`, {unit}" + f" (x: times as fast as {reference})" * bool(reference)
    return "\n\n".join([f"{title}:", lines(" | ".join(["", *(table["name"] for table in tables)]), rows), *notes])


def _cell(numbers: dict) -> str:
    first = "median" if "median" in numbers else "total"
    value = numbers.get(first, float("nan"))
    beside = [form.format(numbers[key]) for key, form in BESIDE.items() if key in numbers and key != first]
    return f"{value:,.{2 if value < 10 else 1 if value < 100 else 0}f}" + f" ({'; '.join(beside)})" * bool(beside)
