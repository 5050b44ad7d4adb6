"""What a network answers: the class of the one object in an image, or the classes of K objects that overlap.

    one object    images (B, C, H, W), labels (B,)
    K objects     layers (B, K, C, H, W) with an object each, labels (B, K), rows ascending; the network sees the layers
                  overlaid

All that differs between the two is here; elsewhere code works on either.
"""

from __future__ import annotations

import torch


def overlaid(images: torch.Tensor) -> torch.Tensor:
    """What the network sees (B, C, H, W) of images (B, C, H, W) or layers (B, K, C, H, W): their sum, at most 1."""
    return images if images.dim() == 4 else images.sum(dim=1).clamp(max=1)


def longest(lengths: torch.Tensor, objects: int) -> torch.Tensor:
    """The network's answer: the classes of its longest capsules, as many as there are objects.

    Args:
        lengths: (B, J), of the class capsules.
        objects: K in [1, J].

    Returns:
        (B,) int64 for one object, else (B, K), each row ascending.

    >>> longest(torch.tensor([[0.1, 0.9, 0.5]]), 1), longest(torch.tensor([[0.8, 0.1, 0.9]]), 2)
    (tensor([1]), tensor([[0, 2]]))
    """
    return lengths.argmax(dim=1) if objects == 1 else lengths.topk(objects, dim=1).indices.sort(dim=1).values


def is_correct(answers: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """(B,) bool: whether all classes of an image are found; both arguments (B,) or (B, K) ascending.

    >>> is_correct(torch.tensor([[3, 5], [3, 8]]), torch.tensor([[3, 5], [3, 5]]))
    tensor([ True, False])
    """
    return (answers == labels).reshape(len(labels), -1).all(dim=1)


def present(labels: torch.Tensor, num_classes: int) -> torch.Tensor:
    """Labels as ``margin_loss`` takes them: (B,) classes as they are, (B, K) as (B, J) of 0 and 1."""
    return labels if labels.dim() == 1 else torch.nn.functional.one_hot(labels, num_classes).sum(dim=1)
