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

from experiments import propagation, table  # noqa: E402
from experiments.bench import tables as bench  # noqa: E402
from experiments.tasks import defaults, known, overview, relations  # noqa: E402
from graphcaps.images.training.run_folder import Run, pretrained_names  # noqa: E402

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
MARKED = re.compile(r"(<!-- table: ([\w-]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def mnist_table() -> str:
    """All measured accuracies on MNIST: a row per network and command, with equal couplings and routings in columns."""
    rows = []

    def add(network: str, command: str, epochs: int, seeds: int, cells: dict[str, str]) -> None:
        others = "<br>".join(f"{name}: {cell}" for name, cell in cells.items() if name not in ("uniform", "dynamic"))
        row = {"network": network, "epochs": epochs, "seeds": f"0 to {seeds - 1}" if seeds > 1 else "0"}
        row |= {routing: cells.get(routing, "-") for routing in ("uniform", "dynamic")}
        rows.append(row | {"others": others or "-", "trained by": f"`{command}`"})

    trained: dict[tuple, dict[str, list[float]]] = {}
    for row in table.read("trainings"):
        if row["dataset"] == "mnist" and "--epochs 5" not in row["command"]:
            routing = re.search(r" --routing (\w+)", row["command"])
            command = re.sub(r" --(seed|device) \w+", "", row["command"]).replace(" --routing uniform", "")
            network = trained.setdefault((f"`{row['model']}`", command, row["epochs"]), {})
            network.setdefault(routing[1] if routing else "dynamic", []).append(row["test_accuracy"])
    for network, routings in trained.items():
        most = max(map(len, routings.values()))
        fewer = {name: " (seed 0)" * (len(each) == 1 < most) for name, each in routings.items()}
        add(*network, most, {name: accuracy(each) + fewer[name] for name, each in routings.items()})
    numbers = Run.open("mnist").result() or {}
    share = accuracy([numbers["test_correct"] / numbers["test_images"]])
    add("`mnist`, which comes with graphcaps", numbers["command"], numbers["epochs"], 1, {"dynamic": share})

    for plan in ("parts", "routings"):
        by_rate: dict[str, list[dict]] = {}
        for row in table.read(plan)["rows"]:
            rate = row["settings"].get("learning_rate")
            by_rate.setdefault(f", rate {rate}" if rate else "", []).append(row)
        for rate, of_rate in by_rate.items():
            first, seeds = of_rate[0]["settings"], len(of_rate[0]["seeds"])
            accuracies = {row["name"]: [seed["accuracy"]["test"] for seed in row["seeds"]] for row in of_rate}
            cells = {name.partition(",")[0]: accuracy(each) for name, each in accuracies.items()}
            add(f"`{first['model']}`{rate}", f"python -m experiments {plan}", first["epochs"], seeds, cells)
    (row,) = (row for row in table.read("overview")["rows"] if row["task"] == "mnist")
    networks = [network for column in row["cells"].values() for network in column]
    cells = {network["name"]: accuracy(network["each"], network) for network in networks}
    add("`parts`", row["command"], 3, row["of"], cells)
    return table.table(rows)


def accuracy(accuracies: Sequence[float], gap: dict | None = None) -> str:
    """Mean and standard deviation, and the difference to equal couplings if ``gap`` has one."""
    mean, sd, _ = table.spread(accuracies).values()
    difference = [table.interval(gap["difference"], *gap["interval"])] if gap and "difference" in gap else []
    return ", ".join([table.percent(mean, sd), *difference])


def affnist_table() -> str:
    """Accuracies on affNIST-style images for networks trained on digits anywhere in the frame."""
    rows = []
    for row in table.read("affnist")["rows"]:
        whole, within, beyond = (row["images"][f"affnist{part}"] for part in ("", " within", " beyond"))
        against = table.interval(whole["difference"], *whole["interval"]) if "difference" in whole else "-"
        cells = {"network": row["name"], "parameters": f"{row['parameters']:,}"}
        cells |= {"all 10,000, %": table.percent(whole["mean"], whole["sd"]), "against uniform": against}
        cells |= {"within, %": table.percent(within["mean"], within["sd"])}
        cells |= {"beyond, %": table.percent(beyond["mean"], beyond["sd"])}
        speed = statistics.fmean(seed["images_per_second"] for seed in row["seeds"])
        rows.append(cells | {"images/s": f"{speed:,.0f}"})
    return table.table(rows)


def transformed_table() -> str:
    """A row per transform of test images, from what ``python -m experiments robustness`` wrote."""
    rows = []
    for name in ("rotated", "shifted", "noisy", "scrambled"):
        result = table.read(f"evaluate/{name}")
        cells = [f"{row['name']}: {100 * row['accuracy']:.2f} ({row['winning_score']:.2f})" for row in result["rows"]]
        cells[result["clean"]] = f"**{cells[result['clean']]}**"
        scores = {"accuracy, % (mean winning score); bold: as they are": ", ".join(cells)}
        rows.append({"test images": name, "severity": result["says"], **scores})
    return table.table(rows)


def relations_table() -> str:
    """The results of each network: a column per graph, with task and information. Recorded graphs come first."""
    rows = []
    for row in table.read("relations")["relations"]:
        texts = [table.percent(row["test_mean"], row["test_sd"])] if "test_mean" in row else []
        if row.get("trained") and row["name"] != "uniform":  # equal couplings have no information
            texts.append(table.score(row["trained"]["information"] | {"sd": None}))
        rows.append({"network": row["name"], row["data"]: ", ".join(texts)})
    order = [*relations.SETTINGS, *propagation.METHODS, *relations.FLOORS]
    rows.sort(key=lambda row: order.index(row["network"]))
    recorded = [row for row in rows if "factors" not in [*row][1]]
    published = [row for row in rows if [*row][1].endswith("published") and "k-means" not in row["network"]]
    text = "\n\n".join(table.table(part, index=1) for part in (recorded, published))
    for words in ("label propagation, ", " label propagation", " belief propagation"):
        text = text.replace(words, "")
    return text


def known_table() -> str:
    """The methods without features, and those with features. A cell has a score for each share of known nodes."""
    plain, *others = known.METHODS
    best, scores = "best of the others", dict[str, dict[str, dict[float, str]]]()
    for row in table.read("known")["known"]:
        of_row = scores.setdefault(row["data"], {})
        of_row.setdefault(row["name"], {})[row["share"]] = accuracy(row["test"])
        if row["name"] in others:  # texts of two digits before the point are in the order of their numbers
            by_share = of_row.setdefault(best, {})
            by_share[row["share"]] = max(by_share.get(row["share"], ""), accuracy(row["test"]))

    def of(methods: Sequence[str], graphs: Sequence[str]) -> str:
        rows = []
        for graph in graphs:
            by_share = {method: scores[graph].get(method) for method in methods}
            texts = {
                name: ", ".join(row.get(share, "-") for share in (0.1, 0.3, 0.6))
                for name, row in by_share.items()
                if row
            }
            rows.append({"graph": graph, **texts})
        return table.table(rows, ["graph", *methods])

    featured = "perceptron", *(name for name in known.FITTED if name != "perceptron")
    fitted = [graph for graph, of_graph in scores.items() if "GCN" in of_graph and "factors" not in graph]
    first = of([plain, best], list(scores))
    return f"Edges and classes alone:\n\n{first}\n\nFeatures too:\n\n{of(featured, fitted)}"


def defaults_table() -> str:
    """How much better the default routing of graph layers is than equal couplings, in points."""
    result, rows = table.read("defaults"), []
    for cells in defaults.cells(result["defaults"]):
        *_, (name, text) = cells.items()
        rows.append(cells if name == "uniform" else cells | {"default": text.partition(", ")[2]})
    titles = "graph", "layout", "default"
    rows = [row for row in rows if "kappa from 0.5" not in row]
    return f"`{result['command']}`:\n\n{table.table(rows, titles, index=2)}"


def interests_table() -> str:
    """Recall@50 of each network."""
    result = table.read("interests")
    rows = [{"": row["name"], "Recall@50": accuracy(row["test"])} for row in result["interests"]]
    return wide_corner(f"`{result['command']}`:\n\n{table.table(rows)}")


def wide_corner(text: str) -> str:
    """The table with two blanks in its empty first cell."""
    return text.replace("| |", "|  |", 1)


def overview_table(columns: Sequence[str], titles: Container[str] = ()) -> str:
    """The tasks, or only some of them. MNIST is left out because it has its own table."""
    rows = [row for row in table.read("overview")["rows"] if row["task"] != "mnist"]
    if titles:  # the row that "the same digits" refers to may be missing, so name them
        rows = [row for row in rows if row["title"] in titles]
        rows = [{**row, "title": row["title"].replace("the same digits", "digits in 40 x 40")} for row in rows]
    return table.table(overview.cells(rows), ("task", "of", *columns))


def bench_table(result: dict) -> str:
    """The machine, and the tables of the benchmarks of routing and training."""
    names = "routing", "sparse", "training"
    return "\n\n".join([bench.about(result), *(bench.of_benchmark(name, result) for name in names)])


def pretrained_table() -> str:
    """The networks that come with graphcaps, described from their files."""
    rows = []
    for name in pretrained_names():
        run = Run.open(name)
        numbers = run.result() or {}
        entropy, size = f"{numbers['weighted_entropy']:.1%}", f"{run.checkpoint('best').stat().st_size:,}"
        command = f"`{numbers['command']}` (seed {numbers['seed']})"
        rows.append({"name": f"`{name}`", "settings of": command, "coupling entropy": entropy, "bytes": size})
    return table.table(rows)


def modules() -> dict[str, Path]:
    """The name by which each module is imported -> its file."""
    files = {}
    for file in sorted([*(ROOT / "graphcaps").rglob("*.py"), *(ROOT / "viz").rglob("*.py")]):
        parts = list(file.relative_to(ROOT).with_suffix("").parts)
        parts = ["graphcaps", *parts] if parts[0] == "viz" else parts  # viz/ is imported as graphcaps.viz
        files[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = file
    return files


@functools.cache
def parsed(file: Path) -> ast.Module:
    return ast.parse(file.read_text(encoding="utf-8"))


def purpose(file: Path) -> str:
    """The first line of a module's docstring."""
    text = ast.get_docstring(parsed(file)) or ""
    return text.partition("\n")[0].replace("``", "`").replace("|", "\\|")


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


def imported_by(name: str, files: dict[str, Path]) -> Iterator[str]:
    """The package's modules that a module imports, also inside functions, but not those only for type checkers."""
    inside = name.split(".") if files[name].name == "__init__.py" else name.split(".")[:-1]
    for node in real_imports(files[name]):
        if not isinstance(node, ast.ImportFrom):
            continue
        above = inside[: len(inside) + 1 - node.level] if node.level else []
        source = ".".join([*above, *([node.module] if node.module else [])])
        for alias in node.names:
            for target in (f"{source}.{alias.name}", source):
                if target in files:
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
    files = modules()
    arrows: dict[str, set[str]] = {}
    for name in files:
        room = name.split(".")[1:2]
        if room and room[0] != "__main__":
            into = {target.split(".")[1] for target in imported_by(name, files) if target.count(".")}
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
    files, rows = modules(), []
    for room in rooms():
        file = files[f"graphcaps.{room}"]
        package = file.parent if file.name == "__init__.py" else file
        path = f"{package.relative_to(ROOT)}" + "/" * (package != file)
        rows.append({"room": f"`{path}`", "what it is": re.split(r"[;.](?: |$)", purpose(file))[0]})
    return table.table(rows)


README_COLUMNS = ("uniform", "dynamic", "spherical", "others")
README_ROWS = ("the same digits, moved further than in training", "Cora", "8 latent factors")


def tables() -> dict[str, str]:
    """The name in a marker -> the text between this marker and the next ``<!-- end -->``."""
    benchmarks = table.read("bench-cpu")
    return {
        "readme": overview_table(README_COLUMNS, README_ROWS),
        "mnist": mnist_table(),
        "affnist": affnist_table(),
        "transformed": transformed_table(),
        "bench": bench_table(benchmarks),
        "nodes": wide_corner(bench.of_benchmark("nodes", benchmarks, slice(1, 2))),  # the larger graph alone
        "known": known_table(),
        "defaults": defaults_table(),
        "interests": interests_table(),
        "relations": relations_table(),
        "matters": overview_table(("uniform", "dynamic", "spherical", "attention", "EM", "others")),
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
