"""Markdown tables of the benchmarks' numbers. This module doesn't import torch."""

from __future__ import annotations

from collections.abc import Callable

from experiments.table import counted, lines


def bench_tables(result: dict) -> str:
    """Tables of routing, memory and training steps, and of the targets, from the JSON of the benchmarks."""
    machine, ceilings = result["machine"], result["ceilings"]
    parts = [
        f"`{result['command']}` on {machine['processor']} ({machine['system']}), "
        f"{counted(machine['threads'], 'thread')}, torch {machine['torch']}, "
        f"DGL {machine['dgl']}, Numba {machine['numba']}; allocator: {machine['allocator']}. Measured in the same run: "
        f"copying {ceilings['copy_gb_s']:.1f} GB/s (bytes read and written), matrix products "
        f"{ceilings['float32_gflop_s']:,.0f} GFLOP/s in float32 and {ceilings['bfloat16_gflop_s']:,.0f} in bfloat16."
    ]
    measured = {name: part["tables"] for name, part in result["benchmarks"].items()}
    routing = [*measured["routing"], *measured["sparse"]]
    title = "Routing, ms (in brackets: times as fast as engine dgl):\n\n"
    parts.append(title + _side_by_side(routing, lambda n: f"{n['median']:,.1f} ({n['ratio']:.1f}x)"))
    title = "Additional peak memory of forward+backward, MB (in brackets the part of the inputs' gradients):\n\n"
    parts.append(title + _side_by_side(measured["memory"], lambda n: f"{n['total']:,.1f} ({n['gradients']:,.1f})"))
    steps = measured["training"]
    about, basis = "; ".join(table["about"] for table in steps), steps[-1]["reference"]
    title = f"Training steps ({about}), images/s (times {basis}; share of the bfloat16 GEMM rate):\n\n"
    parts.append(title + _side_by_side(steps, _images_per_second))
    verdicts = {True: "met", False: "**missed**", None: "not measured"}
    targets = [target for part in result["benchmarks"].values() for target in part["targets"]]
    rows = [[target["about"], target["wanted"], target["text"], verdicts[target["met"]]] for target in targets]
    return "\n\n".join([*parts, lines("target | wanted | got | ", rows)])


def nodes_table(result: dict) -> str:
    """Time and memory of a full-graph training step, for CapsuleConv and other layers."""
    machine, measured = result["machine"], result["benchmarks"]["nodes"]
    table, command = measured["tables"][-1], measured.get("command", result["command"])
    basis = next(row["numbers"] for row in table["rows"] if row["name"] == table["reference"])
    rows = []
    for row in table["rows"]:
        numbers = row["numbers"]
        if row["note"]:
            rows.append([row["name"], row["note"], "", "", ""])
            continue
        seconds, memory = f"{numbers['median'] / 1000:,.2f}", f"{numbers['total']:,.0f}"
        times = [f"{numbers[key] / basis[key]:.2f}" for key in ("median", "total")]
        rows.append([row["name"], seconds, times[0], memory, times[1]])
    threads = counted(machine["threads"], "thread")
    titles = "layer | s a step | times GATConv of DGL | peak memory, MB | times GATConv of DGL"
    return f"`{command}` on {machine['processor']}, {threads}: {table['about']}.\n\n{lines(titles, rows)}"


def _images_per_second(numbers: dict) -> str:
    share = f"; {numbers['gemm_share']:.0%}" if "gemm_share" in numbers else ""
    return f"{numbers['images_per_second']:,.0f} ({numbers['ratio']:.1f}x{share})"


def _side_by_side(tables: list[dict], cell: Callable[[dict], str]) -> str:
    """A table with one column per table and one line per row name."""
    numbers = [{row["name"]: row["numbers"] for row in table["rows"] if row["numbers"]} for table in tables]
    names = dict.fromkeys(row["name"] for table in tables for row in table["rows"])
    rows = [[name, *(cell(column[name]) if name in column else "-" for column in numbers)] for name in names]
    return lines(" | ".join(["", *(table["name"] for table in tables)]), rows)
