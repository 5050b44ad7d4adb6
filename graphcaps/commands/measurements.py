"""Measure: bench, example."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import tyro


def bench(
    work: tyro.conf.Positional[Literal["all", "routing", "sparse", "train", "memory", "growth", "nodes"]] = "all",
    device: Literal["auto", "cpu", "cuda"] = "auto",
    threads: Annotated[int | None, tyro.conf.arg(metavar="N", help_behavior_hint="")] = None,
    json: Annotated[Path | None, tyro.conf.arg(metavar="FILE", help_behavior_hint="")] = None,
    to: Path = Path("figures-bench"),
) -> None:
    """Time routing and training beside other formulations and the machine's ceilings, and say which targets are met.

    Args:
        work: routing: image capsules, from given votes and from children and weights. sparse: a random graph of a
            million edges. train: whole training steps. memory: peaks. growth: time per edge up to ten million edges.
            nodes: full-graph training steps of CapsuleConv, up to ten million capsule edges.
        device: Where to measure; auto takes a GPU if there is one.
        threads: Threads of torch and of the engines; default: as many as torch takes.
        json: Also write all that is printed to this file.
        to: Folder for the bar charts, one per work.
    """
    from ..bench.run import bench

    bench(work, device=device, threads=threads, to=to, json_file=json)


def example(
    name: tyro.conf.Positional[Literal["cora", "mutag", "proteins"]],
    data: Path = Path("data"),
    seeds: Annotated[int | None, tyro.conf.arg(metavar="N", help_behavior_hint="")] = None,
    json: Annotated[Path | None, tyro.conf.arg(metavar="FILE", help_behavior_hint="")] = None,
    quick: tyro.conf.FlagCreatePairsOff[bool] = False,
    out: Path = Path("runs"),
) -> None:
    """Put capsules and the usual layers into the same graph networks, and compare their test accuracies.

    Every model gets as many trials of settings as the others, judged on validation data alone. mutag also writes how
    some test molecules are routed, for graphcaps viz.

    Uses one process per core. On two cores cora takes 15 to 25 minutes, mutag and proteins 10 to 20.

    Args:
        name: cora: classify the papers of a citation graph. mutag, proteins: classify molecules, ten folds.
        data: Folder with the data; what is missing is downloaded into it.
        seeds: cora: how often what was chosen is trained, 20 unless said. mutag, proteins: trainings of each setting on
            each fold, 1 unless said.
        json: Also write the result, with every seed's or fold's number, to this file.
        quick: A few epochs each, in one process, to see that it runs; the numbers mean nothing.
        out: Folder that holds the run folders, and mutag's routing: in mutag, or in mutag-quick.
    """
    from ..examples.run import example

    example(name, data=data, seeds=seeds, json_file=json, quick=quick, out=out)
