"""Run benchmarks, print their tables and write them as JSON: ``python -m experiments.bench NAME``."""

import argparse
import dataclasses
import json
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path

NAMES = ("routing", "sparse", "training", "memory", "nodes")
ON_GPU = ("training", "routing", "runs", "nodes")


def run(names: Sequence[str], device: str, json_file: Path | None, sizes=None, say: Callable = print) -> dict:
    """Run the named benchmarks, print each result at once with ``say``, and return all results as plain data."""
    from graphcaps.atomic import write_text

    from . import machine, memory, nodes, routing, training
    from .inputs import SIZES, Setup
    from .targets import judged

    modules = (routing, training, memory, nodes)
    sizes = sizes or SIZES[device]
    about = machine.description(device, machine.keep_freed_memory())
    ceilings = machine.ceilings(device, sizes)
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
        try:
            for table in benchmark(Setup(device, sizes, ceilings)):
                tables.append(table)
                say(f"\n{table.text()}")
        except Exception:  # the other benchmarks go on, because minutes on a GPU are few
            result["failed"] = [*result.get("failed", []), name]
            traceback.print_exc()
        targets = judged(name, device, tables)
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
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--threads", type=int, help="number of threads")
    parser.add_argument("--json", type=Path, help="file to which the results are also written")
    given = parser.parse_args(argv)
    import torch

    from experiments.table import RESULTS

    from .markdown import bench_tables

    if given.threads is not None:
        torch.set_num_threads(given.threads)
    device = "cuda" if given.name == "gpu" else given.device
    if device == "cuda" and not torch.cuda.is_available():
        raise SystemExit(f"device: expected a GPU for {given.name}, got none that torch can use")
    names = {"all": NAMES, "gpu": ON_GPU}.get(given.name, (given.name,))
    file = given.json
    if given.name == "gpu" and file is None:
        file = RESULTS / f"bench-{torch.cuda.get_device_name().lower().replace(' ', '-')}.json"
    result = run(names, device, file)
    print(bench_tables(result))
    return 1 if "failed" in result else 0


if __name__ == "__main__":
    sys.exit(main())
