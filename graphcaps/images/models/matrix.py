"""The network of Hinton, Sabour & Frosst 2018, "Matrix capsules with EM routing".

    image (B, C, H, W) --5x5 convolution, stride 2, A channels, ReLU--> features
        --1x1 convolutions--> B types of primary capsules
        --3x3, stride 2--> C types of convolutional capsules --3x3, stride 1--> D types
        --coordinate addition--> one capsule per class, whose activations are the scores

Each capsule has a 4 x 4 pose and an activation. EM routes every layer of capsules. Images of 32 x 32 pixels give
14 x 14, 6 x 6 and 4 x 4 positions, as in the paper's figure 1. There is no decoder. For smallNORB (two channels,
32 x 32 pixels, 5 classes), ``matrix-small`` has 68,754 parameters (paper: "68K") and ``matrix`` 317,194 ("310K").

Differs: batch normalisation follows the ReLU, as in other public implementations. The paper has none.
"""

from __future__ import annotations

import copy
from typing import NamedTuple

import torch
from torch import nn

from ...algorithms.by_name import to_json
from ...errors import expect
from ...functional import spread_loss
from ...nn import MatrixClassCaps, MatrixConvCaps, MatrixPrimaryCaps
from ...nn.matrix_caps import em_routing
from ...routing import EM
from ...tracing import exportable
from ...typed import Size, typed
from .network import RoutingNetwork, choose_preset, field_centres, output_size

MIN_SIDE = 17  # smallest image side, in pixels, which leaves one position in the last layer
# name: (smallest side, A, B, C, D)
_PRESETS = {"matrix-small": (MIN_SIDE, 64, 8, 16, 16), "matrix": (MIN_SIDE, 32, 32, 32, 32)}
BETA_U = -0.4, -0.35, -0.2  # initial beta_u of each layer, chosen to make half of the capsules active on MNIST
MARGINS = 0.2, 0.9  # margin of the loss at the first and the last step, linear in between: section 3


@exportable
class MatrixOutput(NamedTuple):
    """scores (B, J) in [0, 1], the activations of the class capsules; capsules (B, J, 16), their poses."""

    scores: torch.Tensor
    capsules: torch.Tensor


class MatrixCapsNet(RoutingNetwork):
    """Matrix capsules with EM routing; ``from_preset`` builds the paper's two networks.

    >>> net = MatrixCapsNet.from_preset("matrix-small", image_shape=(1, 28, 28), num_classes=10).eval()
    >>> scores, poses = net(torch.zeros(2, 1, 28, 28))
    >>> scores.shape, poses.shape
    (torch.Size([2, 10]), torch.Size([2, 10, 16]))
    """

    @classmethod
    @typed
    def from_preset(
        cls,
        name: str,
        image_shape: tuple[Size, Size, Size] = (1, 28, 28),
        num_classes: Size = 10,
        routing: EM | str = "em",
        objects: Size = 1,
    ) -> MatrixCapsNet:
        """Build ``"matrix-small"`` (A = 64, B = 8, C = D = 16) or ``"matrix"`` (A = B = C = D = 32).

        Each layer has a copy of the routing, with its own initial beta_u.

        Raises:
            InputError: an unknown name, images (C, H, W) that are too small, or ``objects`` other than 1.
        """
        _, features, types, first, second = choose_preset(_PRESETS, name, image_shape)
        advice = "Choose another capsule network, such as --model compact"
        expect(objects == 1, "objects", f"1 for '{name}', whose loss knows one true class", objects, advice)
        routing = em_routing(routing)
        stem = nn.Sequential(nn.Conv2d(image_shape[0], features, 5, 2), nn.ReLU(), nn.BatchNorm2d(features))
        primary = MatrixPrimaryCaps(features, types)
        routings = [copy.deepcopy(routing) for _ in BETA_U]
        for own, start in zip(routings, BETA_U, strict=True):
            own.beta_u = start
        below = MatrixConvCaps(output_size(stem, image_shape), types, first, 3, 2, routings[0])
        above = MatrixConvCaps(below.out_grid, first, second, 3, 1, routings[1])
        centres = field_centres([stem[0], below, above], image_shape)
        capsules = MatrixClassCaps(second, centres, num_classes, routings[2])
        model = cls(stem, primary, capsules, image_shape, (below, above))
        model.preset = dict(name=name, image_shape=tuple(image_shape), num_classes=num_classes, objects=objects)
        model.preset["routing"] = to_json(routing)
        return model

    def forward(self, images: torch.Tensor, labels: torch.Tensor | None = None) -> MatrixOutput:
        """Classify images (B, C, H, W) in [0, 1]. ``labels`` are ignored: there is no decoder."""
        pose, activation = self.capsules(self.children_of(images))
        return MatrixOutput(activation.transpose(0, 1), pose.transpose(0, 1))

    def loss(
        self, output: MatrixOutput, images: torch.Tensor, labels: torch.Tensor, progress: float = 1.0
    ) -> torch.Tensor:
        """Spread loss for labels (B,). The margin grows with ``progress``, the share of training that is done."""
        return spread_loss(output.scores, labels, MARGINS[0] + progress * (MARGINS[1] - MARGINS[0]))
