"""The loss of ``CapsNet``: margin loss and reconstruction loss."""

from typing import Any

import torch

from ..errors import check_tensor, expect
from ..functional import margin_loss
from ..typed import AtLeastZero, typed
from .answers import present

RECONSTRUCTION_WEIGHT = 0.0005  # weight of the squared errors, summed over pixels: section 4.1


@typed
def capsnet_loss(
    output: Any, images: torch.Tensor, labels: torch.Tensor, reconstruction_weight: AtLeastZero = RECONSTRUCTION_WEIGHT
) -> torch.Tensor:
    """Margin loss + weight x squared errors summed over pixels, both averaged over the batch (section 4.1).

    If images show K objects, each reconstruction is compared with its own object, and the errors are averaged over the
    objects; section 6.1 uses one object at a time.

    Args:
        images: (B, C, H, W), or layers (B, K, C, H, W) whose overlay was the network's input.
        labels: for images, (B,) classes or (B, J) of 0 and 1; for layers, (B, K) classes in the order of the layers.

    Raises:
        InputError: images and reconstructions differ in shape (torch might broadcast them).
    """
    expect(hasattr(output, "lengths"), "output", "a CapsNetOutput", type(output).__name__)
    check_tensor("images", images)
    if images.dim() == 5:
        layers = tuple(images.shape[:2])
        expect(labels.shape == layers, "labels", f"(B, K)={layers} of layers", tuple(labels.shape))
        labels = present(labels, output.lengths.shape[1])
    margin = margin_loss(output.lengths, labels)
    if output.reconstruction is None:
        return margin
    drawn = tuple(output.reconstruction.shape)
    expect(tuple(images.shape) == drawn, "images", f"{drawn}, like the reconstructions", tuple(images.shape))
    errors = (output.reconstruction - images).square().flatten(-3).sum(dim=-1)  # (B,) or (B, K)
    return margin + reconstruction_weight * errors.mean()
