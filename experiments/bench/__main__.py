"""Run benchmarks, print their tables and write them as JSON: ``python -m experiments.bench NAME``."""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

NAMES = ("routing", "sparse", "training", "memory", "nodes")
ON_GPU = ("training", "routing", "nodes", "runs")
VERDICTS = {True: "met", False: "MISSED", None: "not measured"}


def run(names: Sequence[str], device: str, json_file: Path | None, sizes=None, say: Callable = print) -> dict:
    """Run the named benchmarks, print each result at once with ``say``, and return all results as plain data."""
    from graphcaps.atomic import write_text

    from . import machine, memory, nodes, routing, training
    from .inputs import SIZES, Setup
    from .targets import judged

    modules = (routing, training, memory, nodes)
    sizes = sizes or SIZES[device]
    about = machine.description(device, machine.keep_freed_memory())
    say("\n".join(f"{name:<10} {value}" for name, value in about.items()))
    ceilings = machine.ceilings(device, sizes)
    say("\n".join(f"{name:<20} {value:,.1f}" for name, value in ceilings.items()))
    result: dict = {
        "format_version": 2,
        "command": f"python -m experiments.bench {' '.join(names)} --device {device} --threads {about['threads']}",
        "machine": about,
        "ceilings": ceilings,
        "sizes": dataclasses.asdict(sizes),
        "benchmarks": {},
    }
    for name in names:
        benchmark, tables = next(getattr(each, name) for each in modules if hasattr(each, name)), []
        for table in benchmark(Setup(device, sizes, ceilings)):
            tables.append(table)
            say(f"\n{table.text()}")
        targets = judged(name, device, tables)
        for target in targets:
            say(f"{VERDICTS[target['met']]:<12}  {target['about']}: {target['text']}, wanted {target['wanted']}")
        result["benchmarks"][name] = {"tables": [dataclasses.asdict(table) for table in tables], "targets": targets}
        if json_file:
            write_text(json_file, json.dumps(result, indent=1) + "\n")
    return result


def main(argv: list[str] | None = None) -> int:
    from graphcaps.cli.threads import set_number, set_waiting

    set_waiting()  # use threads and memory pages as graphcaps' command line does
    set_number()
    parser = argparse.ArgumentParser(prog="python -m experiments.bench", description=__doc__)
    about = f"all: {', '.join(NAMES)}; gpu, on a GPU: {', '.join(ON_GPU)}"
    parser.add_argument("name", choices=["all", "gpu", *NAMES, "runs"], help=about)
    parser.add_argument("--device", choices=["auto", "cpu", "cuda"], default="auto")
    parser.add_argument("--threads", type=int, help="number of threads")
    parser.add_argument("--json", type=Path, help="file to which the results are also written")
    given = parser.parse_args(argv)
    import torch

    from experiments.table import RESULTS

    from .markdown import bench_tables

    if given.threads is not None:
        torch.set_num_threads(given.threads)
    on_gpu = torch.cuda.is_available()
    if "cuda" in (given.device, "cuda" if given.name == "gpu" else "") and not on_gpu:
        raise SystemExit(f"device: expected a GPU for {given.name}, got none that torch can use")
    names = {"all": NAMES, "gpu": ON_GPU}.get(given.name, (given.name,))
    file = given.json
    if given.name == "gpu":
        file = file or RESULTS / f"bench-{torch.cuda.get_device_name().lower().replace(' ', '-')}.json"
    print(bench_tables(run(names, given.device if given.device != "auto" else "cuda" if on_gpu else "cpu", file)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
