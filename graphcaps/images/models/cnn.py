"""CNNs as baselines for the capsule networks.

    image (B, C, H, W) --convolutions--> features --linear layers--> logits (B, J) --softmax--> scores (B, J)

``cnn`` is the baseline of Sabour, Frosst & Hinton 2017, section 5. Its convolutions are padded to keep the image's
size, because only this matches the paper's 35.4 M parameters: 35,445,522 at 28 x 28. Without padding there are 13.3 M.

``cnn-small`` is the preset ``compact`` without capsules: the same convolutions, including those of the primary
capsules, then ReLU and linear layers with as many parameters as the capsules' matrices. Neither has a decoder.
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import torch
from torch import nn
from torch.nn.functional import cross_entropy

from ...errors import check_labels, expect
from ...functional import at_least_float32
from ...tracing import exportable
from ...typed import Size, typed
from .capsnet import PARENT_DIM
from .network import ImageNetwork, choose_preset
from .stems import compact

DROPOUT = 0.5  # before the last layer; the paper gives no rate


@exportable
class CNNOutput(NamedTuple):
    """scores (B, J) in [0, 1], the softmax of logits (B, J)."""

    scores: torch.Tensor
    logits: torch.Tensor


def _cnn(channels: int, size: tuple[int, int], num_classes: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for pair in pairwise((channels, 256, 256, 128)):
        layers += [nn.Conv2d(*pair, 5, padding=2), nn.ReLU()]
    layers.append(nn.Flatten())
    for pair in pairwise((128 * size[0] * size[1], 328, 192)):
        layers += [nn.Linear(*pair), nn.ReLU()]
    return nn.Sequential(*layers, nn.Dropout(DROPOUT), nn.Linear(192, num_classes))


def _cnn_small(channels: int, size: tuple[int, int], num_classes: int) -> nn.Sequential:
    stem, primary = compact(channels, size)
    features = primary.conv.out_channels
    matrices = features * num_classes * PARENT_DIM  # numbers in T x J matrices of P x D, where T P = features
    units = round((matrices - num_classes) / (features + 1 + num_classes))
    classes = nn.Linear(features, units), nn.ReLU(), nn.Linear(units, num_classes)
    return nn.Sequential(stem, primary.conv, nn.Flatten(), nn.ReLU(), *classes)


# name: (smallest side of an image in pixels, builder)
_PRESETS = {"cnn": (1, _cnn), "cnn-small": (11, _cnn_small)}


class CNN(ImageNetwork):
    """A convolutional network, trained with cross entropy; ``layers`` map images (B, C, H, W) to logits (B, J).

    >>> net = CNN.from_preset("cnn-small", image_shape=(1, 28, 28), num_classes=10).eval()
    >>> net(torch.zeros(2, 1, 28, 28)).scores.shape
    torch.Size([2, 10])
    """

    def __init__(self, layers: nn.Module, image_shape: tuple[int, int, int]):
        super().__init__(image_shape)
        self.layers = layers

    @classmethod
    @typed
    def from_preset(
        cls, name: str, image_shape: tuple[Size, Size, Size] = (1, 28, 28), num_classes: Size = 10, objects: Size = 1
    ) -> CNN:
        """Build ``"cnn"`` (35.4 M parameters on MNIST) or ``"cnn-small"`` (162 K, like ``compact`` without decoder).

        Raises:
            InputError: an unknown name, images (C, H, W) that are too small, or ``objects`` other than 1.
        """
        _, build = choose_preset(_PRESETS, name, image_shape)
        advice = "Choose a capsule network, such as --model compact"
        expect(objects == 1, "objects", f"1 for '{name}', whose softmax gives one answer", objects, advice)
        model = cls(build(image_shape[0], image_shape[1:], num_classes), image_shape)
        model.preset = dict(name=name, image_shape=tuple(image_shape), num_classes=num_classes, objects=objects)
        return model

    def forward(self, images: torch.Tensor, labels: torch.Tensor | None = None) -> CNNOutput:
        """Classify images (B, C, H, W) in [0, 1]. ``labels`` are ignored: there is no decoder."""
        logits = at_least_float32(self.layers(self.check_images(images)))  # (B, J)
        return CNNOutput(logits.softmax(dim=1), logits)

    def loss(
        self, output: CNNOutput, images: torch.Tensor, labels: torch.Tensor, progress: float = 1.0
    ) -> torch.Tensor:
        """Cross entropy, the mean over the batch; labels (B,) int64. ``progress`` is ignored."""
        fits = labels.shape == output.logits.shape[:1] and labels.dtype == torch.int64
        expect(fits, "labels", f"(B={len(output.logits)},) int64", f"{tuple(labels.shape)} {labels.dtype}")
        check_labels(labels, output.logits.shape[1])
        return cross_entropy(output.logits, labels)
