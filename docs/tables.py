"""Makes the tables of the README and of docs/, from committed results and from the code: ``python docs/tables.py``.

A table stands between ``<!-- table: NAME -->`` and ``<!-- end -->``; one may stand on several pages.
"""

from __future__ import annotations

import ast
import functools
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))  # for experiments, which are not installed

from experiments import table  # noqa: E402
from experiments.bench import markdown as bench  # noqa: E402
from graphcaps.training.run_folder import Run, pretrained_names  # noqa: E402

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
MARKED = re.compile(r"(<!-- table: ([\w-]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def plan_table(name: str) -> str:
    """What the trainings of a plan have given, and how many there are."""
    found = table.read(name)
    about = "trainings, accuracies in %, mean +- standard deviation over seeds."
    return f"{table.images(found)}\n\n{found['trained']} of {found['asked']} {about}"


# The README's table: some rows and columns of the one on docs/matters.md.
README_COLUMNS = ("uniform", "dynamic", "spherical", "no capsules")
README_ROWS = ("MNIST", "the same digits, moved further than in training", "Cora", "8 latent factors")


def readme_table(overview: dict) -> str:
    """What the README shows of all tasks."""
    rows = [
        {**row, "title": row["title"].replace("the same digits", "digits in 40 x 40")}
        for row in overview["rows"]
        if row["title"] in README_ROWS
    ]
    return table.overview({**overview, "rows": rows}, README_COLUMNS)


def pretrained_table() -> str:
    """The networks that come with graphcaps, by the heads of their files."""
    lines = [
        "| name | test images right | before rounding | coupling entropy | bytes | command |",
        "|---|---|---|---|---|---|",
    ]
    for name in pretrained_names():
        run = Run.open(name)
        numbers = run.result() or {}
        right = f"{numbers['test_correct']:,} of {numbers['test_images']:,}"
        entropy, size = f"{numbers['weighted_entropy']:.1%}", f"{run.checkpoint('best').stat().st_size:,}"
        made = f"`{numbers['command']}` (seed {numbers['seed']})"
        lines.append(f"| `{name}` | {right} | {numbers['test_correct_in_float32']:,} | {entropy} | {size} | {made} |")
    return "\n".join(lines)


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
        if room and room[0] != "__main__":
            into = {target.split(".")[1] for target in imported_by(name, known) if target.count(".")}
            arrows.setdefault(room[0], set()).update(into - {room[0]})
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
    overview, benchmarks = table.read("overview"), table.read("bench-cpu")
    return {
        "readme": readme_table(overview),
        "train": table.trainings(table.read("trainings")),
        "prune": table.pruning(table.read("pruning")),
        "transformed": table.transformed(table.RESULTS / "evaluate"),
        "equivariance": table.equivariance(table.RESULTS / "evaluate"),
        "compare": plan_table("routings"),
        "affnist": plan_table("affnist"),
        "parts": plan_table("parts"),
        "bench": bench.bench_tables(benchmarks),
        "nodes": bench.nodes_table(benchmarks),
        "busy": bench.busy_table(benchmarks),
        "factors": table.graphs(table.read("factors")),
        "motifs": table.graphs(table.read("motifs")),
        "labels": table.labels(table.read("labels")),
        "defaults": table.defaults(table.read("defaults")),
        "relations": table.relations(table.read("relations")),
        "drawings": table.drawings(table.read("drawings")),
        "matters": table.overview(overview),
        "pretrained": pretrained_table(),
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
    for page, text in with_tables({page: page.read_text(encoding="utf-8") for page in PAGES}).items():
        page.write_text(text, encoding="utf-8")
