"""Compare the times and results of two checkouts of graphcaps, on one thread.

    python -m experiments.bench.versus OLD_CHECKOUT NEW_CHECKOUT [--rounds N] [--only NAME ...]

Each checkout's graphcaps has its own process, with the benchmarks of this checkout. The two take turns: old, new, old,
new ... Each such pair gives a ratio, the new checkout's time divided by the old one's. The median, smallest and largest
ratio are printed; above 1, the new checkout is slower. The results of the first calls are compared by their bytes.
"""

import argparse
import hashlib
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import torch

import graphcaps
from experiments.bench import nodes, routing, training
from experiments.bench.measure import keep_freed_memory
from graphcaps import CapsNet

ROOT = Path(__file__).parents[2]
SAMPLE = 0.3
"""Minimum seconds of a sample. Quicker calls are repeated."""
Step = Callable[[], Sequence[torch.Tensor]]
"""A call that is timed. It returns its results."""


def routed(kind: str) -> Step:
    """Forward and backward of dynamic routing on engine ``fused``."""
    return routing.call_of("fused", routing.case(kind, images=32))


def on_nodes(layer: str) -> Step:
    """A training step on a graph with a million edges."""
    return nodes.step_of(layer, nodes.graph_of(hub=0), "cpu")


def trained(preset: str) -> Step:
    """A training step of a network in float32. It returns the loss and the new weights."""
    way = training.ours(CapsNet.from_preset(preset), "float32", "cpu")
    images, labels = torch.rand(64, *training.IMAGE), torch.arange(64) % training.CLASSES
    return lambda: [way.step(images, labels), *way.weights]


CASES = {kind: partial(routed, kind) for kind in ("given", "linear", "sparse")}
CASES |= {"nodes": partial(on_nodes, nodes.CAPSULES), "mutual": partial(on_nodes, nodes.MUTUAL)}
CASES |= {preset: partial(trained, preset) for preset in training.PRESETS}


def work() -> None:
    """For each case whose name is read from stdin, print the seconds of a call and the hashes of its first results.

    Seconds are those of this process on a CPU, so that other programs' time isn't counted.
    """
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # separate printed text from the answers
    if not Path(graphcaps.__file__).is_relative_to(Path.cwd()):
        raise SystemExit(f"graphcaps: expected that of {Path.cwd()}, got {graphcaps.__file__}")
    torch.set_num_threads(1)
    keep_freed_memory()
    prepared = ""
    for name in map(str.strip, sys.stdin):
        if name != prepared:
            torch.manual_seed(0)
            prepared, step = name, CASES[name]()
            results = [x.detach().contiguous().numpy() for x in step()]  # also compiles kernels
            hashes = sorted(hashlib.sha256(array.tobytes()).hexdigest() for array in results)
        calls, began, seconds = 0, time.process_time(), 0.0
        while seconds < SAMPLE:
            step()
            calls, seconds = calls + 1, time.process_time() - began
        print(json.dumps([seconds / calls, hashes]), file=answers, flush=True)


def worker(checkout: Path) -> subprocess.Popen:
    """Start a process that runs ``work`` on a checkout."""
    # With -c, Python imports graphcaps from the current folder, even if another one is installed.
    program = f"import sys, graphcaps; sys.path[0] = {str(ROOT)!r}; from experiments.bench.versus import work; work()"
    command = [sys.executable, "-c", program]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, cwd=checkout.resolve(), **pipes)


def ask(process: subprocess.Popen, name: str) -> tuple[float, list[str]]:
    """The seconds of a call, and the hashes of a case's first results."""
    print(name, file=process.stdin, flush=True)
    return json.loads(process.stdout.readline() or exit(f"{name}: the worker ended; see above"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--only", nargs="+", choices=[*CASES], default=[*CASES], metavar="NAME")
    args = parser.parse_args()
    print(f"{'case':<14}{'old, ms':>9}{'new, ms':>9}{'new/old':>8}{'min':>8}{'max':>8}  results")
    workers = [worker(checkout) for checkout in (args.old, args.new)]
    for name in args.only:
        hashes = [ask(process, name)[1] for process in workers]
        samples = [[ask(process, name)[0] for process in workers] for _ in range(args.rounds)]
        times = "".join(f"{statistics.median(column) * 1e3:>9.1f}" for column in zip(*samples, strict=True))
        ratios = [new / old for old, new in samples]
        numbers = "".join(f"{number:>8.3f}" for number in (statistics.median(ratios), min(ratios), max(ratios)))
        print(f"{name:<14}{times}{numbers}  {'unchanged to the bit' if hashes[0] == hashes[1] else 'DIFFERENT'}")
    for process in workers:
        process.communicate()  # this closes its stdin, and the process ends


if __name__ == "__main__":
    main()
