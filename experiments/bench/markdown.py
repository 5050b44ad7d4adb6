"""Tables of the benchmarks' numbers, in Markdown. Imports no torch."""

from __future__ import annotations


def bench_tables(found: dict) -> str:
    """What ``python -m experiments.bench`` measured: routing, memory, growth, training steps, and the targets."""
    machine, ceilings = found["machine"], found["ceilings"]
    threads = f"{machine['threads']} thread" + ("s" if machine["threads"] > 1 else "")
    parts = [
        f"`{found['command']}` on {machine['processor']} ({machine['system']}), {threads}, torch {machine['torch']}, "
        f"DGL {machine['dgl']}, Numba {machine['numba']}; allocator: {machine['allocator']}. Measured in the same run: "
        f"copying {ceilings['copy_gb_s']:.1f} GB/s (bytes read and written), matrix products "
        f"{ceilings['float32_gflop_s']:,.0f} GFLOP/s in float32 and {ceilings['bfloat16_gflop_s']:,.0f} in bfloat16."
    ]
    routing = [table for work in ("routing", "sparse") for table in found["benchmarks"][work]["tables"]]
    parts.append("Routing, ms (in brackets: times as fast as engine dgl):\n\n" + _side_by_side(routing, _timed))
    memory = found["benchmarks"]["memory"]["tables"]
    title = "Peak memory of forward+backward above what was there before, MB (of it the inputs' gradients):\n\n"
    parts.append(title + _side_by_side(memory, lambda n: f"{n['total']:,.1f} ({n['gradients']:,.1f})"))
    growth = _by_size(found["benchmarks"]["growth"]["tables"][0]["rows"])
    title = "Engine fused as the sparse graph grows, forward+backward, ns per edge:\n\n"
    parts.append(title + _side_by_side(growth, lambda n: f"{n['median']:,.0f} ({n['low']:,.0f} to {n['high']:,.0f})"))
    steps = found["benchmarks"]["training"]["tables"]
    about, basis = "; ".join(table["about"] for table in steps), steps[-1]["reference"]
    title = f"Training steps ({about}), images/s (times {basis}; share of the bfloat16 GEMM rate):\n\n"
    parts.append(title + _side_by_side(steps, _images_per_second))
    verdicts = {True: "met", False: "**missed**", None: "not measured"}
    lines = ["| target | wanted | got | |", "|---|---|---|---|"]
    for target in (target for part in found["benchmarks"].values() for target in part["targets"]):
        lines.append(f"| {target['about']} | {target['wanted']} | {target['text']} | {verdicts[target['met']]} |")
    return "\n\n".join([*parts, "\n".join(lines)])


def nodes_table(found: dict) -> str:
    """What a full-graph training step takes, of CapsuleConv and of other layers."""
    machine, measured = found["machine"], found["benchmarks"]["nodes"]
    table, command = measured["tables"][-1], measured.get("command", found["command"])
    threads = f"{machine['threads']} thread{'s' if machine['threads'] > 1 else ''}"
    basis = {key: _numbers_of(table, table["reference"])[key] for key in ("median", "total")}
    lines = [
        f"`{command}` on {machine['processor']}, {threads}: {table['about']}.",
        "",
        "| layer | s a step | times GATConv of DGL | peak memory, MB | times GATConv of DGL |",
        "|---|---|---|---|---|",
    ]
    for row in table["rows"]:
        seconds, total = (row["numbers"].get(key) for key in ("median", "total"))
        if row["note"]:
            lines.append(f"| {row['name']} | {row['note']} | | | |")
            continue
        times = seconds / basis["median"], total / basis["total"]
        lines.append(f"| {row['name']} | {seconds / 1000:,.2f} | {times[0]:.2f} | {total:,.0f} | {times[1]:.2f} |")
    return "\n".join(lines)


def busy_table(found: dict) -> str:
    """How fast training is alone and beside programs that keep every core busy."""
    (table,) = found["benchmarks"]["contention"]["tables"]
    lines = ["| | ms a step, quartiles | images/s |", "|---|---|---|"]
    for row in table["rows"]:
        n = row["numbers"]
        lines.append(
            f"| {row['name']} | {n['median']:.1f}, {n['low']:.1f} to {n['high']:.1f} | {n['images_per_second']:,.0f} |"
        )
    return "\n".join(lines)


def _numbers_of(table: dict, name: str) -> dict:
    return next(row["numbers"] for row in table["rows"] if row["name"] == name)


def _by_size(rows: list[dict]) -> list[dict]:
    """Rows named ``order, size`` as a table per size, with a row per order."""
    sizes = list(dict.fromkeys(row["name"].partition(", ")[2] for row in rows))
    parts = {size: [row for row in rows if row["name"].endswith(f", {size}")] for size in sizes}
    return [
        {"name": size, "rows": [{**row, "name": row["name"].partition(", ")[0]} for row in part]}
        for size, part in parts.items()
    ]


def _images_per_second(numbers: dict) -> str:
    share = f"; {numbers['gemm_share']:.0%}" if "gemm_share" in numbers else ""
    return f"{numbers['images_per_second']:,.0f} ({numbers['ratio']:.1f}x{share})"


def _timed(numbers: dict) -> str:
    return f"{numbers['median']:,.1f} ({numbers['ratio']:.1f}x)"


def _side_by_side(tables: list[dict], cell) -> str:
    """One column per table, one line per row name."""
    names = list(dict.fromkeys(row["name"] for table in tables for row in table["rows"]))
    lines = ["| | " + " | ".join(table["name"] for table in tables) + " |", "|---" * (1 + len(tables)) + "|"]
    for name in names:
        rows = [next((row for row in table["rows"] if row["name"] == name), None) for table in tables]
        cells = [cell(row["numbers"]) if row and row["numbers"] else "-" for row in rows]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)
