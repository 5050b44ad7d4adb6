"""Benchmark ``first``: times of the first call in a process, with and without compiled kernels in the disk cache."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator

import pandas as pd
import torch

from graphcaps import CapsNet, complete_graph, dgl, dynamic_routing, nn

from .inputs import Setup
from .memory import in_process
from .tables import Row, Table

ROUNDS = 3


def conv(mutual: bool = False) -> torch.Tensor:
    graph = dgl.to_bidirected(dgl.graph((torch.arange(100), torch.arange(100).roll(1))))
    return nn.CapsuleConv(32, 8, num_caps=4, mutual=mutual)(graph, torch.randn(100, 32))


def compact() -> torch.Tensor:
    images, labels, network = torch.rand(64, 1, 28, 28), torch.arange(64) % 10, CapsNet.from_preset("compact").train()
    return network.loss(network(images, labels), images, labels)


CALLS: dict[str, Callable[[], torch.Tensor]] = {
    "ten lines of the README": lambda: dynamic_routing(
        complete_graph(20, 10), torch.randn(200, 32, 16), return_graph=True
    )[0],
    "given votes": lambda: dynamic_routing(complete_graph(20, 10), torch.randn(200, 32, 16).requires_grad_()),
    "CapsuleConv": conv,
    "CapsuleConv, mutual": lambda: conv(mutual=True),
    "compact": compact,
}


def first(setup: Setup) -> Iterator[Table]:
    rows = [*map(Row, CALLS)]
    for row in rows:
        samples = []
        for _ in range(ROUNDS):
            with tempfile.TemporaryDirectory() as folder:
                new, row.note = in_process(measure, row.name, folder, device=setup.device)
                again, _ = in_process(measure, row.name, folder, device=setup.device)
            samples.append(new | {"both, from the cache": sum(again.values())})
        row.numbers = pd.DataFrame(samples).median().to_dict()
    yield Table("first calls", f"medians of {ROUNDS} processes, Numba's import included; float32", "s", rows)


def measure(name: str, folder: str, device: str) -> dict[str, float]:
    """Seconds of the first forward and backward pass of a process, with compiled kernels cached in ``folder``."""
    began = time.perf_counter()
    import numba

    numba.config.CACHE_DIR = folder
    result, forward = CALLS[name](), time.perf_counter()
    if result.requires_grad:
        result.sum().backward()
    return {"forward": forward - began, "backward": time.perf_counter() - forward}
