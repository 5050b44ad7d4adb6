"""Measure: bench."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import tyro


def bench(
    work: tyro.conf.Positional[
        Literal["all", "routing", "sparse", "train", "memory", "growth", "nodes", "busy", "gpu"]
    ] = "all",
    device: Literal["auto", "cpu", "cuda"] = "auto",
    threads: Annotated[int | None, tyro.conf.arg(metavar="N", help_behavior_hint="")] = None,
    json: Annotated[Path | None, tyro.conf.arg(metavar="FILE", help_behavior_hint="")] = None,
    to: Path = Path("figures-bench"),
) -> None:
    """Time routing and training beside other formulations and the machine's ceilings, and say which targets are met.

    Args:
        work: routing: image capsules, from given votes and from children and weights. sparse: a random graph of a
            million edges. train: whole training steps. memory: peaks. growth: time per edge up to ten million edges.
            nodes: full-graph training steps of CapsuleConv, up to ten million capsule edges. busy: training alone, and
            beside programs that keep every core busy. gpu: the targets for a GPU and what they are made of, in five
            minutes; not in all.
        device: Where to measure; auto takes a GPU if there is one.
        threads: Threads of torch and of the engines; default: as many as torch takes. Not of busy, whose
            trainings choose.
        json: Also write all that is printed to this file.
        to: Folder for the bar charts, one per work.
    """
    from ..bench.run import bench

    bench(work, device=device, threads=threads, to=to, json_file=json)
