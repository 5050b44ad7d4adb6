"""Makes the tables of the README and of docs/, from committed results and from the code, and takes new results in.

A table stands between ``<!-- table: NAME -->`` and ``<!-- end -->``; one may stand on several pages.

python docs/tables.py                 write every table anew
python docs/tables.py runs/NAME ...   first add these runs' result.json to docs/results/train.json
"""

from __future__ import annotations

import ast
import functools
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from graphcaps.compare.plan import measured
from graphcaps.compare.table import as_markdown
from graphcaps.examples.table import information, told
from graphcaps.matters.table import as_markdown as matters_table

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
RESULTS = ROOT / "docs" / "results"
TRAIN = RESULTS / "train.json"
PRUNE = RESULTS / "prune.json"  # what graphcaps prune wrote
TRANSFORMED = RESULTS / "evaluate"  # what graphcaps evaluate --on wrote
BENCH = RESULTS / "bench-cpu.json"  # what graphcaps bench --json wrote
FACTORS, MOTIFS = RESULTS / "factors.json", RESULTS / "motifs.json"  # what graphcaps example --json wrote
MATTERS = RESULTS / "matters.json"  # what graphcaps matters wrote
MARKED = re.compile(r"(<!-- table: ([\w-]+) -->\n).*?(<!-- end -->)", re.DOTALL)


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
            f"| {_network(row)} | {row['dataset']} | {row['epochs']} | **{row['test_accuracy']:.2%}** ({low:.2%} to "
            f"{high:.2%}) | {wrong} of {row['test_images']:,} | {row['parameters']:,} | {minutes} | "
            f"{device} | `{row['command']}` (seed {row['seed']}, commit {row['commit']}) |"
        )
    return "\n".join(lines)


def _network(row: dict) -> str:
    """The model of a run, and its routing where that was asked for."""
    asked = re.search(r"--routing (\w+)", row["command"])
    return f"{row['model']}, {asked[1]}" if asked else row["model"]


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


def transformed_table(folder: Path) -> str:
    """What ``graphcaps evaluate --on`` measured on transformed test images: a line per transform."""
    lines = ["| test images | severity | accuracy, % (mean winning score); bold: as they are |", "|---|---|---|"]
    for name in ("rotated", "shifted", "noisy", "scrambled"):
        found = json.loads((folder / f"{name}.json").read_text())
        cells = [f"{row['name']}: {100 * row['accuracy']:.2f} ({row['winning_score']:.2f})" for row in found["rows"]]
        cells[found["clean"]] = f"**{cells[found['clean']]}**"
        lines.append(f"| {name} | {found['says']} | {', '.join(cells)} |")
    return "\n".join(lines)


