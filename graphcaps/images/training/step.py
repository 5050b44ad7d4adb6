"""A training step: forward, loss, backward, Adam. The training loop and the benchmark share it."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch

from ..models import CapsNetOutput, CNNOutput, ImageNetwork, MatrixOutput
from ..models.answers import overlaid
from .hardware import Hardware


class Learner(NamedTuple):
    """A network on its hardware, and its optimizer."""

    network: ImageNetwork
    optimizer: torch.optim.Optimizer
    hardware: Hardware

    @property
    def device(self) -> torch.device:
        """The network's device."""
        return self.hardware.device


def prepare(network: ImageNetwork, rate: float, hardware: Hardware) -> Learner:
    """Move the network to its device, in memory format channels_last, set its precision, and make its Adam optimizer.

    On CUDA, the learning rate is a tensor, for ``CapturedStep``.
    """
    device, on_gpu = hardware.device, hardware.device.type == "cuda"
    network = network.to(device).to(memory_format=torch.channels_last)
    lr = torch.tensor(rate, dtype=torch.float32, device=device) if on_gpu else rate
    optimizer = torch.optim.Adam(network.parameters(), lr=lr, fused=device.type in ("cpu", "cuda"))
    if hardware.bfloat16:
        _compute_in_bfloat16(network, device)
    return Learner(network, optimizer, hardware)


def _compute_in_bfloat16(network: ImageNetwork, device: torch.device) -> None:
    """Run the network's forward in autocast from now on. Its outputs, and so the loss, are in float32."""
    in_autocast = torch.autocast(device.type, torch.bfloat16)(network.forward)

    def forward(*batch: torch.Tensor) -> Any:
        output = in_autocast(*batch)
        return type(output)(*(x if x is None else x.float() for x in output))

    network.forward = forward


def set_rate(learner: Learner, rate: float) -> None:
    """Set the learning rate of all weights."""
    for group in learner.optimizer.param_groups:
        group["lr"] = group["lr"].fill_(rate) if isinstance(group["lr"], torch.Tensor) else rate


def training_step(
    learner: Learner, images: torch.Tensor, labels: torch.Tensor, progress: Any = 0.0
) -> tuple[torch.Tensor, CapsNetOutput | CNNOutput | MatrixOutput]:
    """Forward, loss, backward and Adam on one batch. Return the detached loss (), and the network's output.

    Args:
        images, labels: as from ``Batches.epoch``.
        progress: the share of the training that is done, in [0, 1]; a number or a tensor ().
    """
    batch = overlaid(images)
    # With one channel, ``contiguous`` changes nothing, and cuDNN would take the strides for those of another layout.
    channels_last = batch.clone if batch.is_cuda else batch.contiguous
    output = learner.network(channels_last(memory_format=torch.channels_last), labels)
    loss = learner.network.loss(output, images, labels, progress)
    loss.backward()
    learner.optimizer.step()
    learner.optimizer.zero_grad(set_to_none=True)
    return loss.detach(), output


def risen(progress: float, iterations: int) -> int:
    """Routing iterations at ``progress``, the share of the training that is done, if they rise to ``iterations``.

    >>> [risen(progress, 12) for progress in (0.0, 0.34, 0.5, 0.7)]
    [1, 4, 8, 12]
    """
    share = next((share for end, share in ((1 / 3, 0.0), (0.5, 1 / 3), (0.7, 2 / 3)) if progress < end), 1.0)
    return max(1, round(share * iterations))


def one_cycle(step: int, steps: int, peak: float) -> float:
    """Learning rate of a step. It rises from peak / 25 for 30 % of steps, then falls to nearly 0 (Smith & Topin 2018).

    >>> [round(one_cycle(step, 100, 1.0), 3) for step in (0, 30, 65, 99)]
    [0.04, 1.0, 0.5, 0.001]
    """
    warm = 0.3 * steps
    if step < warm:
        low, share = peak / 25, (1 - math.cos(math.pi * step / warm)) / 2
    else:
        low, share = peak / 25e4, (1 + math.cos(math.pi * (step - warm) / max(steps - warm, 1))) / 2
    return low + (peak - low) * share
