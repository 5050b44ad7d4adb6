"""``python -m experiments NAME``: train the networks that aren't trained yet, and write a table into ``results/``."""

import argparse
import json
import subprocess
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

from experiments import table
from experiments.plan import PLANS, plan_names, read_plan
from graphcaps.cli.threads import set_number, set_waiting
from graphcaps.errors import GraphcapsError, InputError, expect
from graphcaps.files import write_text

ON_GRAPHS = {
    "cora": "classify papers: CapsuleConv, GCN and GAT, 20 seeds; a quarter of an hour on two cores",
    "mutag": "classify molecules: CapsuleReadout, mean and attention pooling, 10 folds; half an hour",
    "proteins": "the same on PROTEINS; half an hour",
    "factors": "classify nodes of graphs with 4 or 8 latent factors, 10 graphs each; hours",
    "relations": "do couplings reveal the kinds of edges? Proteins, papers, latent factors, 3 to 5 seeds; three hours",
    "defaults": "does the default routing cost accuracy? 20 graphs and layouts, 3 seeds; two hours",
    "known": "some nodes' classes are known: BeliefConv and rivals, factors and papers, 3 to 5 seeds; four hours",
    "planted": "the same with wrong edges: which are wrong, and which methods bear them? 9 graphs, 3 seeds; an hour",
    "interests": "recommend films to users of ml-100k, by one vector or several, 3 folds; a quarter of an hour",
}
OTHERS = {
    "overview": "a table of all tasks and routings, and of networks without capsules; about 15 hours on a core",
    "robustness RUN": "accuracy of a run's network on turned, shifted, noisy, scrambled or affNIST-style test images",
    "pretrained RUN": "make a run's network one that comes with graphcaps",
    "trainings RUN...": "add result.json of these run folders to results/trainings.json",
}


def names() -> str:
    """List all experiments, each with a description."""
    plans = {}
    for name in plan_names():
        lines = (PLANS / f"{name}.yaml").read_text(encoding="utf-8").splitlines()
        plans[name] = " ".join(line.removeprefix("# ") for line in lines if line.startswith("#"))
    titles = "Networks for images (plans/NAME.yaml, or your own FILE.yaml)", "On graphs", "Others"
    texts = []
    for title, entries in zip(titles, (plans, ON_GRAPHS, OTHERS), strict=True):
        texts += [f"{title}:", *(f"  {name:<17} {text}" for name, text in entries.items()), ""]
    return "\n".join(texts)


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("python -m experiments", description=__doc__, epilog=names())
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("name", nargs="?", help="one of the list below, or a YAML file with a plan")
    parser.add_argument("runs", nargs="*", type=Path, metavar="RUN", help="a run folder, or several for trainings")
    parser.add_argument("--data", type=Path, default=Path("data"), help="data sets (%(default)s)")
    parser.add_argument("--cache", type=Path, default=Path("runs/experiments"), help="finished trials (%(default)s)")
    parser.add_argument("--to", type=Path, default=table.RESULTS, help="folder for complete tables")
    parser.add_argument("--seeds", type=int, metavar="N", help="on graphs: trainings with the chosen settings")
    parser.add_argument("--quick", action="store_true", help="on graphs: a few epochs, as a test")
    parser.add_argument("--only", nargs="+", default=(), metavar="TASK", help="only these graphs, tasks or test images")
    return parser


def main(argv: list[str] | None = None) -> int:
    """Run the command line. Return the exit status: 0, 1 for errors, 2 for wrong usage, 130 after Ctrl-C."""
    set_waiting()
    set_number()
    args = parser().parse_args(argv)
    try:
        print(make(args) if args.name else names())
    except KeyboardInterrupt:
        print("stopped; the same command goes on", file=sys.stderr)
        return 130
    except GraphcapsError as error:
        print(f"experiments: {error}", file=sys.stderr)
        if signum := getattr(error, "signum", 0):
            print("The same command goes on", file=sys.stderr)
            return 128 + signum
        return 2 if isinstance(error, InputError) else 1
    return 0


def make(args: argparse.Namespace) -> str:
    """Run one experiment. Return its tables, and the paths of their files.

    A complete table is written to ``--to``. With ``--quick``, ``--seeds`` or ``--only``, the table is written to the
    cache, so that it doesn't replace committed results.
    """
    name = args.name
    if name == "trainings":
        return add_trainings(args.runs)
    from experiments import pretrained
    from experiments.run import Place
    from experiments.tasks import images, overview, robustness

    place = Place(args.data, args.cache, **{"processes": 1} if args.quick else {})
    folder = args.cache if args.quick or args.seeds or args.only else args.to
    if name in ON_GRAPHS:
        module = import_module(f"experiments.tasks.{'molecules' if name in ('mutag', 'proteins') else name}")
        task = getattr(module, "TASK", None) or module.TASKS[name]
        result = task.result(place, args.seeds, args.quick, args.only)
        return write({name: result}, task.markdown, folder)
    if name == "overview":
        return write({name: overview.results(place, args.only)}, overview.markdown, folder)
    if name not in ("pretrained", "robustness"):
        plan = read_plan(name)
        return write({plan.name: images.results(plan, place)}, images.markdown, args.to)
    expect(len(args.runs) == 1, name, "one run folder", len(args.runs))
    run = images.Run.open(args.runs[0])
    if name == "robustness":
        return write(robustness.of_run(run, place, args.only), robustness.markdown, run.results / "evaluate")
    return pretrained.write(run, args.data)


def write(results: dict[str, dict], markdown: Callable[[dict], str], folder: Path) -> str:
    """Write each result to ``NAME.json`` and its table to ``NAME.md``. Return the tables and the paths.

    The networks of a plan have a picture, too.
    """
    texts = []
    for name, result in results.items():
        table_text, file = markdown(result), folder / f"{name}.json"
        write_text(file, json.dumps(result, indent=1) + "\n")
        write_text(file.with_suffix(".md"), table_text + "\n")
        texts.append(f"{table_text}\n{file}")
        if "plan" in result:
            from experiments.figure import compared
            from graphcaps.viz import save, style

            for picture in (file.with_suffix(".svg"), file.with_suffix(".pdf")):
                save(compared(result), picture, style.PAGE)
                texts[-1] += f"\n{picture}"
        for row in result.get("factors", []):
            if row["name"] == "mutual":
                from experiments.figure import recovered
                from graphcaps.viz import save

                save(recovered(row["picture"]), folder / f"factors-{row['factors']}.png")
                texts[-1] += f"\n{folder / 'factors'}-{row['factors']}.png"
    return "\n\n".join(texts)


def add_trainings(runs: list[Path]) -> str:
    """Add finished runs to results/trainings.json. A run replaces an older one with the same command and device."""
    from graphcaps.images.training.run_folder import Run

    rows = table.read("trainings")
    commit = subprocess.check_output(["git", "rev-parse", "--short", "HEAD"], cwd=PLANS, text=True).strip()
    for run in runs:
        row = {**json.loads((run / "result.json").read_text()), "commit": commit}
        row["command"] = Run.open(run).config.command()  # without the folders of this machine
        rows = [old for old in rows if (old["command"], old["device"]) != (row["command"], row["device"])] + [row]
    (table.RESULTS / "trainings.json").write_text(json.dumps(rows, indent=2) + "\n")
    return f"{len(runs)} runs added"


if __name__ == "__main__":
    sys.exit(main())
