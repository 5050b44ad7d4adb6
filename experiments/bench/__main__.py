"""Run benchmarks, print their tables and write them as JSON: ``python -m experiments.bench NAME``."""

import argparse
import dataclasses
import json
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path

NAMES = ("routing", "sparse", "training", "nodes")
ON_GPU = ("training", "routing", "nodes", "epochs")


def run(names: Sequence[str], device: str, json_file: Path | None) -> dict:
    """Run the named benchmarks, print the tables of each one at once, and return all results as plain data."""
    from graphcaps.files import write_text

    from . import measure, nodes, routing, tables, training

    makers = {"routing": routing.routing, "sparse": routing.sparse, "training": training.training, "nodes": nodes.nodes}
    makers["epochs"] = training.epochs
    setup, about = measure.SETUPS[device], measure.description(device)
    result: dict = {
        "command": f"python -m experiments.bench {' '.join(names)} --device {device} --threads {about['threads']}",
        "machine": about,
        "ceilings": measure.ceilings(setup),
        "sizes": dataclasses.asdict(setup),
        "benchmarks": {},
    }
    for name in names:
        measured: list[dict] = []
        result["benchmarks"][name] = {"tables": measured}
        try:
            for table in makers[name](setup):
                measured.append(table.as_dict())
                if json_file:  # at once, because a GPU may be gone before the last table
                    write_text(json_file, json.dumps(result, indent=1) + "\n")
        except Exception:  # the other benchmarks go on, because minutes on a GPU are few
            result["failed"] = [*result.get("failed", []), name]
            traceback.print_exc()
        if measured:
            print(tables.of_benchmark(name, result), end="\n\n", flush=True)
    print(tables.about(result))
    return result


def main(argv: list[str] | None = None) -> int:
    from graphcaps.cli.threads import set_number, set_waiting

    set_waiting()  # use threads and memory pages as graphcaps' command line does
    set_number()
    parser = argparse.ArgumentParser(prog="python -m experiments.bench", description=__doc__)
    about = f"all: {', '.join(NAMES)}; gpu, on a GPU: {', '.join(ON_GPU)}"
    parser.add_argument("name", choices=["all", "gpu", *{*NAMES, *ON_GPU}], help=about)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--threads", type=int, help="number of threads")
    parser.add_argument("--json", type=Path, help="file to which the results are also written")
    args = parser.parse_args(argv)
    import torch

    from experiments.table import RESULTS

    if args.threads is not None:
        torch.set_num_threads(args.threads)
    device = "cuda" if args.name == "gpu" else args.device
    if device == "cuda" and not torch.cuda.is_available():
        raise SystemExit(f"device: expected a GPU for {args.name}, got none that torch can use")
    file = args.json
    if args.name == "gpu" and file is None:
        file = RESULTS / f"bench-{torch.cuda.get_device_name().lower().replace(' ', '-')}.json"
    result = run({"all": NAMES, "gpu": ON_GPU}.get(args.name, (args.name,)), device, file)
    return 1 if "failed" in result else 0


if __name__ == "__main__":
    sys.exit(main())
