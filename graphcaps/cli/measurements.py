"""Measure: compare, matters, example."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import tyro

from .arguments import Folder


def compare(
    plan: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="PLAN")],
    data: Path = Path("data"),
    device: Literal["auto", "cpu", "cuda", "mps"] = "auto",
    to: Folder = None,
) -> None:
    """Train networks side by side on several seeds, and say which differences are more than chance.

    Writes results.json, table.md and accuracy.png after each training. Ctrl-C saves; the same command goes on, and
    one more process of it shares the work. Epochs are chosen on validation images, test images are read once per run.

    Args:
        plan: A YAML file of networks, what is varied, and seeds, or one that comes with graphcaps. routings: five
            routings and a CNN on MNIST. affnist: two routings and a CNN, trained on digits anywhere in 40 x 40, tested
            on affNIST. parts: that network on MNIST, routed and not, ten seeds. paper: the 2017 paper's network, its
            authors' protocol, its CNN; for a GPU. paper-pairs: that network on two digits, one iteration and three;
            for a GPU. matters-mnist, matters-pairs, matters-places, matters-anywhere: of graphcaps matters.
            A file has names with settings of train, such as
            {networks: {routed: {routing: dynamic}, not routed: {routing: uniform}}, train: {epochs: 5}, seeds: [0, 1]}
        data: Folder with the data sets; what is missing is downloaded into it.
        device: Where to train; auto takes a GPU if there is one.
        to: Folder for the runs and the results; default: compare/PLAN.
    """
    from ..compare.plan import read_plan

    found = read_plan(plan)  # a wrong one is answered before torch is imported
    from ..compare.table import as_markdown
    from ..compare.work import compare

    folder = to or Path("compare") / found.name
    results = compare(found, folder, data, device)
    print(f"\n{results['trained']} of {results['asked']} trainings; accuracies in %, mean +- sd over seeds\n")
    print(as_markdown(results))
    print("", *(folder / name for name in ("results.json", "table.md", "accuracy.png")), sep="\n")


def matters(
    only: Annotated[tuple[str, ...], tyro.conf.arg(metavar="TASK", help_behavior_hint="")] = (),
    data: Path = Path("data"),
    device: Literal["auto", "cpu", "cuda", "mps"] = "auto",
    to: Path = Path("matters"),
    rounds: int = 3,
) -> None:
    """Make the table of where routing matters: tasks by routings, each beside equal couplings and no capsules.

    Goes on where it was stopped, and writes matters.json and matters.md as trainings end: hours in all. What isn't
    trained yet is empty in the table. Settings and epochs are chosen on validation data.

    Args:
        only: Tasks to train now: mnist, pairs, places, cora, mutag, proteins, factors-4, factors-8, motifs-4,
            motifs-6, anywhere; default: all.
        data: Folder with the data sets; what is missing is downloaded into it.
        device: Where networks for images are trained; auto takes a GPU if there is one.
        to: Folder for the trainings and the table.
        rounds: Stop after so many of three rounds. Each trains one seed of each task on images, and a third of the
            seeds on graphs.
    """
    from ..matters.tasks import tasks

    tasks(only)  # a wrong one is answered before torch is imported
    from ..matters.table import as_markdown
    from ..matters.work import NAMES, matters

    print(f"\n{as_markdown(matters(to, data, only, rounds, device))}\n")
    print(*(to / name for name in NAMES), sep="\n")


def example(
    name: tyro.conf.Positional[Literal["cora", "mutag", "proteins", "factors", "motifs"]],
    data: Path = Path("data"),
    seeds: Annotated[int | None, tyro.conf.arg(metavar="N", help_behavior_hint="")] = None,
    json: Annotated[Path | None, tyro.conf.arg(metavar="FILE", help_behavior_hint="")] = None,
    quick: tyro.conf.FlagCreatePairsOff[bool] = False,
    out: Path = Path("runs"),
    factors: Annotated[tuple[int, ...] | None, tyro.conf.arg(metavar="K", help_behavior_hint="")] = None,
) -> None:
    """Put capsules and the usual layers into the same graph networks, and compare their test accuracies.

    Every model gets as many trials of settings as the others, judged on validation data alone. mutag also writes how
    some test molecules are routed, for graphcaps viz. factors and motifs draw their graphs from seeds, and say how well
    couplings tell which factor or motif an edge is there because of.

    Stopped and started again, each goes on where it was. Uses one process per core. On two cores cora takes about a
    quarter of an hour, mutag and proteins half an hour each, motifs an hour, factors hours.

    Args:
        name: cora: classify the papers of a citation graph. mutag, proteins: classify molecules, ten folds. factors:
            find the classes of nodes whose edges have several causes. motifs: say which shapes a graph is made of.
        data: Folder with the data; what is missing is downloaded into it.
        seeds: cora, factors, motifs: how often what was chosen is trained, 20, 10 and 5 unless said. mutag, proteins:
            trainings of each setting on each fold, 1 unless said.
        json: Also write the result, with every seed's or fold's number, to this file.
        quick: A few epochs each, in one process, to see that it runs; the numbers mean nothing.
        out: Folder that holds the run folders. Each example keeps its trainings there, in cora/trainings and so on,
            mutag also its routing, cora and factors their pictures; a quick look in mutag-quick, cora-quick and so on.
        factors: Only factors and motifs: how many latent factors or motifs their graphs have; a table for each number,
            4 and 8, and 4 and 6, unless said.
    """
    from ..examples.run import example

    example(name, data=data, seeds=seeds, json_file=json, quick=quick, out=out, num_factors=factors)
