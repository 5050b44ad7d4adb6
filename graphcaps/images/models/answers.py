"""A network's answer: the class of one object, the classes of K overlapping objects, or any number of classes.

    one object    images (B, C, H, W), labels (B,) int64
    K objects     layers (B, K, C, H, W), one object per layer, labels (B, K) int64, rows ascending
                  a layer may show no object; its label is -1
    any number    images (B, C, H, W), labels (B, J) bool: whether the image shows each class (multi-label)

The network's input for layers is their overlay.
"""

import torch

from ...errors import check_labels
from ...viz.routing_trace import THRESHOLD
from ..data.images import ABSENT


def overlaid(images: torch.Tensor) -> torch.Tensor:
    """The network's input (B, C, H, W): images (B, C, H, W) unchanged, or the sum of the layers, limited to 1."""
    return images if images.dim() == 4 else images.sum(dim=1).clamp(max=1)


def longest(lengths: torch.Tensor, objects: int | None) -> torch.Tensor:
    """The network's answer for lengths (B, J): the classes of the K = ``objects`` longest capsules.

    It is (B,) int64 for K = 1, and (B, K) int64 with ascending rows for K > 1. For ``objects=None`` it is (B, J) bool:
    whether the capsule of each class is longer than 0.5.

    >>> longest(torch.tensor([[0.1, 0.9, 0.5]]), 1), longest(torch.tensor([[0.8, 0.1, 0.9]]), 2)
    (tensor([1]), tensor([[0, 2]]))
    """
    if objects is None:
        return lengths > THRESHOLD
    return lengths.argmax(dim=1) if objects == 1 else lengths.topk(objects, dim=1).indices.sort(dim=1).values


def is_correct(answers: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """(B,) bool: whether each answer names exactly the image's classes. Labels have the same format as answers.

    An image of fewer than K objects has K answers all the same, so these are right if they include its classes.

    >>> is_correct(torch.tensor([[3, 5], [3, 8]]), torch.tensor([[3, 5], [3, 5]]))
    tensor([ True, False])
    """
    if labels.dim() == 2 and labels.dtype != torch.bool:
        return ((labels[:, :, None] == answers[:, None]).any(dim=2) | (labels == ABSENT)).all(dim=1)
    return (answers == labels).reshape(len(labels), -1).all(dim=1)


def present(labels: torch.Tensor, num_classes: int) -> torch.Tensor:
    """(B, J) bool: the classes in each image, for labels (B,) or (B, K) int64. Labels (B, J) bool are unchanged."""
    if labels.dtype == torch.bool:
        return labels
    absent = (labels == ABSENT) & (labels.dim() == 2)
    check_labels(labels.masked_fill(absent, 0), num_classes)
    none = torch.zeros(len(labels), num_classes + 1, dtype=torch.bool, device=labels.device)  # the last one: absent
    return none.scatter(1, labels.masked_fill(absent, num_classes).view(len(labels), -1), True)[:, :-1]
