"""Benchmark ``first``: how long the first call takes, in a process in which no kernel was ever compiled.

Each call has a process and a folder of kernels of its own. What later processes wait for, with the kernels in the
user's cache, is measured in a second process with the same folder.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Iterator

import torch

from graphcaps import CapsNet, complete_graph, dgl, dynamic_routing, nn
from graphcaps.routing import Spherical

from .inputs import Setup
from .memory import in_process
from .tables import Row, Table

ROUNDS = 3


def readme() -> torch.Tensor:
    return dynamic_routing(complete_graph(20, 10), torch.randn(200, 32, 16), return_graph=True)[0].requires_grad_()


def given() -> torch.Tensor:
    return dynamic_routing(complete_graph(20, 10), torch.randn(200, 32, 16).requires_grad_())


def conv(mutual: bool = False) -> torch.Tensor:
    graph = dgl.to_bidirected(dgl.graph((torch.arange(100), torch.arange(100).roll(1))))
    return nn.CapsuleConv(32, 8, num_caps=4, routing=Spherical(3, mutual=mutual))(graph, torch.randn(100, 32))


def compact() -> torch.Tensor:
    images, labels, network = torch.rand(64, 1, 28, 28), torch.arange(64) % 10, CapsNet.from_preset("compact").train()
    return network.loss(network(images, labels), images, labels)


CALLS: dict[str, tuple[str, Callable[[], torch.Tensor]]] = {
    "ten lines of the README": ("given votes with their graph, no gradient", readme),
    "given votes": ("20 to 10, D 16", given),
    "CapsuleConv": ("spherical routing, K 4, D 8", conv),
    "CapsuleConv, mutual": ("the same, logits shared by both directions of an edge", lambda: conv(mutual=True)),
    "compact": ("the network's loss, P 8, D 16", compact),
}


def first(setup: Setup) -> Iterator[Table]:
    rows = [Row(name, about) for name, (about, _) in CALLS.items()]
    for row in rows:
        samples = []
        for _ in range(ROUNDS):
            with tempfile.TemporaryDirectory() as folder:
                both = [in_process(measure, row.name, folder, device=setup.device) for _ in range(2)]
            (new, row.note), (kept, _) = both
            samples.append(new | {f"{key}, from the cache": seconds for key, seconds in kept.items()})
        row.numbers = {key: statistics.median(sample[key] for sample in samples) for key in samples[0]}
    yield Table("first calls", f"in a process of its own, the medians of {ROUNDS}; float32", "s", rows)


def measure(name: str, folder: str, device: str) -> dict[str, float]:
    """Seconds of a first forward and backward pass, with Numba's import, kernels being kept in the folder."""
    call = CALLS[name][1]
    began = time.perf_counter()
    import numba

    numba.config.CACHE_DIR = folder
    found = call()
    forward = time.perf_counter()
    found.sum().backward()
    return {"forward": forward - began, "backward": time.perf_counter() - forward}
