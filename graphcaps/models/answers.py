"""A network's answer: the class of the one object in an image, those of K objects that overlap, or any number.

    one object    images (B, C, H, W), labels (B,) int64
    K objects     layers (B, K, C, H, W) with an object each, labels (B, K) int64, rows ascending; the network sees the
                  layers overlaid
    any number    images (B, C, H, W), labels (B, J) of 0 and 1; here bool, so that they aren't taken for class numbers

Only this file distinguishes the three.
"""

from __future__ import annotations

import torch

from ..errors import check_labels

MIN_LENGTH = 0.5  # least length of a present class's capsule: the margin loss asks for 0.9 or more, or 0.1 or less


def overlaid(images: torch.Tensor) -> torch.Tensor:
    """The network's input (B, C, H, W) for images (B, C, H, W) or layers (B, K, C, H, W): their sum, at most 1."""
    return images if images.dim() == 4 else images.sum(dim=1).clamp(max=1)


def longest(lengths: torch.Tensor, objects: int | None) -> torch.Tensor:
    """The network's answer: the classes of its longest capsules, as many as there are objects.

    Args:
        lengths: (B, J), of the class capsules.
        objects: K in [1, J]; None: any number, all that are longer than 0.5.

    Returns:
        (B,) int64 for one object, (B, K) for K, each row ascending; for any number (B, J) bool.

    >>> longest(torch.tensor([[0.1, 0.9, 0.5]]), 1), longest(torch.tensor([[0.8, 0.1, 0.9]]), 2)
    (tensor([1]), tensor([[0, 2]]))
    """
    if objects is None:
        return lengths > MIN_LENGTH
    return lengths.argmax(dim=1) if objects == 1 else lengths.topk(objects, dim=1).indices.sort(dim=1).values


def is_correct(answers: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """(B,) bool: whether an answer names all of an image's classes and no others; both are as ``longest`` gives them.

    >>> is_correct(torch.tensor([[3, 5], [3, 8]]), torch.tensor([[3, 5], [3, 5]]))
    tensor([ True, False])
    """
    return (answers == labels).reshape(len(labels), -1).all(dim=1)


def present(labels: torch.Tensor, num_classes: int) -> torch.Tensor:
    """(B, J) bool: which classes an image shows, for labels (B,) or (B, K) int64; (B, J) bool is returned as it is."""
    if labels.dtype == torch.bool:
        return labels
    check_labels(labels, num_classes)
    none = torch.zeros(len(labels), num_classes, dtype=torch.bool, device=labels.device)
    return none.scatter(1, labels.view(len(labels), -1), True)
