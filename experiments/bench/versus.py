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
    return routed(graphcaps.complete_graph(1152, 10), torch.randn(11520, 32, DIM).requires_grad_())


def linear() -> Step:
    """The same sizes, with votes from children and weights."""
    u, weight = torch.randn(1152, 32, 8) / 8**0.5, torch.randn(11520, 8, DIM) * 10 / (1152 * DIM) ** 0.5
    return routed(graphcaps.complete_graph(1152, 10), u.requires_grad_(), weight.requires_grad_())


def sparse() -> Step:
    """A random graph of a million edges with one vote each."""
    src, dst = torch.randint(EDGES // 10, (EDGES,)), torch.randint(EDGES // 100, (EDGES,))
    graph = graphcaps.bipartite_graph(src, dst, EDGES // 10, EDGES // 100)
    return routed(graph, torch.randn(EDGES, DIM).requires_grad_())


def routed(graph, *leaves: torch.Tensor) -> Step:
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
    feat, cotangent = torch.randn(count, 64).requires_grad_(), torch.randn(count, CAPS * DIM)
    along = {} if edge_feats is None else {"edge_feat": torch.randn(edges, edge_feats)}
    layer = graphcaps.nn.CapsuleConv(64, DIM, num_caps=CAPS, edge_feats=edge_feats, mutual=mutual)
    weights = list(layer.parameters())

    def step() -> dict[str, list[torch.Tensor]]:
        v = layer(graph, feat, **along)
        gradients = torch.autograd.grad(v, (feat, *weights), cotangent.view_as(v))
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
    arrays = [tensor.detach().contiguous().numpy() for tensor in tensors]
    hashes = sorted(hashlib.sha256(array.tobytes()).hexdigest() for array in arrays)
    norm = sum(float(tensor.detach().double().square().sum()) for tensor in tensors) ** 0.5
    return hashlib.sha256("".join(hashes).encode()).hexdigest(), norm


def seconds_of(step: Step, calls: int) -> float:
    """CPU seconds of this process, which has one thread, so that other programs' time isn't counted."""
    began = time.process_time()
    for _ in range(calls):
        step()
    return time.process_time() - began


def work() -> None:
    """Run cases on the graphcaps in the current folder, as the lines of JSON on stdin ask.

    The answer to ``["prepare", case]`` is ``[seconds of a call, {result: [sha256, norm]}]``, and the answer to
    ``["time", calls]`` is the seconds of that many calls.
    """
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # keep printed text apart from the answers
    if not Path(graphcaps.__file__).is_relative_to(Path.cwd()):
        raise SystemExit(f"graphcaps: expected that of {Path.cwd()}, got {graphcaps.__file__}")
    torch.set_num_threads(1)
    step: Step = dict
    for line in sys.stdin:
        request, argument = json.loads(line)
        answer: object
        if request == "prepare":
            torch.manual_seed(0)
            step = dict  # free the tensors of the previous case
            step = CASES[argument]()
            bits = {name: digest(tensors) for name, tensors in step().items()}  # also compiles kernels
            seconds_of(step, 1)
            answer = [seconds_of(step, 1), bits]
        else:
            answer = seconds_of(step, argument)
        print(json.dumps(answer), file=answers, flush=True)


def worker(checkout: Path) -> subprocess.Popen:
    """Start a process that runs ``work`` on a checkout."""
    # With -c, Python imports graphcaps from the current folder, even if another one is installed.
    command = [sys.executable, "-c", f"import runpy; runpy.run_path({__file__!r}, run_name='worker')"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, cwd=checkout, env=os.environ | ENVIRONMENT, **pipes)


def ask(process: subprocess.Popen, request: str, argument: str | int):
    """Send one request to a process and return its answer."""
    print(json.dumps([request, argument]), file=process.stdin, flush=True)
    line = process.stdout.readline()
    if not line:
        raise SystemExit(f"{request} {argument}: the worker ended with {process.wait()}; see above")
    return json.loads(line)


def compared(old: dict[str, list], new: dict[str, list]) -> str:
    """Names of the results whose bytes differ, and the relative differences of their norms."""
    parts = []
    for name, (sha256, norm) in old.items():
        other_sha256, other_norm = new[name]
        if sha256 != other_sha256:
            parts.append(f"{name} differ (norms by {abs(other_norm - norm) / max(norm, 1e-300):.0e})")
    return ", ".join(parts) or "unchanged to the bit"


def report(name: str, samples: list[list[float]], bits: str) -> str:
    """One line: median milliseconds of both checkouts, and the ratios new / old of the pairs."""
    old, new = (statistics.median(column) * 1e3 for column in zip(*samples, strict=True))
    ratios = [b / a for a, b in samples]
    middle = statistics.median(ratios)
    return f"{name:<14}{old:>9.1f}{new:>9.1f}{middle:>8.3f}{min(ratios):>8.3f}{max(ratios):>8.3f}  {bits}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--only", nargs="+", choices=[*CASES], default=[*CASES], metavar="NAME")
    given = parser.parse_args()
    print(f"{'case':<14}{'old, ms':>9}{'new, ms':>9}{'new/old':>8}{'min':>8}{'max':>8}  results")
    workers = [worker(checkout.resolve()) for checkout in (given.old, given.new)]
    for name in given.only:
        (seconds, old), (_, new) = (ask(process, "prepare", name) for process in workers)
        calls = max(1, round(SAMPLE / seconds))
        samples = [[ask(process, "time", calls) / calls for process in workers] for _ in range(given.rounds)]
        print(report(name, samples, compared(old, new)), flush=True)
    for process in workers:
        process.communicate()  # this closes its stdin, and the process ends


if __name__ == "worker":
    work()
elif __name__ == "__main__":
    main()
