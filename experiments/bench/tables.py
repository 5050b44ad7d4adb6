"""Markdown tables of benchmarks. This module doesn't import torch."""

from experiments.table import table

BESIDE = {
    "images_per_second": "{:,.0f}/s",
    "ratio": "{:.1f}x",
    "gemm_share": "{:.0%}",
    "total": "{:,.0f} MB",
    "gradients": "{:,.1f}",
}
"""Numbers that are shown in brackets, and how."""


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
