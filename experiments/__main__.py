"""``python -m experiments NAME``: train the networks that aren't trained yet, and write a table into ``results/``."""

import argparse
import json
import subprocess
import sys
import time
from importlib import import_module
from pathlib import Path

from experiments import table
from experiments.plan import PLANS, plan_names, read_plan
from graphcaps.cli.threads import set_number, set_waiting
from graphcaps.errors import GraphcapsError, InputError, expect

ON_GRAPHS = {
    "cora": "classify papers: CapsuleConv, GCN and GAT, 20 seeds; a quarter of an hour on two cores",
    "mutag": "classify molecules: CapsuleReadout, mean and attention pooling, 10 folds; half an hour",
    "proteins": "the same on PROTEINS; half an hour",
    "factors": "classify nodes of graphs with 4 or 8 latent factors, 10 graphs each; hours",
    "relations": "do couplings reveal the kinds of edges? Proteins, papers, latent factors, 3 to 5 seeds; three hours",
    "defaults": "does the default routing cost accuracy? 15 graphs and layouts, 3 seeds; two hours",
    "known": "some nodes' classes are known: BeliefConv and rivals, factors and papers, 3 to 5 seeds; four hours",
    "labels": "factors, where the training nodes' classes are inputs: BeliefConv and others, 3 seeds; two hours",
    "interests": "recommend films to users of ml-100k, by one vector or several, 3 folds; a quarter of an hour",
}
ROWS = ("defaults", "interests", "known", "labels", "relations")
"""Tasks that take ``--only``. Their results are lists of rows; the results of the other tasks on graphs are parts."""
OTHERS = {
    "overview": "a table of all tasks and routings, and of networks without capsules; about 15 hours on a core",
    "pruning RUN": "accuracy of a run's network if each child keeps only its strongest edges; compact, paper or deep",
    "robustness RUN": "accuracy of a run's network on turned, shifted, noisy, scrambled or affNIST-style test images",
    "pretrained RUN": "make a run's network one that comes with graphcaps",
    "decoder NAME": "train a small decoder for a network that comes with graphcaps",
    "trainings RUN...": "add result.json of these run folders to results/trainings.json",
    "bench NAME": "measure times and memory; options: python -m experiments bench --help",
}


def names() -> str:
    """List all experiments, each with a description."""
    sections = {
        "Networks for images (plans/NAME.yaml, or your own FILE.yaml)": {
            name: _first_comment(name) for name in plan_names()
        },
        "On graphs": ON_GRAPHS,
        "Others": OTHERS,
    }
    texts = []
    for title, entries in sections.items():
        texts += [f"{title}:", *(f"  {name:<17} {text}" for name, text in entries.items()), ""]
    return "\n".join(texts)


def _first_comment(plan: str) -> str:
    lines = (PLANS / f"{plan}.yaml").read_text(encoding="utf-8").splitlines()
    return " ".join(line.removeprefix("# ") for line in lines if line.startswith("#"))


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser("python -m experiments", description=__doc__, epilog=names())
    made.formatter_class = argparse.RawDescriptionHelpFormatter
    made.add_argument("name", nargs="?", help="one of the list below, or a YAML file with a plan")
    made.add_argument(
        "runs", nargs="*", type=Path, metavar="RUN", help="for robustness, pruning, pretrained and others"
    )
    made.add_argument("--data", type=Path, default=Path("data"), help="data sets (%(default)s)")
    made.add_argument("--cache", type=Path, default=Path("runs/experiments"), help="finished trials (%(default)s)")
    made.add_argument("--to", type=Path, default=table.RESULTS, help="folder for tables; default: experiments/results")
    made.add_argument("--device", default="auto", choices=("auto", "cpu", "cuda"), help="for networks for images")
    made.add_argument("--seeds", type=int, metavar="N", help="on graphs: number of trainings with the chosen settings")
    made.add_argument("--processes", type=int, metavar="N", help="on graphs: parallel trainings; default: one per core")
    made.add_argument("--quick", action="store_true", help="on graphs: a few epochs, as a test")
    made.add_argument(
        "--only", nargs="+", default=(), metavar="TASK", help=f"for {', '.join(('overview', 'robustness', *ROWS))}"
    )
    made.add_argument("--keep", nargs="+", type=int, metavar="K", help="for pruning: edges that a child keeps")
    return made


