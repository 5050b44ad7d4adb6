"""``python -m experiments NAME``: train what isn't trained yet, and write its table into ``results/``."""

from __future__ import annotations

import argparse
import json
import platform
import runpy
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from experiments import table
from experiments.plan import plan_names, read_plan
from graphcaps.cli.threads import set_number, set_waiting
from graphcaps.errors import GraphcapsError, InputError, expect

ON_GRAPHS = {
    "cora": "classes of papers: CapsuleConv beside GCN and GAT, 20 seeds; a quarter of an hour on two cores",
    "mutag": "classes of molecules: CapsuleReadout beside mean and attention pooling, 10 folds; half an hour",
    "proteins": "the same on PROTEINS; half an hour",
    "factors": "classes of nodes whose edges 4 or 8 latent factors generated, 10 graphs each; hours",
    "relations": "whether couplings find the kinds of edges: proteins, concepts, latent factors, 5 seeds; an hour",
    "defaults": "whether routing by default costs anything: 17 graphs and layouts, 3 seeds; two hours",
    "labels": "factors, with the training nodes' classes given: BeliefConv beside the others, 5 seeds; two hours",
    "motifs": "which of 4 or 6 shapes a graph is made of, 5 sets each; an hour",
}
ROWS = ("defaults", "labels", "relations")
"""Those whose result is rows."""
OTHERS = {
    "overview": "all tasks by routings, beside equal couplings and no capsules; 15 hours of one core, by estimate",
    "pruning RUN": "accuracy with only the strongest edges of each child, of a run folder of compact, paper or deep",
    "drawings RUN": "what predict says of drawings on any ground, of a run on MNIST; half an hour, and needs notMNIST",
    "strokes": "what capsules of parts and deep say of the pen strokes of MNIST's digits, 3 seeds; half an hour",
    "pretrained RUN": "a run's network as the file that comes with graphcaps; a folder of models/weights",
    "trainings RUN...": "take result.json of these run folders into results/trainings.json",
    "bench NAME": "times and memory; its own options: python -m experiments bench --help",
}


def names() -> str:
    """Each experiment with what it makes."""
    plans = {name: _first_comment(name) for name in plan_names()}
    sections = {
        "Networks for images, by plans/NAME.yaml (or FILE.yaml)": plans,
        "On graphs": ON_GRAPHS,
        "Others": OTHERS,
    }
    texts = []
    for title, entries in sections.items():
        texts += [f"{title}:", *(f"  {name:<17} {text}" for name, text in entries.items()), ""]
    return "\n".join(texts)


def _first_comment(plan: str) -> str:
    lines = (Path(__file__).parent / "plans" / f"{plan}.yaml").read_text(encoding="utf-8").splitlines()
    return " ".join(line.removeprefix("# ") for line in lines if line.startswith("#"))


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser("python -m experiments", description=__doc__, epilog=names())
    made.formatter_class = argparse.RawDescriptionHelpFormatter
    made.add_argument("name", nargs="?", help="what to make, of the list below; a YAML file is a plan")
    made.add_argument("runs", nargs="*", type=Path, metavar="RUN", help="of drawings, pruning, pretrained, trainings")
    made.add_argument("--data", type=Path, default=Path("data"), help="folder with the data sets (%(default)s)")
    made.add_argument("--cache", type=Path, default=Path("runs/experiments"), help="finished trials (%(default)s)")
    made.add_argument("--to", type=Path, default=table.RESULTS, help="folder for tables; default: experiments/results")
    made.add_argument("--device", default="auto", choices=("auto", "cpu", "cuda", "mps"), help="of networks for images")
    made.add_argument("--seeds", type=int, metavar="N", help="on graphs: so many trainings of what was chosen")
    made.add_argument("--processes", type=int, metavar="N", help="on graphs: trainings side by side; default: cores")
    made.add_argument("--quick", action="store_true", help="on graphs: a few epochs, to see that it runs")
    made.add_argument(
        "--only", nargs="+", default=(), metavar="TASK", help="of overview, relations, labels: these tasks"
    )
    made.add_argument("--keep", nargs="+", type=int, metavar="K", help="of pruning: edges that a child keeps")
    return made


def main(argv: list[str] | None = None) -> int:
    """Run the command line; return the exit status: 0, 1 for errors, 2 for wrong usage, 130 after Ctrl-C."""
    argv = list(sys.argv[1:] if argv is None else argv)
    set_waiting()
    set_number()
    if argv[:1] == ["bench"]:
        sys.argv = ["python -m experiments bench", *argv[1:]]
        runpy.run_module("experiments.bench", run_name="__main__")
        return 0
    asked = parser().parse_args(argv)
    if asked.name is None:
        print(names(), end="")
        return 0
    try:
        make(asked)
    except KeyboardInterrupt:
        print("stopped; the same command goes on", file=sys.stderr)
        return 130
    except GraphcapsError as error:
        print(f"experiments: {error}", file=sys.stderr)
        signum = getattr(error, "signum", 0)
        if signum:
            print("The same command goes on", file=sys.stderr)
        return 128 + signum if signum else 2 if isinstance(error, InputError) else 1
    return 0


