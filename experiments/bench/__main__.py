"""Measure, print, and write JSON: ``python -m experiments.bench NAME``."""

from __future__ import annotations

import argparse
import dataclasses
import json
from collections.abc import Callable
from pathlib import Path

NAMES = ("routing", "sparse", "training", "memory", "growth", "nodes", "contention", "first")
ON_GPU = ("routing", "epoch")


def run(
    names: tuple[str, ...], device: str, json_file: Path | None, sizes=None, say: Callable[[str], object] = print
) -> dict:
    """Measure the named benchmarks, say what was found as it is found, and return all of it as plain data.

    Raises:
        GraphcapsError: a formulation gives wrong numbers, or the file can't be written.
    """
    from graphcaps.atomic import write_text

    from . import contention, first, machine, memory, nodes, routing, training
    from .inputs import SIZES, Setup
    from .targets import judged

    benchmarks = {
        "routing": routing.routing,
        "sparse": routing.sparse,
        "training": training.training,
        "memory": memory.memory,
        "growth": routing.growth,
        "nodes": nodes.nodes,
        "contention": contention.contention,
        "first": first.first,
        "epoch": training.epoch,
    }
    sizes = sizes or SIZES[device]
    about = machine.description(device, machine.keep_freed_memory())
    say("\n".join(f"{name:<10} {value}" for name, value in about.items()))
    ceilings = machine.ceilings(device, sizes)
    say("\n".join(f"{name:<20} {value:,.1f}" for name, value in ceilings.items()))
    found: dict = {
        "format_version": 2,
        "command": f"python -m experiments.bench {' '.join(names)} --device {device} --threads {about['threads']}",
        "machine": about,
        "ceilings": ceilings,
        "sizes": dataclasses.asdict(sizes),
        "benchmarks": {},
    }
    for name in names:
        tables = []
        for table in benchmarks[name](Setup(device, sizes, ceilings)):
            tables.append(table)
            say(f"\n{table.text()}")
        targets = judged(name, device, tables)
        verdicts = {True: "met", False: "MISSED", None: "not measured"}
        for target in targets:
            say(f"{verdicts[target['met']]:<12}  {target['about']}: {target['text']}, wanted {target['wanted']}")
        found["benchmarks"][name] = {"tables": [dataclasses.asdict(table) for table in tables], "targets": targets}
        if json_file:
            write_text(json_file, json.dumps(found, indent=1) + "\n")
    return found


def main() -> None:
    from graphcaps.cli.threads import set_number, set_waiting

    set_waiting()  # threads and pages are those of graphcaps' command line
    set_number()
    parser = argparse.ArgumentParser(prog="python -m experiments.bench", description=__doc__)
    parser.add_argument("name", choices=["all", "gpu", *NAMES, "epoch"], help="gpu: routing and epoch, on a GPU")
    parser.add_argument("--device", choices=["auto", "cpu", "cuda"], default="auto")
    parser.add_argument("--threads", type=int, help="of torch and the engines, not of contention's trainings")
    parser.add_argument("--json", type=Path, help="also write all that is printed to this file")
    asked = parser.parse_args()
    import torch

    if asked.threads is not None:
        torch.set_num_threads(asked.threads)
    there = torch.cuda.is_available()
    if "cuda" in (asked.device, "cuda" if asked.name == "gpu" else "") and not there:
        raise SystemExit(f"device: expected a GPU for {asked.name}, got none that torch can use")
    names = {"all": NAMES, "gpu": ON_GPU}.get(asked.name, (asked.name,))
    device = asked.device if asked.device != "auto" else "cuda" if there else "cpu"
    run(names, device, asked.json)


if __name__ == "__main__":
    main()
