"""Makes the README's tables from committed results, and takes new results in.

python tests/readme.py                 write the tables between the README's markers
python tests/readme.py runs/NAME ...   first add these runs' result.json to tests/results/train.json
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

from graphcaps.compare.plan import measured
from graphcaps.compare.table import as_markdown

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"
TRAIN = ROOT / "tests" / "results" / "train.json"
PRUNE = ROOT / "tests" / "results" / "prune.json"  # what graphcaps prune wrote
TRANSFORMED = ROOT / "tests" / "results" / "evaluate"  # what graphcaps evaluate --on wrote
BENCH = ROOT / "tests" / "results" / "bench-cpu.json"  # what graphcaps bench --json wrote
NODES = ROOT / "tests" / "results" / "bench-nodes.json"  # what graphcaps bench nodes --json wrote
EXAMPLES = [ROOT / "tests" / "results" / f"{name}.json" for name in ("cora", "mutag", "proteins")]  # graphcaps example


def take(runs: list[str]) -> None:
    """Add finished runs to the results; one of the same command on the same device replaces the older."""
    rows = json.loads(TRAIN.read_text()) if TRAIN.exists() else []
    commit = subprocess.check_output(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, text=True).strip()
    for run in runs:
        row = {**json.loads((Path(run) / "result.json").read_text()), "commit": commit}
        rows = [old for old in rows if (old["command"], old["device"]) != (row["command"], row["device"])] + [row]
    TRAIN.write_text(json.dumps(rows, indent=2) + "\n")


def train_table(rows: list[dict]) -> str:
    """One line per run: what it reached, how long it took, and the command that repeats it."""
    lines = [
        "| model | data | epochs | test accuracy (95 % interval) | wrong | parameters | time | device | command |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        low, high = row["test_interval_95"]
        wrong = row["test_images"] - row["test_correct"]
        threads = f"{row['threads']} thread" + ("s" if row["threads"] > 1 else "")
        device = f"{row['device']}, {threads}, {row['precision']}, engine {row['engine']}"
        minutes = f"{row['seconds'] / 60:.1f} min"
        lines.append(
            f"| {row['model']} | {row['dataset']} | {row['epochs']} | **{row['test_accuracy']:.2%}** ({low:.2%} to "
            f"{high:.2%}) | {wrong} of {row['test_images']:,} | {row['parameters']:,} | {minutes} | "
            f"{device} | `{row['command']}` (seed {row['seed']}, commit {row['commit']}) |"
        )
    return "\n".join(lines)


def prune_table(found: dict) -> str:
    """What ``graphcaps prune`` measured: a line per k, the controls beside it."""
    lines = [
        f"`{found['command']}`: {found['model']} on {found['dataset']}, strength from {found['train_images']:,} images",
        "",
        "| edges per child | edges | validation accuracy | test accuracy | wrong | test, random | test, weakest |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in found["rows"]:
        best, drawn = row["strongest"], [score["test_accuracy"] for score in row["random"]]
        controls = ["-", "-"]
        if drawn:
            spread = f"{sum(drawn) / len(drawn):.2%} ({min(drawn):.2%} to {max(drawn):.2%})"
            controls = [spread, f"{row['weakest']['test_accuracy']:.2%}"]
        wrong = f"{found['test_images'] - best['test_correct']:,} of {found['test_images']:,}"
        accuracy = f"{best['val_accuracy']:.2%} | {best['test_accuracy']:.2%} | {wrong}"
        lines.append(f"| {row['k'] or 'all'} | {row['edges']} | {accuracy} | {' | '.join(controls)} |")
    return "\n".join(lines)


def transformed_tables(folder: Path) -> str:
    """What ``graphcaps evaluate --on`` measured: a line per transform, and a line per parameter of equivariance."""
    lines = ["| test images | severity | accuracy, % (mean winning score); bold: as they are |", "|---|---|---|"]
    for name in ("rotated", "shifted", "noisy", "scrambled"):
        found = json.loads((folder / f"{name}.json").read_text())
        cells = [f"{row['name']}: {100 * row['accuracy']:.2f} ({row['winning_score']:.2f})" for row in found["rows"]]
        cells[found["clean"]] = f"**{cells[found['clean']]}**"
        lines.append(f"| {name} | {found['says']} | {', '.join(cells)} |")
    lines += [
        "",
        "| parameter | values | moved, of the length | fit | permuted | read-out | permuted |",
        "|---|---|---|---|---|---|---|",
    ]
    found = json.loads((folder / "equivariance.json").read_text())
    for name, part in found["parameters"].items():
        values = f"{part['values'][0]} to {part['values'][-1]} {part['unit']}, {len(part['values'])} steps"
        keys = ("moved", "fit", "fit_permuted", "readout", "readout_permuted")
        cells = (f"{part[key]['mean']:.2f} +- {part[key]['sd']:.2f}" for key in keys)
        lines.append(f"| {name} | {values} | {' | '.join(cells)} |")
    spread = "mean +- standard deviation, over images (moved, fit) or classes (read-out)"
    return "\n".join([*lines, "", f"The second table: {found['images']:,} images, {spread}."])


def bench_tables(found: dict) -> str:
    """What ``graphcaps bench`` measured: routing, memory, growth, training steps, and the targets."""
    machine, ceilings = found["machine"], found["ceilings"]
    threads = f"{machine['threads']} thread" + ("s" if machine["threads"] > 1 else "")
    parts = [
        f"`{found['command']}` on {machine['processor']} ({machine['system']}), {threads}, torch {machine['torch']}, "
        f"DGL {machine['dgl']}, Numba {machine['numba']}; allocator: {machine['allocator']}. Measured in the same run: "
        f"copying {ceilings['copy_gb_s']:.1f} GB/s (bytes read and written), matrix products "
        f"{ceilings['float32_gflop_s']:,.0f} GFLOP/s in float32 and {ceilings['bfloat16_gflop_s']:,.0f} in bfloat16."
    ]
    routing = [table for work in ("routing", "sparse") for table in found["works"][work]["tables"]]
    parts.append("Routing, ms (in brackets: times as fast as engine dgl):\n\n" + _side_by_side(routing, _timed))
    memory = found["works"]["memory"]["tables"]
    said = "Peak memory of forward+backward above what was there before, MB (of it the inputs' gradients):\n\n"
    parts.append(said + _side_by_side(memory, lambda n: f"{n['total']:,.1f} ({n['gradients']:,.1f})"))
    growth = _by_size(found["works"]["growth"]["tables"][0]["rows"])
    said = "Engine fused as the sparse graph grows, forward+backward, ns per edge:\n\n"
    parts.append(said + _side_by_side(growth, lambda n: f"{n['median']:,.0f} ({n['low']:,.0f} to {n['high']:,.0f})"))
    steps = found["works"]["train"]["tables"]
    said = f"Training steps ({steps[0]['about']}), images/s (times broadcast; share of the bfloat16 GEMM rate):\n\n"
    parts.append(said + _side_by_side(steps, lambda n: f"{n['speed']:,.0f} ({n['ratio']:.1f}x; {n['gemm_share']:.0%})"))
    verdicts = {True: "met", False: "**missed**", None: "not measured"}
    lines = ["| target | wanted | got | |", "|---|---|---|---|"]
    for target in (target for work in found["works"].values() for target in work["targets"]):
        lines.append(f"| {target['says']} | {target['wanted']} | {target['said']} | {verdicts[target['met']]} |")
    return "\n\n".join([*parts, "\n".join(lines)])


def example_tables(results: list[dict]) -> str:
    """What ``graphcaps example`` found: one table per data set, the margins, and how it was done."""
    parts = []
    for found in results:
        lines = ["| | test accuracy | validation | parameters | epochs | settings |", "|---|---|---|---|---|---|"]
        for row in found["rows"]:
            settings, times = next(iter(row["chosen"].items()))
            settings += f" ({times} of {sum(row['chosen'].values())} folds)" * (len(row["chosen"]) > 1)
            lines.append(
                f"| {row['name']} | **{row['test_mean'] * 100:.2f}** +- {row['test_sd'] * 100:.2f} | "
                f"{row['validation'] * 100:.2f} | {row['parameters']:,} | {row['epochs']:.0f} | {settings} |"
            )
        margins = "; ".join(
            f"{name} {over['mean'] * 100:+.2f} +- {over['standard_error'] * 100:.2f}"
            for name, over in found["margins"].items()
        )
        parts += [
            f"`{found['command']}`, {found['minutes']:.1f} min in {found['processes']} processes of one thread:",
            "\n".join(lines),
            f"Margins and their standard errors, points: {margins}. {found['protocol']}",
        ]
    return "\n\n".join(parts)


def nodes_table(found: dict) -> str:
    """What a full-graph training step of CapsuleConv takes."""
    machine, (table,) = found["machine"], found["works"]["nodes"]["tables"]
    lines = [
        f"`{found['command']}` on {machine['processor']}, {machine['threads']} threads: {table['about']}.",
        "",
        "| engine and size | s a step | peak memory, MB |",
        "|---|---|---|",
    ]
    for row in table["rows"]:
        seconds, total = (row["numbers"].get(key) for key in ("median", "total"))
        cells = f"{seconds / 1000:,.1f} | {total:,.0f}" if row["numbers"] else f"{row['note']} | -"
        lines.append(f"| {row['name']} | {cells} |")
    return "\n".join(lines)


def _by_size(rows: list[dict]) -> list[dict]:
    """Rows named ``order, size`` as a table per size, with a row per order."""
    sizes = list(dict.fromkeys(row["name"].partition(", ")[2] for row in rows))
    parts = {size: [row for row in rows if row["name"].endswith(f", {size}")] for size in sizes}
    return [
        {"name": size, "rows": [{**row, "name": row["name"].partition(", ")[0]} for row in part]}
        for size, part in parts.items()
    ]


def _timed(numbers: dict) -> str:
    return f"{numbers['median']:,.1f} ({numbers['ratio']:.1f}x)"


def _side_by_side(tables: list[dict], cell) -> str:
    """One column per table, one line per row name; a row that is another algorithm somewhere is starred there."""
    names = list(dict.fromkeys(row["name"] for table in tables for row in table["rows"]))
    lines = ["| | " + " | ".join(table["name"] for table in tables) + " |", "|---" * (1 + len(tables)) + "|"]
    for name in names:
        rows = [next((row for row in table["rows"] if row["name"] == name), None) for table in tables]
        cells = [
            cell(row["numbers"]) + " *" * row["another_algorithm"] if row and row["numbers"] else "-" for row in rows
        ]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def compare_table(plan: str) -> str:
    """What ``graphcaps compare PLAN`` measured."""
    found = measured(plan)
    said = f"{found['trained']} of {found['asked']} trainings, accuracies in %, mean +- standard deviation over seeds."
    return f"{as_markdown(found)}\n\n{said}"


def tables() -> dict[str, str]:
    """Name of the marker -> the text between it and the next ``<!-- end -->``."""
    return {
        "train": train_table(json.loads(TRAIN.read_text())),
        "prune": prune_table(json.loads(PRUNE.read_text())),
        "transformed": transformed_tables(TRANSFORMED),
        "compare": compare_table("routings"),
        "compare40": compare_table("routings40"),
        "bench": bench_tables(json.loads(BENCH.read_text())),
        "nodes": nodes_table(json.loads(NODES.read_text())),
        "examples": example_tables([json.loads(path.read_text()) for path in EXAMPLES]),
    }


def with_tables(text: str) -> str:
    """The README's text with every table made anew."""
    for name, table in tables().items():
        pattern = re.compile(rf"(<!-- table: {name} -->\n).*?(<!-- end -->)", re.DOTALL)
        text, count = pattern.subn(lambda match, table=table: f"{match[1]}{table}\n{match[2]}", text)
        if count != 1:
            raise SystemExit(f"README.md: expected one marker '<!-- table: {name} -->', got {count}")
    return text


if __name__ == "__main__":
    if sys.argv[1:]:
        take(sys.argv[1:])
    README.write_text(with_tables(README.read_text()))
