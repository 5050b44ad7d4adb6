"""The work ``train``: whole training steps of the paper's CapsNet - forward, loss, backward, Adam - in images/s.

Every row makes the same step of ``graphcaps.training``, on a network with the same weights; only primary capsules,
routing and precision differ. Drawing and augmenting batches isn't in it: other code doesn't do that alike.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import nn

from ..config import TrainConfig
from ..errors import GraphcapsError
from ..models import CapsNet, capsnet_loss
from ..routing import choose_engine
from ..training.hardware import accelerator, has_bfloat16
from ..training.step import prepare, training_step
from .baselines import BROADCAST, EINSUM, TUTORIAL, Formulation
from .clock import interleaved
from .inputs import SEED
from .networks import baseline_network
from .tables import Row, Table, with_ratios
from .works import Setup

CLASSES = 10
# name: (formulation, primary capsules in separate convolutions, what it is)
BASELINES = {
    "broadcast": (BROADCAST, True, "the most copied PyTorch code: eight primary convolutions, float32"),
    "tutorial": (TUTORIAL, True, "DGL's example: the same, routed by Python functions per message, float32"),
    "einsum": (EINSUM, False, "einsum, one primary convolution, float32"),
}
OURS = "graphcaps"


def train(setup: Setup) -> Iterator[Table]:
    """Steps of ``graphcaps train --model paper`` as it runs here, and of other people's networks."""
    sizes, device = setup.sizes, setup.device
    torch.manual_seed(SEED)
    images = torch.rand(sizes.batch, *sizes.image_shape, device=device)
    labels = torch.arange(sizes.batch, device=device) % CLASSES
    own = CapsNet.from_preset("paper", sizes.image_shape, CLASSES, sizes.iterations).to(device)
    rows, calls = [], {}
    for name, (way, separate, says) in BASELINES.items():
        network = baseline_network(own, way, separate)
        note = why_not(network, own, way, images[:4], labels[:4])
        rows.append(Row(name, says, note=note, another_algorithm=not way.same))
        if not note:
            calls[name] = _step(network, images, labels, "float32", device)
    graph, votes = own.capsules.graph(device), own.capsules.votes(torch.zeros(own.capsules.num_children, 1, 8))
    engine = choose_engine(graph, votes._replace(u=votes.u.to(device)))
    fastest = "bfloat16" if has_bfloat16(device) else "float32"
    for precision in dict.fromkeys(("float32", fastest)):
        name = OURS if precision == fastest else f"{OURS}, {precision}"
        rows.append(Row(name, f"one primary convolution, engine {engine}, {precision}"))
        network = CapsNet.from_preset("paper", sizes.image_shape, CLASSES, sizes.iterations)
        network.load_state_dict(own.state_dict())
        calls[name] = _step(network, images, labels, precision, device)
    operations = step_operations(own, sizes.batch)
    timings = interleaved(calls, device, 3 * sizes.seconds, sizes.rounds, "train")
    for row in rows:
        if timing := timings.get(row.name):
            row.numbers = {key: 1e3 * getattr(timing, key) for key in ("median", "low", "high")}
            row.numbers["speed"] = sizes.batch / timing.median
            row.numbers["gemm_share"] = operations / 1e9 / timing.median / setup.ceilings["bfloat16_gflop_s"]
    about = (
        f"CapsNet of the paper, images {sizes.image_shape}, B {sizes.batch}, R {sizes.iterations}; a step is "
        f"{operations / 1e9:.1f} GFLOP of convolutions, matrix products and votes"
    )
    rounds = max(timing.rounds for timing in timings.values())
    yield with_ratios(Table("training step", about, "speed", "ms", rows, "broadcast", rounds, auto=engine))


def _step(
    network: CapsNet, images: torch.Tensor, labels: torch.Tensor, precision: str, device: str
) -> Callable[[], object]:
    """A call that makes one step of a training with this network."""
    learner = prepare(network, TrainConfig(model="paper").peak_rate, accelerator(device, precision))
    learner.model.train()
    return lambda: training_step(learner, images, labels)


def why_not(network: CapsNet, own: CapsNet, way: Formulation, images: torch.Tensor, labels: torch.Tensor) -> str:
    """Why the network can't run, or ""; raise ``GraphcapsError`` where loss or gradient aren't those of ours."""
    try:
        got = _loss_and_gradient(network, images, labels)
    except Exception as error:
        return f"does not run here: {type(error).__name__}: {(str(error).splitlines() or ['no message'])[0][:120]}"
    if way.same:
        wanted = _loss_and_gradient(own, images, labels)
        for what, x, right in zip(("loss", "gradient of the first convolution"), got, wanted, strict=True):
            off = (x - right).abs().max() / right.abs().max()
            if not off <= 1e-3:  # float32 through two convolutions of 81 * 256 terms, and routing
                raise GraphcapsError(f"{way.name}: expected the {what} of our network, got one off by {off:.1e}")
    return ""


def _loss_and_gradient(network: CapsNet, images: torch.Tensor, labels: torch.Tensor) -> tuple[torch.Tensor, ...]:
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        loss = capsnet_loss(network.train()(images, labels), images, labels)
        return loss.detach(), torch.autograd.grad(loss, next(network.stem.parameters()))[0]


def step_operations(network: CapsNet, batch: int) -> int:
    """Additions and multiplications of one step: convolutions, linear layers and making votes; not routing, not Adam.

    A layer of k multiplications per output number takes 2 k per number forward, and as many again for the gradient of
    its weights and of its input; the first layer needs no gradient of its input.
    """
    counts: list[int] = []

    def counter(terms: int) -> Callable[[nn.Module, tuple, torch.Tensor], None]:
        return lambda layer, inputs, output: counts.append(2 * batch * output.numel() * terms)

    layers = [layer for layer in network.modules() if isinstance(layer, (nn.Conv2d, nn.Linear))]
    hooks = [layer.register_forward_hook(counter(layer.weight[0].numel())) for layer in layers]
    with torch.no_grad():
        network(torch.zeros(1, *network.image_shape, device=next(network.parameters()).device))
    for hook in hooks:
        hook.remove()
    votes = 2 * batch * network.capsules.weight.numel()
    return 3 * (sum(counts) + votes) - counts[0]
