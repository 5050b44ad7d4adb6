"""Compare the times and results of two checkouts of graphcaps, on one thread.

    python -m experiments.bench.versus OLD_CHECKOUT NEW_CHECKOUT [--rounds N] [--only NAME ...]

Each checkout has its own process. The two take turns: old, new, old, new ... Each such pair gives a ratio, the new
checkout's time divided by the old one's. The median, smallest and largest ratio are printed; above 1, the new checkout
is slower. The results of the first calls are compared by their bytes.
"""

import argparse
import hashlib
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch

import graphcaps

SAMPLE = 0.3
"""Minimum seconds of a sample. Quicker calls are repeated."""
# There is one thread. glibc keeps freed memory, so that times exclude page faults of new buffers.
ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "MALLOC_ARENA_MAX": "1",
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TRIM_THRESHOLD_": str(2**40),
}
Step = Callable[[], dict[str, list[torch.Tensor]]]
"""A call that is timed. It returns its results by name."""
EDGES, CAPS, DIM = 1_000_000, 8, 16


def given() -> Step:
    """Image capsules, 1152 -> 10, 32 images: forward and backward from given votes."""
    return routed(graphcaps.complete_graph(1152, 10), torch.randn(11520, 32, DIM))


def linear() -> Step:
    """The same sizes, with votes from children and weights."""
    u, weight = torch.randn(1152, 32, 8) / 8**0.5, torch.randn(11520, 8, DIM) * 10 / (1152 * DIM) ** 0.5
    return routed(graphcaps.complete_graph(1152, 10), u, weight)


