"""Errors of networks and of layers for images name what doesn't fit, before it becomes a wrong answer."""

from __future__ import annotations

import pytest
import torch

from graphcaps import CapsNet, InputError
from graphcaps.models import CNN, MatrixCapsNet, capsnet_loss
from graphcaps.nn import CapsuleLayer, ConvCaps, Decoder, MatrixClassCaps, MatrixConvCaps, Poses, SharedCaps

NETWORKS = {"compact": CapsNet, "cnn-small": CNN, "matrix-small": MatrixCapsNet}
IMAGES = torch.rand(3, 1, 20, 20, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize(
    ("images", "text"),
    [
        (255 * IMAGES, r"numbers in \[0, 1\], got .* to 25\d.*\. Divide them: images / 255"),
        ((IMAGES - 0.13) / 0.31, r"numbers in \[0, 1\], got -0\.\d+ to 2\.\d+\. Networks here read images as they are"),
        (IMAGES * float("nan"), r"numbers in \[0, 1\], got NaN or infinity$"),
        (IMAGES[0], r"\(B, C=1, H=20, W=20\), got \(1, 20, 20\)\. One image is a batch too: images\[None\]"),
    ],
    ids=range(4),
)
def test_images_that_a_network_would_misread_are_refused(name, images, text):
    network = NETWORKS[name].from_preset(name, (1, 20, 20)).eval()
    with pytest.raises(InputError, match=f"^images: expected {text}"):
        network(images)


LAYERS = [
    CapsuleLayer(12, 3),
    SharedCaps(2, torch.rand(6, 2), num_parents=3),
    ConvCaps((2, 3), 2, 3, kernel=2),
    MatrixConvCaps((2, 3), 2, 3, kernel=2),
    MatrixClassCaps(2, torch.rand(6, 2), 3),
]


@pytest.mark.parametrize("layer", LAYERS, ids=lambda layer: type(layer).__name__)
def test_a_batch_before_the_capsules_is_refused_with_the_fix(layer):
    matrix = isinstance(layer, (MatrixConvCaps, MatrixClassCaps))
    dim = 16 if matrix else 8

    def enter(u):
        return layer(Poses(u, u[..., 0])) if matrix else layer(u)

    enter(torch.rand(12, 4, dim))
    wanted = rf"^u: expected \(I=12, \*, P={dim}\), got "
    with pytest.raises(InputError, match=wanted + r".*\. Capsules come first, then the batch: u\.transpose\(0, 1\)"):
        enter(torch.rand(4, 12, dim))
    with pytest.raises(InputError, match=wanted + rf"\(12, 4, {dim - 1}\)$"):
        enter(torch.rand(12, 4, dim - 1))
    if matrix:
        with pytest.raises(InputError, match=r"^capsules: expected Poses\(.*\), got tuple"):
            layer((torch.rand(12, 4, 16), torch.rand(12, 4)))


def test_the_decoder_wants_the_batch_first():
    decoder, chosen = Decoder(3, 4, (1, 5, 5)), torch.tensor([0, 2])
    assert decoder(torch.rand(2, 3, 4), chosen).shape == (2, 1, 5, 5)
    with pytest.raises(InputError, match=r"got \(3, 2, 4\)\. Layers give \(J, B, D\): v\.transpose\(0, 1\)"):
        decoder(torch.rand(3, 2, 4), chosen)


def test_a_loss_does_not_broadcast_images():
    output = CapsNet.from_preset("compact", (1, 20, 20)).eval()(IMAGES)
    with pytest.raises(InputError, match=r"^images: expected \(3, 1, 20, 20\), as the reconstructions, got "):
        capsnet_loss(output, IMAGES[:1], torch.tensor([0, 1, 2]))