def main(argv: list[str] | None = None) -> int:
    """Run the command line. Return the exit status: 0, 1 for errors, 2 for wrong usage, 130 after Ctrl-C."""
    argv = list(sys.argv[1:] if argv is None else argv)
    set_waiting()
    set_number()
    if argv[:1] == ["bench"]:
        return import_module("experiments.bench.__main__").main(argv[1:])
    given = parser().parse_args(argv)
    if given.name is None:
        print(names(), end="")
        return 0
    try:
        make(given)
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


def make(given: argparse.Namespace) -> None:
    """Run one experiment and print its table.

    A complete table is written to ``--to``. With ``--quick``, ``--seeds`` or ``--only``, the table is written to the
    cache, so that it doesn't replace committed results.
    """
    if given.name == "trainings":
        return add_trainings(given.runs)
    from experiments import pretrained
    from experiments.run import Place
    from experiments.tasks import images, overview, pruning, robustness
    from graphcaps.atomic import write_text
    from graphcaps.images.training.run_folder import Run

    if given.name in ("decoder", "pretrained", "pruning", "robustness"):
        expect(len(given.runs) == 1, given.name, "one run folder", len(given.runs))
        run = Run.open(given.runs[0])
    if given.name == "decoder":
        return print(pretrained.add_decoder(run, given.data))
    if given.name == "pretrained":
        return print(pretrained.write(run, given.data))
    name, whole = Path(given.name).stem, True
    place = Place(given.data, given.cache, given.device, 1 if given.quick else given.processes)

    if name == "overview":
        result = overview.results(place, given.only, lambda partial: table.write(name, partial, given.cache))
        whole = {row["task"] for row in result["rows"]} == {*overview.TASKS}
    elif name == "robustness":
        for kind, measured in robustness.of_run(run, place, given.only).items():
            file = run.results / "evaluate" / f"{kind}.json"
            write_text(file, json.dumps(measured, indent=1) + "\n")
            print(robustness.markdown(measured), file, "", sep="\n")
        return
    elif name == "pruning":
        result = pruning.of_run(run, place, tuple(given.keep or pruning.KEEP))
    elif name in ON_GRAPHS:
        result = on_graphs(name, place, given)
        whole = not (given.quick or given.seeds or given.only)
    else:
        result = images.results(read_plan(given.name), place)
    target = given.to if whole else given.cache
    print(table.write(name, result, target))
    for file in draw(name, result, target):
        print(file)


def on_graphs(name: str, place, given: argparse.Namespace) -> dict:
    """Run a task on graphs. The result also has the command, the time and the machine."""
    import joblib

    from experiments.run import made_with

    start, molecules = time.perf_counter(), name in ("mutag", "proteins")
    module = import_module(f"experiments.tasks.{'molecules' if molecules else name}")
    seeds = given.seeds or (1 if given.quick else module.SEEDS)
    if name in ROWS:
        entry = {name: module.rows(place, seeds, given.quick, given.only)}
    else:
        entry = {"parts": module.parts(place, *([name] * molecules), seeds, given.quick)}
    measures = {"factors": "micro-F1", **dict.fromkeys(ROWS, "score"), "interests": "Recall@50"}
    options = f" --seeds {seeds}" * bool(given.seeds) + " --quick" * given.quick
    return {
        "format_version": 1,
        "command": f"python -m experiments {name}{options}",
        "measure": measures.get(name, "accuracy"),
        **entry,
        "minutes": (time.perf_counter() - start) / 60,
        "processes": place.processes or joblib.cpu_count(only_physical_cores=True),
        **made_with(),
    }


def draw(name: str, result: dict, folder: Path) -> list[Path]:
    """Draw the pictures of a result, and return the paths of their files."""
    from experiments.figures.comparison import compared
    from experiments.figures.factors import recovered
    from graphcaps.viz import save

    figures = {f"{name}.png": compared(result)} if "plan" in result else {}
    for part in result["parts"] if name == "factors" else []:
        figures[f"factors-{part['factors']}.png"] = recovered(part["picture"])
    for file, figure in figures.items():
        save(figure, folder / file)
    return [folder / file for file in figures]


def add_trainings(runs: list[Path]) -> None:
    """Add finished runs to results/trainings.json. A run replaces an older one with the same command and device."""
    rows = table.read("trainings")
    commit = subprocess.check_output(["git", "rev-parse", "--short", "HEAD"], cwd=PLANS, text=True).strip()
    for run in runs:
        row = {**json.loads((run / "result.json").read_text()), "commit": commit}
        rows = [old for old in rows if (old["command"], old["device"]) != (row["command"], row["device"])] + [row]
    (table.RESULTS / "trainings.json").write_text(json.dumps(rows, indent=2) + "\n")


if __name__ == "__main__":
    sys.exit(main())