def sparse() -> Step:
    """A random graph of a million edges with one vote each."""
    src, dst = torch.randint(EDGES // 10, (EDGES,)), torch.randint(EDGES // 100, (EDGES,))
    return routed(graphcaps.bipartite_graph(src, dst, EDGES // 10, EDGES // 100), torch.randn(EDGES, DIM))


def routed(graph, *tensors: torch.Tensor) -> Step:
    leaves = [tensor.requires_grad_() for tensor in tensors]
    cotangent = torch.randn(graph.num_dst_nodes(), *leaves[0].shape[1:-1], DIM)

    def step() -> dict[str, list[torch.Tensor]]:
        votes = graphcaps.LinearVotes(*leaves) if len(leaves) == 2 else leaves[0]
        v = graphcaps.dynamic_routing(graph, votes, 3)
        return {"value": [v.detach()], "gradients": list(torch.autograd.grad(v, leaves, cotangent))}

    return step


def nodes(edges: int, mutual: bool = False, edge_feats: int | None = None) -> Step:
    """Forward and backward of CapsuleConv on a graph of ``edges`` edges, ten into each node, in both directions."""
    count = edges // 10
    src, dst = torch.randint(count, (edges // 2,)), torch.arange(edges // 2) % count
    graph = graphcaps.dgl.graph((torch.cat([src, dst]), torch.cat([dst, src])), num_nodes=count)
    feat, cotangent = torch.randn(count, 64).requires_grad_(), torch.randn(count, CAPS, DIM)
    options = {} if edge_feats is None else {"edge_feat": torch.randn(edges, edge_feats)}
    layer = graphcaps.nn.CapsuleConv(64, DIM, num_caps=CAPS, edge_feats=edge_feats, mutual=mutual)
    weights = list(layer.parameters())

    def step() -> dict[str, list[torch.Tensor]]:
        v = layer(graph, feat, **options)
        gradients = torch.autograd.grad(v, (feat, *weights), cotangent)
        return {"first weights": weights, "value": [v.detach()], "gradients": list(gradients)}

    return step


def training(preset: str, batch: int) -> Step:
    """Forward, loss, backward and Adam on random images, in float32."""
    network = graphcaps.CapsNet.from_preset(preset).train().to(memory_format=torch.channels_last)
    weights = list(network.parameters())
    first = [weight.detach().clone() for weight in weights]
    optimizer = torch.optim.Adam(weights, lr=0.001, fused=True)
    images = torch.rand(batch, 1, 28, 28).contiguous(memory_format=torch.channels_last)
    labels = torch.arange(batch) % 10

    def step() -> dict[str, list[torch.Tensor]]:
        loss = network.loss(network(images, labels), images, labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return {"first weights": first, "loss": [loss.detach()], "weights after a step": weights}

    return step


CASES: dict[str, Callable[[], Step]] = {
    "given": given,
    "linear": linear,
    "sparse": sparse,
    "nodes": partial(nodes, EDGES),
    "mutual": partial(nodes, EDGES // 10, mutual=True),
    "edge features": partial(nodes, EDGES // 10, edge_feats=8),
    "compact": partial(training, "compact", 64),
    "parts": partial(training, "parts", 64),
    "paper": partial(training, "paper", 32),
}


def digest(tensors: list[torch.Tensor]) -> tuple[str, float]:
    """The sha256 of the tensors' bytes, which doesn't depend on the tensors' order, and their Euclidean norm."""
    hashes = sorted(hashlib.sha256(x.detach().contiguous().numpy().tobytes()).hexdigest() for x in tensors)
    norm = sum(float(x.detach().double().square().sum()) for x in tensors) ** 0.5
    return hashlib.sha256("".join(hashes).encode()).hexdigest(), norm


def seconds_of(step: Step, calls: int) -> float:
    """CPU seconds of this process, which has one thread, so that other programs' time isn't counted."""
    began = time.process_time()
    for _ in range(calls):
        step()
    return time.process_time() - began


def work() -> None:
    """Answer requests on stdin with the graphcaps in the current folder, as lines of JSON.

    A request is the name of a case or a number of calls. A case is prepared, and the answer is ``[seconds of a call,
    {result: [sha256, norm]}]``. Calls are made, and the answer is their seconds.
    """
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # keep printed text apart from the answers
    if not Path(graphcaps.__file__).is_relative_to(Path.cwd()):
        raise SystemExit(f"graphcaps: expected that of {Path.cwd()}, got {graphcaps.__file__}")
    torch.set_num_threads(1)
    step: Step = dict
    for request in map(json.loads, sys.stdin):
        answer: object
        if isinstance(request, int):
            answer = seconds_of(step, request)
        else:
            torch.manual_seed(0)
            step = dict  # free the tensors of the previous case
            step = CASES[request]()
            digests = {name: digest(tensors) for name, tensors in step().items()}  # also compiles kernels
            seconds_of(step, 1)
            answer = [seconds_of(step, 1), digests]
        print(json.dumps(answer), file=answers, flush=True)


def worker(checkout: Path) -> subprocess.Popen:
    """Start a process that runs ``work`` on a checkout."""
    # With -c, Python imports graphcaps from the current folder, even if another one is installed.
    command = [sys.executable, "-c", f"import runpy; runpy.run_path({__file__!r}, run_name='worker')"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, cwd=checkout.resolve(), env=os.environ | ENVIRONMENT, **pipes)


def ask(process: subprocess.Popen, request: str | int):
    """Send one request to a process and return its answer."""
    print(json.dumps(request), file=process.stdin, flush=True)
    line = process.stdout.readline()
    if not line:
        raise SystemExit(f"{request}: the worker ended with {process.wait()}; see above")
    return json.loads(line)


def report(name: str, samples: list[list[float]], old: dict[str, list], new: dict[str, list]) -> str:
    """One line: median milliseconds of both checkouts, the ratios new / old, and results whose bytes differ."""
    milliseconds = [statistics.median(column) * 1e3 for column in zip(*samples, strict=True)]
    ratios = [b / a for a, b in samples]
    texts = [
        f"{result} differ (norms by {abs(new[result][1] - norm) / max(norm, 1e-300):.0e})"
        for result, (sha256, norm) in old.items()
        if sha256 != new[result][0]
    ]
    numbers = "".join(f"{number:>9.1f}" for number in milliseconds)
    numbers += "".join(f"{number:>8.3f}" for number in (statistics.median(ratios), min(ratios), max(ratios)))
    return f"{name:<14}{numbers}  {', '.join(texts) or 'unchanged to the bit'}"


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
        (seconds, old), (_, new) = (ask(process, name) for process in workers)
        calls = max(1, round(SAMPLE / seconds))
        samples = [[ask(process, calls) / calls for process in workers] for _ in range(args.rounds)]
        print(report(name, samples, old, new), flush=True)
    for process in workers:
        process.communicate()  # this closes its stdin, and the process ends


if __name__ == "worker":
    work()
elif __name__ == "__main__":
    main()
