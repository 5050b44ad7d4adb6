"""Benchmark ``training``: steps of the presets (forward, loss, backward, Adam).

graphcaps' steps are those of ``graphcaps train``. They are compared with two versions of the same network in plain
PyTorch: one tuned by an expert (channels last, bfloat16 if the processor has it, compiled, fused Adam), and one written
for readers (float32, not compiled). Before timing, loss and gradients are compared with those of graphcaps in float32.
On a GPU, the rows named "captured" are one CUDA graph, and benchmark ``epochs`` times whole trainings.
"""

import copy
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch.utils.flop_counter import FlopCounterMode

from graphcaps import CapsNet, GraphcapsError, train
from graphcaps.images.config import TrainConfig
from graphcaps.images.training.hardware import find_hardware, has_bfloat16
from graphcaps.images.training.step import Learner, prepare, training_step
from graphcaps.names import NETWORKS as SETTINGS
from graphcaps.routing import Dynamic

from .measure import SEED, Row, Setup, Table, captured, ceilings, check
from .plain import Plain, fast, readable

PRESETS, CLASSES, BATCH, IMAGE, EPOCHS = ("compact", "parts", "paper"), 10, 128, (1, 28, 28), 10
OURS, OURS_FLOAT32, PLAIN, READABLE = "graphcaps", "graphcaps, float32", "plain PyTorch", "readable PyTorch"
RATE = TrainConfig().peak_rate / 25

# Largest accepted error of a gradient, relative to its length. A rounding error can turn the sign of a ReLU's input.
# Batch normalisation and routing increase the effect.
TOLERANCE = {"float32": 0.05, "bfloat16": 0.4}


class Way(NamedTuple):
    """One way to train a network. Its weights are in the order of ``CapsNet``'s parameters."""

    precision: str
    weights: list[torch.nn.Parameter]
    loss: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]  # (images, labels) -> ()
    step: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]  # loss, backward and Adam
    learner: Learner | None = None  # the network of graphcaps


def ours(own: CapsNet, precision: str, device: str) -> Way:
    learner = prepare(copy.deepcopy(own), RATE, find_hardware(device, precision))
    network = learner.network.train()

    def loss(images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return network.loss(network(images, labels), images, labels)

    return Way(precision, list(network.parameters()), loss, lambda *batch: training_step(learner, *batch)[0], learner)


def captured_step(learner: Learner, *batch: torch.Tensor) -> Callable[[], object]:
    """graphcaps' step as ``graphcaps train`` runs it on a GPU."""
    from graphcaps.images.training.capture import CapturedStep

    obstacles: list[str] = []
    step = CapturedStep(learner, lambda *batch: training_step(learner, *batch)[0], len(batch[0]), obstacles.append)
    for _ in range(4):
        step(*batch)
    if obstacles:
        raise GraphcapsError(obstacles[0])
    return partial(step, *batch)


def plain(own: CapsNet, precision: str, device: str, best: bool) -> Way:
    """Training in plain PyTorch, tuned by an expert (``best``) or written for readers."""
    network = Plain(own, fast if best else readable).to(device).train()
    layout = torch.channels_last if best else torch.contiguous_format
    parameters = network.to(memory_format=layout).parameters()
    optimizer = torch.optim.Adam(parameters, lr=RATE, fused=best, capturable=device == "cuda")
    forward = torch.compile(network, dynamic=False) if best else network

    def loss(images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        with torch.autocast(torch.device(device).type, torch.bfloat16, enabled=precision == "bfloat16"):
            return forward(images.contiguous(memory_format=layout), labels)

    def step(*batch: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        value = loss(*batch)
        value.backward()
        optimizer.step()
        return value.detach()

    return Way(precision, network.in_order(), loss, step)


def ways(preset: str, setup: Setup) -> dict[str, Way]:
    """All ways to train a network, with the same initial weights, by the names of their rows."""
    torch.manual_seed(SEED)
    own = CapsNet.from_preset(preset, IMAGE, CLASSES, Dynamic(SETTINGS[preset].iterations))
    fastest, device = "bfloat16" if has_bfloat16(setup.device) else "float32", setup.device
    return {
        OURS_FLOAT32: ours(own, "float32", device),
        READABLE: plain(own, "float32", device, best=False),
        PLAIN: plain(own, fastest, device, best=True),
        OURS: ours(own, fastest, device),
    }


def check_all(trained: dict[str, Way], images: torch.Tensor, labels: torch.Tensor) -> None:
    """Raise ``GraphcapsError`` if a loss or gradient differs from that of the first way."""
    wanted: list[torch.Tensor] = []
    for name, way in trained.items():
        loss = way.loss(images, labels)
        got = [x.flatten().float() for x in (loss.detach(), *torch.autograd.grad(loss, way.weights))]
        wanted = wanted or got
        check(name, got, wanted, TOLERANCE["bfloat16" if images.is_cuda else way.precision])  # a GPU multiplies in tf32


def epochs(setup: Setup) -> Iterator[Table]:
    """Make a table of whole trainings of ``graphcaps train`` on as many images as MNIST has, from start to test."""
    draw = np.random.default_rng(SEED)
    images, labels = draw.integers(0, 256, (70_000, *IMAGE[1:]), np.uint8), draw.integers(0, CLASSES, 70_000)
    for preset in ("compact", "paper"):
        table, began = Table(f"{EPOCHS} epochs of {preset}", "s", ""), time.perf_counter()
        with tempfile.TemporaryDirectory() as folder:
            places = {"data": Path(folder), "out": Path(folder)}
            config = TrainConfig(model=preset, device=setup.device, epochs=EPOCHS, **places)
            train(config, images=images, labels=labels, progress=False)
        table.rows.append(Row(OURS, {"median": time.perf_counter() - began}))
        yield table


def training(setup: Setup) -> Iterator[Table]:
    """Make a table of steps for each preset."""
    images = torch.rand(BATCH, *IMAGE, device=setup.device)
    images = images.clone(memory_format=torch.channels_last) if setup.on_gpu else images
    labels, rate = torch.arange(BATCH, device=setup.device) % CLASSES, ceilings(setup)["bfloat16_gflop_s"]
    for preset in PRESETS:
        trained = ways(preset, setup)
        check_all(trained, images, labels)
        with FlopCounterMode(display=False) as counter:  # it can count einsum, but not graphcaps' kernels
            trained[READABLE].loss(images, labels).backward()
        operations = counter.get_total_flops()
        table = Table(f"training step of {preset}", "ms", PLAIN)
        for name, way in trained.items():
            table.add(name, lambda way=way: partial(way.step, images, labels))
        if setup.on_gpu:
            table.add(f"{PLAIN}, captured", partial(captured, table.calls[PLAIN]))
            table.add(f"{OURS}, captured", partial(captured_step, trained[OURS].learner, images, labels))
        table.time(setup)
        for row in (row for row in table.rows if row.name in table.calls):
            row.numbers["images_per_second"] = 1e3 * BATCH / row.numbers["median"]
            row.numbers["gemm_share"] = operations / 1e6 / row.numbers["median"] / rate
        yield table
