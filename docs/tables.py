"""Makes the tables in the README and in docs/, from committed results and from the code: ``python docs/tables.py``.

A page contains a table between ``<!-- table: NAME -->`` and ``<!-- end -->``. Several pages may contain the same table.
"""

from __future__ import annotations

import ast
import functools
import re
import statistics
import sys
from collections.abc import Container, Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))  # for experiments, which are not installed

from experiments import table  # noqa: E402
from experiments.bench import markdown as bench  # noqa: E402
from graphcaps.images.training.run_folder import Run, pretrained_names  # noqa: E402

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
MARKED = re.compile(r"(<!-- table: ([\w-]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def select(text: str, columns: Sequence[int], rows: Container[str] = (), without: Container[str] = ()) -> str:
    """Select columns of a Markdown table, and the rows whose first cell is in ``rows`` and not in ``without``.

    An empty ``rows`` selects all rows. Lines outside the table are kept.

    >>> print(select("| a | b | c |\\n|---|---|---|\\n| x | 1 | 2 |\\n| y | 3 | 4 |", (0, 2), without=("x",)))
    | a | c |
    |---|---|
    | y | 4 |
    """
    kept, number = [], 0
    for line in text.splitlines():
        number = number + 1 if line.startswith("|") else 0
        if not number:
            kept.append(line)
            continue
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if number > 2 and (cells[0] in without or (rows and cells[0] not in rows)):
            continue
        chosen = [cells[i] for i in columns]
        kept.append("|---" * len(chosen) + "|" if number == 2 else f"| {' | '.join(chosen)} |")
    return "\n".join(kept)


def mnist_table() -> str:
    """All measured accuracies on MNIST: a row per network and command, with equal couplings and routings in columns."""
    lines = [
        "| network | epochs | seeds | uniform | dynamic | others | trained by |",
        "|---|---|---|---|---|---|---|",
    ]

    def accuracy(each: Sequence[float], against_uniform: dict | None = None) -> str:
        text = f"{100 * statistics.fmean(each):.2f}" + (f"±{100 * statistics.stdev(each):.2f}" if each[1:] else "")
        if against_uniform is None:
            return text
        gap, low, high = (100 * number for number in (against_uniform["difference"], *against_uniform["interval"]))
        return f"{text}, {gap:+.2f} ({low:+.2f} to {high:+.2f})"

    def add(network: str, command: str, epochs: int, seeds: int, cells: dict[str, str]) -> None:
        others = "<br>".join(f"{name}: {cell}" for name, cell in cells.items() if name not in ("uniform", "dynamic"))
        shown = f"0 to {seeds - 1}" if seeds > 1 else "0"
        pair = f"{cells.get('uniform', '-')} | {cells.get('dynamic', '-')}"
        lines.append(f"| {network} | {epochs} | {shown} | {pair} | {others or '-'} | `{command}` |")

    trained: dict[tuple, dict[str, list[float]]] = {}
    rows = table.read("trainings")
    for row in (row for row in rows if row["dataset"] == "mnist" and "--epochs 5" not in row["command"]):
        routing = re.search(r" --routing (\w+)", row["command"])
        command = re.sub(r" --(seed|device) \w+", "", row["command"]).replace(" --routing uniform", "")
        network = trained.setdefault((f"`{row['model']}`", command, row["epochs"]), {})
        network.setdefault(routing[1] if routing else "dynamic", []).append(row["test_accuracy"])
    for (network, command, epochs), routings in trained.items():
        cells = {name: accuracy(each) for name, each in routings.items()}
        add(network, command, epochs, max(map(len, routings.values())), cells)
    numbers = Run.open("mnist").result() or {}
    right = accuracy([numbers["test_correct"] / numbers["test_images"]])
    add("`mnist`, which comes with graphcaps", numbers["command"], 10, 1, {"dynamic": right})

    for plan in ("parts", "routings"):
        by_rate: dict[str, list[dict]] = {}
        for row in table.read(plan)["rows"]:
            rate = row["settings"].get("learning_rate")
            by_rate.setdefault(f", rate {rate}" if rate else "", []).append(row)
        for rate, rows in by_rate.items():
            first, seeds = rows[0]["settings"], len(rows[0]["seeds"])
            each = {row["name"]: [seed["accuracy"]["test"] for seed in row["seeds"]] for row in rows}
            cells = {name.partition(",")[0]: accuracy(accuracies) for name, accuracies in each.items()}
            add(f"`{first['model']}`{rate}", f"python -m experiments {plan}", first["epochs"], seeds, cells)
    (row,) = (row for row in table.read("overview")["rows"] if row["task"] == "mnist")
    shown = [cell for cells in row["cells"].values() for cell in cells]
    each = {cell["name"]: accuracy(cell["each"], cell if "difference" in cell else None) for cell in shown}
    add("`parts`", row["command"], 3, row["of"], each)
    return "\n".join(lines)


def affnist_table() -> str:
    """Accuracies on affNIST-style images for networks trained on digits anywhere in the frame."""
    titles = "| network | parameters | all 10,000, % | against uniform | within, % | beyond, % | images/s |"
    lines = select(table.images(table.read("affnist")), (0, 1, 6, 7, 9, 12, 16)).splitlines()
    return "\n".join([titles, *lines[1:]])


def relations_table() -> str:
    """The results of each network: a column per graph, with task and information. Recorded graphs come first."""
    graphs: dict[str, dict[str, str]] = {}
    for line in table.relations(table.read("relations")).splitlines()[4:]:
        graph, network, task, information = (cell.strip() for cell in line.strip("|").split("|")[:4])
        both = [cell for cell in (task, information.partition("±")[0]) if cell != "-"]
        graphs.setdefault(graph or list(graphs)[-1], {})[network] = ", ".join(both)

    def of(shown: Sequence[str]) -> str:
        names = dict.fromkeys(name for graph in shown for name in graphs[graph])
        rows = [[name, *(graphs[graph].get(name, "-") for graph in shown)] for name in names]
        return table.lines(" | ".join(["network", *shown]), rows)

    published = [graph for graph in graphs if graph.endswith("published")]
    return f"{of([graph for graph in graphs if 'factors' not in graph])}\n\n{of(published)}"


def known_table() -> str:
    """The methods without features, and those with features. A cell has a score for each share of known nodes."""
    scores: dict[str, dict[str, dict[float, str]]] = {}
    for row in table.read("known")["known"]:
        found = table.percent(*list(table.spread(row["test"]).values())[:2])
        scores.setdefault(row["data"], {}).setdefault(row["name"], {})[row["share"]] = found

    def of(names: Sequence[str], graphs: Sequence[str]) -> str:
        def cell(graph: str, name: str) -> str:
            found = scores[graph].get(name, {})
            return ", ".join(found.get(share, "-") for share in (0.1, 0.3, 0.6)) if found else "-"

        rows = [[graph, *(cell(graph, name) for name in names)] for graph in graphs]
        return table.lines(" | ".join(["graph", *names]), rows)

    bare = "BeliefConv", "BeliefConv, trained", "belief propagation", "label propagation"
    featured = "perceptron", "perceptron, BeliefConv", "Correct and Smooth", "APPNP", "GCN", "GAT", "SAGE"
    left_out = "4 factors, published", "8 factors, drawn", "10 factors, drawn"
    fitted = [graph for graph, of_graph in scores.items() if "GCN" in of_graph and "factors" not in graph]
    first = of(bare, [graph for graph in scores if graph not in left_out])
    return f"Edges and classes alone:\n\n{first}\n\nFeatures too:\n\n{of(featured, fitted)}"


def defaults_table() -> str:
    """How much better the default routing of graph layers is than equal couplings."""
    text = select(table.defaults(table.read("defaults")), range(4)).replace("kappa from 0.1", "default")
    return re.sub(r"\| [\d.]+±[\d.]+, ", "| ", text)


def overview_table(columns: Sequence[str] = (), rows: Container[str] = ()) -> str:
    """The tasks, or only some of them. MNIST is left out because it has its own table."""
    found = table.read("overview")
    chosen = [row for row in found["rows"] if row["task"] != "mnist" and (not rows or row["title"] in rows)]
    if rows:  # the row that "the same digits" refers to may be missing, so name them
        chosen = [{**row, "title": row["title"].replace("the same digits", "digits in 40 x 40")} for row in chosen]
    return table.overview({**found, "rows": chosen}, columns)


def bench_table(found: dict) -> str:
    """The tables of the benchmark, and the targets that were missed."""
    *parts, targets = bench.bench_tables(found, ("routing", "sparse", "memory", "training")).split("\n\n")
    title, rule, *rows = targets.splitlines()
    missed = [row for row in rows if "**missed**" in row]
    summary = f"{len(rows) - len(missed)} of {len(rows)} targets were met. These were missed:"
    shown = select("\n".join([title, rule, *missed]), (0, 1, 2))
    return "\n\n".join([*parts, summary, shown])


def pretrained_table() -> str:
    """The networks that come with graphcaps, described from their files."""
    lines = ["| name | trained by | coupling entropy | bytes |", "|---|---|---|---|"]
    for name in pretrained_names():
        run = Run.open(name)
        numbers = run.result() or {}
        entropy, size = f"{numbers['weighted_entropy']:.1%}", f"{run.checkpoint('best').stat().st_size:,}"
        lines.append(f"| `{name}` | `{numbers['command']}` (seed {numbers['seed']}) | {entropy} | {size} |")
    return "\n".join(lines)


def modules() -> dict[str, Path]:
    """The name by which each module is imported -> its file."""
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


def real_imports(file: Path) -> list[ast.Import | ast.ImportFrom]:
    """A module's imports, also inside functions, but not those only for type checkers."""
    tree = parsed(file)
    for_types = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        for line in node.body
        for inner in ast.walk(line)
    }
    imports = [node for node in ast.walk(tree) if isinstance(node, (ast.Import, ast.ImportFrom))]
    return [node for node in imports if id(node) not in for_types]


