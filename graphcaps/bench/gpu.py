"""The work ``gpu``: where a GPU stands, in five minutes: the targets for one, and what they are made of.

Routing at the sizes of the paper's network, 128 images, from given and from linear votes; and whole epochs of MNIST's
size, of the paper's network as ``graphcaps train`` makes them and of the same network as others write it. The images
are random: the time doesn't depend on what is in them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator

import torch

from ..config import TrainConfig
from ..data import Batches, Images
from ..models import CapsNet
from ..models.objects import longest, right
from ..training.hardware import accelerator, has_bfloat16
from ..training.step import Learner, prepare, set_rate, training_step
from .baselines import COMPILED, EINSUM, READABLE, engine
from .clock import interleaved
from .inputs import SEED
from .machine import matmul
from .networks import baseline_network
from .tables import Row, Table, with_ratios
from .train import CLASSES, why_not
from .works import Setup, timed

EPOCH = "training epoch"
GRAPHCAPS = "graphcaps"
# table: what is timed there
WOULD = {
    "given votes": "routes 1152 x 10 votes of 128 images by engine fused, beside torch and einsum",
    "linear votes": "routes the same from children and weights, in float32, tf32 and bfloat16",
    EPOCH: "trains the paper's network for epochs of 60,000 images, beside the same network by einsum",
}


def gpu(setup: Setup) -> Iterator[Table]:
    """The targets for a GPU; on a CPU what they would be, and nothing is measured."""
    if setup.device != "cuda":
        rows = [Row(name, says, note=f"needs a GPU; there it {says}") for name, says in WOULD.items()]
        yield Table("targets of a GPU", "nothing was measured: this is a CPU", "median", "ms", rows)
        return
    yield from measured(setup)


def measured(setup: Setup) -> Iterator[Table]:
    """The tables, on whatever device: routing, then epochs."""
    short = setup._replace(sizes=dataclasses.replace(setup.sizes, seconds=setup.sizes.seconds / 2))
    ways = [EINSUM, COMPILED, READABLE, engine("torch"), engine("fused")]
    for kind, precisions in {"given": ("float32",), "linear": ("float32", "tf32", "bfloat16")}.items():
        for precision in precisions:
            with matmul(precision):
                yield from timed(short, kind, precision, ways)
    yield epochs(setup)


def epochs(setup: Setup) -> Table:
    """Whole epochs: batches drawn and shifted, steps, and the epoch's loss and accuracy read at its end."""
    sizes, device = setup.sizes, setup.device
    draw = torch.Generator().manual_seed(SEED)
    pixels = torch.randint(256, (sizes.epoch_images, *sizes.image_shape), generator=draw, dtype=torch.uint8)
    labels = torch.randint(CLASSES, (sizes.epoch_images,), generator=draw)
    batches = Batches(Images(pixels, labels), sizes.batch, device=device, seed=SEED, augment="shift")
    images, classes = next(batches.epoch(0))
    torch.manual_seed(SEED)
    own = CapsNet.from_preset("paper", sizes.image_shape, CLASSES, sizes.iterations).to(device)
    readable = baseline_network(own, READABLE, separate=False)
    fastest = "bfloat16" if has_bfloat16(device) else "float32"
    # name: (network, precision, what it is)
    asked = {
        "readable": (readable, "float32", f"{READABLE.says}, one primary convolution, float32"),
        f"{GRAPHCAPS}, float32": (_copy(own), "float32", "float32"),
        GRAPHCAPS: (_copy(own), fastest, f"as graphcaps train: {fastest}"),
    }
    note = why_not(readable, own, READABLE, images[:4], classes[:4])
    rows, calls = [], {}
    for name, (network, precision, says) in asked.items():
        rows.append(Row(name, says, note=note if name == "readable" else ""))
        if not rows[-1].note:
            learner = prepare(network, TrainConfig(model="paper").peak_rate, accelerator(device, precision))
            learner.model.train()
            calls[name] = _epoch(learner, batches)
    timings = interleaved(calls, device, 3 * sizes.seconds, (2, 5), EPOCH)
    for row in rows:
        if timing := timings.get(row.name):
            row.numbers = {key: getattr(timing, key) for key in ("median", "low", "high")}
            row.numbers["speed"] = sizes.epoch_images / timing.median
    about = f"CapsNet of the paper, {sizes.epoch_images:,} images {sizes.image_shape}, B {sizes.batch}, R "
    about += f"{sizes.iterations}, augmented; readable_capsnet's README: 15 s on a V100"
    rounds = max(timing.rounds for timing in timings.values())
    return with_ratios(Table(EPOCH, about, "median", "s", rows, "readable", rounds))


def _copy(own: CapsNet) -> CapsNet:
    network = CapsNet.from_preset(**(own.preset or {}))
    network.load_state_dict(own.state_dict())
    return network


def _epoch(learner: Learner, batches: Batches) -> Callable[[], object]:
    """A call that makes the steps of an epoch, and waits for its loss and accuracy."""
    rate = TrainConfig(model="paper").peak_rate / 25
    like, _ = next(batches.epoch(0))

    def epoch() -> tuple[float, int]:
        loss_sum, correct = like.new_zeros(()), like.new_zeros(())
        for images, labels in batches.epoch(0):
            set_rate(learner.optimizer, rate)
            loss, output = training_step(learner, images, labels)
            loss_sum += loss * len(labels)
            correct += right(longest(output.scores, 1), labels).sum()
        return float(loss_sum), int(correct)

    return epoch
