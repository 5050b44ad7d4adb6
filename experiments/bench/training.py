"""Benchmarks ``training`` and ``epoch``: steps of the presets (forward, loss, backward, Adam), and whole epochs.

Every row makes the same step of ``graphcaps.training``, on networks with the same weights; only routing and precision
differ. Drawing and augmenting batches is in an epoch's time and not in a step's.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator

import torch
from torch.utils.flop_counter import FlopCounterMode

from graphcaps import CapsNet, TrainConfig
from graphcaps.data import Batches, Images
from graphcaps.training.hardware import accelerator, has_bfloat16
from graphcaps.training.step import prepare, training_step

from .clock import interleaved
from .formulations import einsum
from .inputs import SEED, Setup
from .tables import Row, Table

PRESETS, CLASSES = ("compact", "parts", "paper"), 10
OURS, OURS_FLOAT32, EINSUM = "graphcaps", "graphcaps, float32", "einsum"


class EinsumLayer(torch.nn.Module):
    """A ``CapsuleLayer`` whose votes and routing are written as einsum: u (I, B, P) -> (J, B, D)."""

    def __init__(self, own: torch.nn.Module, iterations: int):
        super().__init__()
        self.shape = (own.num_children, own.num_parents, *own.weight.shape[1:])
        self.weight, self.iterations = torch.nn.Parameter(own.weight.detach().clone()), iterations

    def forward(self, u: torch.Tensor) -> torch.Tensor:
        return einsum(self.iterations, u.transpose(0, 1).contiguous(), self.weight.view(self.shape))


def networks(preset: str, setup: Setup) -> dict[str, tuple[CapsNet, str]]:
    """Networks with the same weights by the names of their rows, each with its precision."""
    torch.manual_seed(SEED)
    own = CapsNet.from_preset(preset, setup.sizes.image_shape, CLASSES)
    fastest = "bfloat16" if has_bfloat16(setup.device) else "float32"
    found = {OURS_FLOAT32: (copy.deepcopy(own), "float32"), OURS: (copy.deepcopy(own), fastest)}
    if preset == "paper":
        own.add_module("capsules", EinsumLayer(own.capsules, setup.sizes.iterations))
        found = {EINSUM: (own, "float32"), **found}
    return found


def training(setup: Setup) -> Iterator[Table]:
    """A table of steps for each preset."""
    sizes = setup.sizes
    images = torch.rand(sizes.batch, *sizes.image_shape, device=setup.device)
    labels = torch.arange(sizes.batch, device=setup.device) % CLASSES
    for preset in PRESETS:
        found = networks(preset, setup)
        about = f"CapsNet {preset}, images {sizes.image_shape}, B {sizes.batch}, R {sizes.iterations}"
        reference, operations = OURS_FLOAT32, 0
        if preset == "paper":
            reference, operations = EINSUM, operations_of(found[EINSUM][0], images.cpu(), labels.cpu())
            about += f"; a step is {operations / 1e9:.1f} GFLOP of convolutions, matrix products, votes and routing"
        calls = {
            name: step_of(network, precision, setup, images, labels) for name, (network, precision) in found.items()
        }
        rows = [Row(name, precision) for name, (_, precision) in found.items()]
        table = Table(f"training step of {preset}", about, "ms", rows, reference)
        table.fill(interleaved(calls, setup.device, sizes.seconds, sizes.rounds))
        for row in rows:
            row.numbers["images_per_second"] = 1e3 * sizes.batch / row.numbers["median"]
            if operations:
                rate = operations / 1e6 / row.numbers["median"]
                row.numbers["gemm_share"] = rate / setup.ceilings["bfloat16_gflop_s"]
        yield table


def epoch(setup: Setup) -> Iterator[Table]:
    """Whole epochs of the paper's network: random images drawn, shifted and trained on; the loss is read at the end."""
    sizes, device = setup.sizes, setup.device
    draw = torch.Generator().manual_seed(SEED)
    pixels = torch.randint(256, (sizes.epoch_images, *sizes.image_shape), generator=draw, dtype=torch.uint8)
    labels = torch.randint(CLASSES, (sizes.epoch_images,), generator=draw)
    batches = Batches(Images(pixels, labels), sizes.batch, device=device, seed=SEED, augment="shift")

    def whole(learner) -> float:
        return float(sum(training_step(learner, *batch)[0] for batch in batches.epoch(0)))

    found = networks("paper", setup)
    learners = {name: learner_of(*row, device) for name, row in found.items()}
    calls = {name: lambda learner=learner: whole(learner) for name, learner in learners.items()}
    rows = [Row(name, precision) for name, (_, precision) in found.items()]
    about = f"CapsNet paper, {sizes.epoch_images:,} images {sizes.image_shape}, B {sizes.batch}, R {sizes.iterations}"
    yield Table("training epoch", about, "s", rows, EINSUM).fill(
        interleaved(calls, device, 3 * sizes.seconds, (2, 5)), scale=1
    )


def learner_of(network: CapsNet, precision: str, device: str):
    learner = prepare(network, TrainConfig(model="paper").peak_rate / 25, accelerator(device, precision))
    learner.model.train()
    return learner


def step_of(
    network: CapsNet, precision: str, setup: Setup, images: torch.Tensor, labels: torch.Tensor
) -> Callable[[], object]:
    learner = learner_of(network, precision, setup.device)
    return lambda: training_step(learner, images, labels)


def operations_of(network: CapsNet, images: torch.Tensor, labels: torch.Tensor) -> int:
    """Additions and multiplications of a step, by torch's count, which knows einsum and not graphcaps' kernels."""
    with FlopCounterMode(display=False) as counter:
        network.loss(network(images, labels), images, labels).backward()
    network.zero_grad()
    return counter.get_total_flops()
