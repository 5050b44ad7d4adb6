"""Evaluation of a network. Each image is classified once, in order, and the network gets no labels."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from ..data import Batches
from ..models import ImageNetwork
from ..models.answers import is_correct, longest, overlaid, present
from ..models.evidence import evidence_of

EVALUATION_BATCH = 250
Z = 1.959964  # 95 % of a normal distribution lie within so many standard deviations

OnProgress = Callable[[float], object]
"""Called after each batch with the share of images that are done."""


@dataclass(frozen=True)
class Evaluation:
    """Answers of a network to N images: ``predicted`` and ``labels`` (N,) int64 on the CPU, and the mean ``loss``.

    If images show K objects, both are (N, K), with the classes of each row in ascending order. If an image may show any
    number of classes (multi-label), both are (N, J) bool. An answer is right if it names exactly the image's classes.
    """

    predicted: Tensor
    labels: Tensor
    loss: float
    evidence: Tensor  # (N, 3) on the CPU, see models.evidence.evidence_of

    @property
    def right(self) -> Tensor:
        """(N,) bool: whether each answer is right."""
        return is_correct(self.predicted, self.labels)

    @property
    def correct(self) -> int:
        return int(self.right.sum())

    def named(self, threshold: float) -> int:
        """The number of images for which all K classes of the answer have a score above the threshold."""
        return int((self.evidence[:, 0] > threshold).sum())

    @property
    def accuracy(self) -> float:
        return self.correct / len(self.labels)

    @property
    def interval(self) -> tuple[float, float]:
        """95 % Wilson score interval of the accuracy."""
        return wilson_interval(self.correct, len(self.labels))

    def per_class(self, num_classes: int) -> tuple[Tensor, Tensor, Tensor]:
        """Count images per class, (J,) each: labelled with it, both labelled and answered with it, answered with it."""
        shown, answered = present(self.labels, num_classes), present(self.predicted, num_classes)  # (N, J)
        return shown.sum(dim=0), (shown & answered).sum(dim=0), answered.sum(dim=0)

    def confusion(self, num_classes: int) -> Tensor:
        """(J, J) int64 counts: rows are true classes, columns are predicted classes. Multi-label isn't supported.

        Each of an image's K objects counts once. An image's missed and wrong classes are paired in ascending order.
        """
        labels, predicted = self.labels, self.predicted
        if labels.dim() > 1:  # reorder each row (N, K): first the classes in both, then the others
            same = labels.unsqueeze(2) == predicted.unsqueeze(1)  # (N, K, K)
            by_label, by_answer = ((~same.any(dim=dim)).long().argsort(dim=1, stable=True) for dim in (2, 1))
            labels, predicted = labels.gather(1, by_label), predicted.gather(1, by_answer)
        pairs = (labels * num_classes + predicted).flatten()
        return torch.bincount(pairs, minlength=num_classes**2).view(num_classes, num_classes)


def wilson_interval(correct: int, total: int) -> tuple[float, float]:
    """Score interval of a proportion for 95 % (Wilson 1927).

    >>> [round(bound, 4) for bound in wilson_interval(9950, 10000)]
    [0.9934, 0.9962]
    """
    share, spread = correct / total, Z * Z / total
    centre = share + spread / 2
    half = Z * math.sqrt(share * (1 - share) / total + spread / (4 * total))
    return max(0.0, (centre - half) / (1 + spread)), min(1.0, (centre + half) / (1 + spread))


def in_eval_mode(
    model: ImageNetwork, batches: Batches, on_progress: OnProgress | None = None
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield images and labels of ``batches`` in order, with the network in eval mode; restore its mode at the end."""
    training, seen = model.training, 0
    model.eval()
    try:
        for images, labels in batches.in_order():
            yield images, labels
            seen += len(labels)
            if on_progress is not None:
                on_progress(seen / batches.num_images)
    finally:
        model.train(training)


@torch.no_grad()
def evaluate(model: ImageNetwork, batches: Batches, on_progress: OnProgress | None = None) -> Evaluation:
    """Classify all images of ``batches`` in eval mode, on their device; restore the model's mode at the end."""
    predicted, labels, losses, evidence = [], [], [], []
    for images, truth in in_eval_mode(model, batches, on_progress):
        inputs = overlaid(images)
        output = model(inputs)
        evidence.append(evidence_of(inputs, output, model.objects))
        predicted.append(longest(output.scores, model.objects))
        labels.append(truth)
        losses.append(model.loss(output, images, truth) * len(truth))
    mean = float(torch.stack(losses).sum()) / sum(map(len, labels))
    return Evaluation(torch.cat(predicted).cpu(), torch.cat(labels).cpu(), mean, torch.cat(evidence).cpu())