def imported_by(name: str, known: dict[str, Path]) -> Iterator[str]:
    """The package's modules that a module imports, also inside functions, but not those only for type checkers."""
    inside = name.split(".") if known[name].name == "__init__.py" else name.split(".")[:-1]
    for node in real_imports(known[name]):
        if not isinstance(node, ast.ImportFrom):
            continue
        above = inside[: len(inside) + 1 - node.level] if node.level else []
        source = ".".join([*above, *([node.module] if node.module else [])])
        for alias in node.names:
            for target in (f"{source}.{alias.name}", source):
                if target in known:
                    yield target
                    break


def foreign(file: Path) -> set[str]:
    """The libraries that a module imports, also inside functions."""
    imports = real_imports(file)
    names = [alias.name for node in imports if isinstance(node, ast.Import) for alias in node.names]
    names += [node.module or "" for node in imports if isinstance(node, ast.ImportFrom) and not node.level]
    return {name.partition(".")[0] for name in names}


def rooms() -> dict[str, set[str]]:
    """Each room -> the rooms that it imports; a room comes after all rooms that it imports.

    A room is a module or package directly inside graphcaps.

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
    """The rooms, in the order of ``rooms``, and what each one is."""
    known, lines = modules(), ["| room | what it is |", "|---|---|"]
    for room in rooms():
        file = known[f"graphcaps.{room}"]
        package = file.parent if file.name == "__init__.py" else file
        path = f"{package.relative_to(ROOT)}" + "/" * (package != file)
        lines.append(f"| `{path}` | {re.split(r'[;.](?: |$)', purpose(file))[0]} |")
    return "\n".join(lines)


README_COLUMNS = ("uniform", "dynamic", "spherical", "no capsules")
README_ROWS = ("the same digits, moved further than in training", "Cora", "8 latent factors")


def tables() -> dict[str, str]:
    """The name in a marker -> the text between this marker and the next ``<!-- end -->``."""
    benchmarks = table.read("bench-cpu")
    return {
        "readme": overview_table(README_COLUMNS, README_ROWS),
        "mnist": mnist_table(),
        "affnist": affnist_table(),
        "transformed": table.transformed(table.RESULTS / "evaluate"),
        "bench": bench_table(benchmarks),
        "nodes": select(bench.of_benchmark("nodes", benchmarks), (0, 2)),  # the larger graph alone
        "known": known_table(),
        "defaults": defaults_table(),
        "interests": select(table.interests(table.read("interests")), (0, 1)),
        "relations": relations_table(),
        "matters": overview_table(("uniform", "dynamic", "spherical", "attention", "EM", "no capsules")),
        "pretrained": pretrained_table(),
        "rooms": rooms_table(),
    }


def with_tables(pages: dict[Path, str]) -> dict[Path, str]:
    """The texts of the pages with all tables replaced. Each table must be on a page, and each marker must be known."""
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
