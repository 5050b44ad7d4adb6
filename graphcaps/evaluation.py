"""How good a network is: every image counted once, in order, without labels reaching the network."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from .data import Batches
from .models import CapsNet, capsnet_loss

EVALUATION_BATCH = 250


@dataclass(frozen=True)
class Evaluation:
    """Answers of a network on N images: ``predicted`` and ``labels`` (N,) int64 on the CPU, mean ``loss``."""

    predicted: torch.Tensor
    labels: torch.Tensor
    loss: float

    @property
    def correct(self) -> int:
        return int((self.predicted == self.labels).sum())

    @property
    def accuracy(self) -> float:
        """Share of right answers, in [0, 1]."""
        return self.correct / len(self.labels)

    @property
    def interval(self) -> tuple[float, float]:
        """95 % Wilson score interval of the accuracy."""
        return wilson_interval(self.correct, len(self.labels))

    def confusion(self, num_classes: int) -> torch.Tensor:
        """(J, J) int64 counts: rows are true classes, columns predicted ones."""
        pairs = self.labels * num_classes + self.predicted
        return torch.bincount(pairs, minlength=num_classes**2).view(num_classes, num_classes)


def wilson_interval(correct: int, total: int, z: float = 1.959964) -> tuple[float, float]:
    """Score interval of a proportion (Wilson 1927), by default at 95 %.

    >>> [round(bound, 4) for bound in wilson_interval(9950, 10000)]
    [0.9934, 0.9962]
    """
    share, spread = correct / total, z * z / total
    centre = share + spread / 2
    half = z * math.sqrt(share * (1 - share) / total + spread / (4 * total))
    return (centre - half) / (1 + spread), (centre + half) / (1 + spread)


@torch.no_grad()
def evaluate(model: CapsNet, batches: Batches) -> Evaluation:
    """Classify all images of ``batches`` in eval mode; the network's mode is put back afterwards."""
    training = model.training
    model.eval()
    predicted, labels, losses = [], [], []
    try:
        for images, truth in batches.in_order():
            output = model(images)
            predicted.append(output.lengths.argmax(dim=1))
            labels.append(truth)
            losses.append(capsnet_loss(output, images, truth) * len(truth))
    finally:
        model.train(training)
    total = sum(len(truth) for truth in labels)
    return Evaluation(torch.cat(predicted).cpu(), torch.cat(labels).cpu(), float(torch.stack(losses).sum()) / total)