def make(asked: argparse.Namespace) -> None:
    """Make one experiment and show its table.

    What is whole goes into ``--to``. What isn't, because it was stopped, is quick or has other seeds, goes into the
    cache, so that committed results stay.
    """
    if asked.name == "trainings":
        return add_trainings(asked.runs)
    if asked.name == "pretrained":
        from experiments import pretrained
        from graphcaps.training.run_folder import Run

        expect(len(asked.runs) == 1, "pretrained", "one run folder", len(asked.runs))
        return print(pretrained.write(Run.open(asked.runs[0]), asked.data))
    from experiments.run import Place
    from experiments.tasks import drawings, images, overview, pruning, strokes

    place, target = Place(asked.data, asked.cache, asked.device, 1 if asked.quick else asked.processes), asked.to
    if asked.name == "overview":
        found = overview.results(place, asked.only, lambda each: table.write("overview", each, asked.cache))
        cells = [some for row in found["rows"] for some in row["cells"].values() if some is not None]
        target = asked.to if all(cells) else asked.cache
    elif asked.name in ("pruning", "drawings"):
        from graphcaps.training.run_folder import Run

        expect(len(asked.runs) == 1, asked.name, "one run folder", len(asked.runs))
        run = Run.open(asked.runs[0])
        pruned = asked.name == "pruning"
        found = pruning.of_run(run, place, tuple(asked.keep or pruning.KEEP)) if pruned else drawings.of_run(run, place)
    elif asked.name == "strokes":
        found = strokes.results(place)
    elif asked.name in ON_GRAPHS:
        found = on_graphs(asked.name, place, asked.seeds, asked.quick, asked.only)
        target = asked.cache if asked.quick or asked.seeds or asked.only else asked.to
    else:
        plan = read_plan(asked.name)
        found = images.results(plan, place, lambda each: table.write(plan.name, each, asked.cache))
        target = asked.to if found["trained"] == found["asked"] else asked.cache
    name = Path(asked.name).stem
    print(table.write(name, found, target))
    for file in draw(name, found, target):
        print(file)


def on_graphs(name: str, place, seeds: int | None, quick: bool, only: Sequence[str] = ()) -> dict:
    """The parts of a task on graphs, the command, the time and the machine."""
    import joblib
    import torch

    from experiments.tasks import cora, defaults, factors, labels, molecules, motifs, relations
    from graphcaps import __version__, dgl

    start = time.perf_counter()
    if name in ("mutag", "proteins"):
        parts = molecules.parts(place, name, seeds, quick)
    elif name in ROWS:
        parts = {"labels": labels, "relations": relations, "defaults": defaults}[name].rows(place, only, seeds, quick)
    else:
        parts = {"cora": cora, "factors": factors, "motifs": motifs}[name].parts(place, seeds, quick)
    return {
        "format_version": 1,
        "command": f"python -m experiments {name}" + f" --seeds {seeds}" * bool(seeds) + " --quick" * quick,
        "measure": {"factors": "micro-F1", **dict.fromkeys(ROWS, "score")}.get(name, "accuracy"),
        name if name in ROWS else "parts": parts,
        "minutes": (time.perf_counter() - start) / 60,
        "processes": place.processes or joblib.cpu_count(only_physical_cores=True),
        "system": f"{platform.system()} {platform.machine()}",
        "versions": {"graphcaps": __version__, "torch": torch.__version__, "dgl": dgl.__version__},
    }


def draw(name: str, found: dict, folder: Path) -> list[Path]:
    """Draw what a result holds the numbers of; return the pictures' files."""
    from experiments.figures.comparison import compared
    from experiments.figures.degrees import entropy_by_degree
    from experiments.figures.factors import recovered
    from graphcaps.viz import save

    figures = {f"{name}.png": compared(found)} if "plan" in found else {}
    for part in found.get("parts", []):
        if "picture" in part:
            drawn = entropy_by_degree if name == "cora" else recovered
            figures[f"{name}-{part['factors']}.png" if "factors" in part else f"{name}.png"] = drawn(part["picture"])
    for file, figure in figures.items():
        save(figure, folder / file)
    return [folder / file for file in figures]


def add_trainings(runs: list[Path]) -> None:
    """Add finished runs to results/trainings.json; one of the same command on the same device replaces the older."""
    rows, root = table.read("trainings"), Path(__file__).parent
    commit = subprocess.check_output(["git", "rev-parse", "--short", "HEAD"], cwd=root, text=True).strip()
    for run in runs:
        row = {**json.loads((run / "result.json").read_text()), "commit": commit}
        rows = [old for old in rows if (old["command"], old["device"]) != (row["command"], row["device"])] + [row]
    (table.RESULTS / "trainings.json").write_text(json.dumps(rows, indent=2) + "\n")


if __name__ == "__main__":
    sys.exit(main())