def equivariance_table(folder: Path) -> str:
    """What ``graphcaps evaluate --on equivariance`` measured: a line per parameter."""
    lines = [
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
    return "\n".join([*lines, "", f"{found['images']:,} images, {spread}."])


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
        spent = f"{found['minutes']:.1f} min in {found['processes']} processes of one thread"
        if "kept" in found:
            spent += f", with {found['kept']} trainings kept from before"
        parts.append(f"`{found['command']}`, {spent}:")
        for part in found.get("parts", [found]):
            parts += [f"{part[of]} {of}:" for of in ("factors", "motifs") if of in part]
            parts += _example_table(part, found.get("measure", "accuracy"))
    return "\n\n".join(parts)


def _example_table(part: dict, measure: str) -> list[str]:
    lines = [f"| | test {measure} | validation | parameters | epochs | settings |", "|---|---|---|---|---|---|"]
    for row in part["rows"]:
        settings, times = next(iter(row["chosen"].items()))
        settings += f" ({times} of {sum(row['chosen'].values())} folds)" * (len(row["chosen"]) > 1)
        lines.append(
            f"| {row['name']} | **{row['test_mean'] * 100:.2f}** +- {row['test_sd'] * 100:.2f} | "
            f"{row['validation'] * 100:.2f} | {row['parameters']:,} | {row['epochs']:.0f} | {settings} |"
        )
    margins = "; ".join(
        f"{name} {over['mean'] * 100:+.2f} +- {over['standard_error'] * 100:.2f}"
        for name, over in part["margins"].items()
    )
    known = "".join(f" {row['name'].capitalize()}: {information(row)}." for row in part["rows"] if "recovered" in row)
    if "known" in part:
        words = told(part["known"], "micro-F1")
        known += f" {words[0].upper()}{words[1:]}."
    return ["\n".join(lines), f"Margins and their standard errors, points: {margins}.{known} {part['protocol']}"]


def nodes_table(found: dict) -> str:
    """What a full-graph training step takes, of CapsuleConv and of other layers."""
    machine, table = found["machine"], found["works"]["nodes"]["tables"][-1]
    threads = f"{machine['threads']} thread{'s' if machine['threads'] > 1 else ''}"
    basis = {key: _numbers_of(table, table["reference"])[key] for key in ("median", "total")}
    lines = [
        f"`{found['command']}` on {machine['processor']}, {threads}: {table['about']}.",
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
    (table,) = found["works"]["busy"]["tables"]
    lines = ["| | ms a step, quartiles | images/s |", "|---|---|---|"]
    for row in table["rows"]:
        n = row["numbers"]
        lines.append(f"| {row['name']} | {n['median']:.1f}, {n['low']:.1f} to {n['high']:.1f} | {n['speed']:,.0f} |")
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


IN_SUMMARY = ("uniform", "dynamic", "spherical", "no capsules")  # columns of the README's table


def modules() -> dict[str, Path]:
    """Name of each module as it is imported -> its file."""
    found = {}
    for file in sorted([*(ROOT / "graphcaps").rglob("*.py"), *(ROOT / "viz").rglob("*.py")]):
        parts = list(file.relative_to(ROOT).with_suffix("").parts)
        parts = ["graphcaps", *parts] if parts[0] == "viz" else parts  # viz/ is imported as graphcaps.viz
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = file
    return found


@functools.cache
def parsed(file: Path) -> ast.Module:
    return ast.parse(file.read_text(encoding="utf-8"))


def purpose(file: Path) -> str:
    """The first line of a module's docstring."""
    said = ast.get_docstring(parsed(file)) or ""
    return said.partition("\n")[0].replace("``", "`").replace("|", "\\|")


def imported_by(name: str, known: dict[str, Path]) -> Iterator[str]:
    """The package's modules that one module imports, in functions too, but for type checkers' sake alone."""
    tree = parsed(known[name])
    for_types = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        for line in node.body
        for inner in ast.walk(line)
    }
    inside = name.split(".") if known[name].name == "__init__.py" else name.split(".")[:-1]
    for node in ast.walk(tree):
        if not isinstance(node, ast.ImportFrom) or id(node) in for_types:
            continue
        above = inside[: len(inside) + 1 - node.level] if node.level else []
        source = ".".join([*above, *([node.module] if node.module else [])])
        for alias in node.names:
            for target in (f"{source}.{alias.name}", source):
                if target in known:
                    yield target
                    break


def rooms() -> dict[str, set[str]]:
    """Each room of the house (a module or package right below graphcaps) -> the rooms it imports; lowest rooms first.

    Raises:
        SystemExit: rooms import each other in a circle.
    """
    known = modules()
    arrows: dict[str, set[str]] = {}
    for name in known:
        room = name.split(".")[1:2]
        if room and room[0] not in ("__main__", "_version"):
            into = {target.split(".")[1] for target in imported_by(name, known) if target.count(".")}
            arrows.setdefault(room[0], set()).update(into - {room[0], "_version"})
    ordered: dict[str, set[str]] = {}
    while len(ordered) < len(arrows):
        free = sorted(room for room, needs in arrows.items() if room not in ordered and needs <= ordered.keys())
        if not free:
            raise SystemExit(f"these rooms import each other in a circle: {', '.join(sorted(arrows.keys() - ordered))}")
        ordered |= {room: arrows[room] for room in free}
    return ordered


def rooms_table() -> str:
    """The rooms, lowest first: what each is and which others it imports."""
    known, lines = modules(), ["| room | what it is | imports |", "|---|---|---|"]
    for room, needs in rooms().items():
        file = known[f"graphcaps.{room}"]
        package = file.parent if file.name == "__init__.py" else file
        path = f"{package.relative_to(ROOT)}" + "/" * (package != file)
        lines.append(f"| `{path}` | {purpose(file)} | {', '.join(sorted(needs)) or '-'} |")
    return "\n".join(lines)


def tables() -> dict[str, str]:
    """Name of the marker -> the text between it and the next ``<!-- end -->``."""
    matters = json.loads(MATTERS.read_text())
    return {
        "summary": matters_table(matters, IN_SUMMARY),
        "train": train_table(json.loads(TRAIN.read_text())),
        "prune": prune_table(json.loads(PRUNE.read_text())),
        "transformed": transformed_table(TRANSFORMED),
        "equivariance": equivariance_table(TRANSFORMED),
        "compare": compare_table("routings"),
        "affnist": compare_table("affnist"),
        "parts": compare_table("parts"),
        "bench": bench_tables(json.loads(BENCH.read_text())),
        "nodes": nodes_table(json.loads(BENCH.read_text())),
        "busy": busy_table(json.loads(BENCH.read_text())),
        "factors": example_tables([json.loads(FACTORS.read_text())]),
        "motifs": example_tables([json.loads(MOTIFS.read_text())]),
        "matters": matters_table(matters),
        "rooms": rooms_table(),
    }


def with_tables(pages: dict[Path, str]) -> dict[Path, str]:
    """The pages' texts with every table made anew; each table must stand somewhere, and no marker be unknown."""
    made, used = tables(), set()

    def fill(match: re.Match) -> str:
        if match[2] not in made:
            raise SystemExit(f"expected a table of {', '.join(made)}, got the marker '<!-- table: {match[2]} -->'")
        used.add(match[2])
        return f"{match[1]}{made[match[2]]}\n{match[3]}"

    filled = {page: MARKED.sub(fill, text) for page, text in pages.items()}
    if used != made.keys():
        raise SystemExit(f"expected a marker for each table, got none for {', '.join(sorted(made.keys() - used))}")
    return filled


if __name__ == "__main__":
    if sys.argv[1:]:
        take(sys.argv[1:])
    for page, text in with_tables({page: page.read_text(encoding="utf-8") for page in PAGES}).items():
        page.write_text(text, encoding="utf-8")
