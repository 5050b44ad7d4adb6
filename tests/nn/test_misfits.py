"""What doesn't fit is refused in words where it can be seen, on the CPU, before it becomes a wrong answer."""

from __future__ import annotations

import pytest
import torch

from graphcaps import (
    CapsNet,
    InputError,
    complete_graph,
    route,
)
from graphcaps.models import CNN, MatrixCapsNet, capsnet_loss
from graphcaps.nn import (
    CapsuleLayer,
    ConvCaps,
    Decoder,
    MatrixClassCaps,
    MatrixConvCaps,
    Poses,
    SharedCaps,
)

NETWORKS = {"compact": CapsNet, "cnn-small": CNN, "matrix-small": MatrixCapsNet}


@pytest.fixture(scope="module", params=NETWORKS)
def network(request):
    torch.manual_seed(0)
    return NETWORKS[request.param].from_preset(request.param, (1, 20, 20)).eval()


IMAGES = torch.rand(3, 1, 20, 20, generator=torch.Generator().manual_seed(0))
BAD_IMAGES = [
    (255 * IMAGES, r"numbers in \[0, 1\], got .* to 25\d.*\. Divide them: images / 255"),
    (
        (IMAGES - 0.13) / 0.31,
        r"numbers in \[0, 1\], got -0\.\d+ to 2\.\d+\. Networks here read images as they are, not",
    ),
    (IMAGES * float("nan"), r"numbers in \[0, 1\], got NaN or infinity$"),
    (IMAGES[0], r"\(B, C=1, H=20, W=20\), got \(1, 20, 20\)\. One image is a batch too: images\[None\]"),
]


@pytest.mark.parametrize(("images", "text"), BAD_IMAGES, ids=range(len(BAD_IMAGES)))
def test_images_that_a_network_would_misread_are_refused(network, images, text):
    with pytest.raises(InputError, match=f"^images: expected {text}"):
        network(images)


LAYERS = [
    (CapsuleLayer(12, 3), 12, 8),
    (SharedCaps(2, torch.rand(6, 2), num_parents=3), 12, 8),
    (ConvCaps((2, 3), 2, 3, kernel=2), 12, 8),
    (MatrixConvCaps((2, 3), 2, 3, kernel=2), 12, 16),
    (MatrixClassCaps(2, torch.rand(6, 2), 3), 12, 16),
]


def enter(layer, u):
    return layer(Poses(u, u[..., 0])) if isinstance(layer, (MatrixConvCaps, MatrixClassCaps)) else layer(u)


@pytest.mark.parametrize(("layer", "num_children", "dim"), LAYERS, ids=lambda value: type(value).__name__)
def test_a_batch_before_the_capsules_is_refused_with_what_to_do(layer, num_children, dim):
    enter(layer, torch.rand(num_children, 4, dim))
    wanted = rf"^u: expected \(I={num_children}, \*, P={dim}\), got "
    with pytest.raises(InputError, match=wanted + r".*\. Capsules come first, then the batch: u\.transpose\(0, 1\)"):
        enter(layer, torch.rand(4, num_children, dim))
    with pytest.raises(InputError, match=wanted + rf"\({num_children}, 4, {dim - 1}\)$"):
        enter(layer, torch.rand(num_children, 4, dim - 1))
    with pytest.raises(InputError, match=r"^u: expected floating point, got torch.int64\. Convert it: u\.float\(\)"):
        enter(layer, torch.ones(num_children, 4, dim, dtype=torch.int64))


@pytest.mark.parametrize("layer", [LAYERS[3][0], LAYERS[4][0]])
def test_matrix_capsules_want_poses_by_name(layer):
    with pytest.raises(InputError, match=r"^capsules: expected Poses\(.*\), got tuple"):
        layer((torch.rand(12, 4, 16), torch.rand(12, 4)))


def test_the_decoder_wants_the_batch_first():
    decoder, chosen = Decoder(3, 4, (1, 5, 5)), torch.tensor([0, 2])
    assert decoder(torch.rand(2, 3, 4), chosen).shape == (2, 1, 5, 5)
    with pytest.raises(InputError, match=r"got \(3, 2, 4\)\. Layers give \(J, B, D\): v\.transpose\(0, 1\)"):
        decoder(torch.rand(3, 2, 4), chosen)
    with pytest.raises(InputError, match=r"^capsules: expected \(B=2, J=3, D=4\), got \(1, 3, 4\)$"):
        decoder(torch.rand(1, 3, 4), chosen)


@pytest.mark.parametrize("images", [IMAGES[:1], IMAGES[:, :, :, :1]])
def test_a_loss_does_not_broadcast_images(images):
    torch.manual_seed(0)
    output = CapsNet.from_preset("compact", (1, 20, 20)).eval()(IMAGES)
    with pytest.raises(InputError, match=r"^images: expected \(3, 1, 20, 20\), as the reconstructions, got "):
        capsnet_loss(output, images, torch.tensor([0, 1, 2]))


LABELS, GRAPH = torch.tensor([0, 2]), complete_graph(3, 2)


@pytest.mark.parametrize("routing", ["em", "dynamic"])
def test_logits_as_activations_are_refused_and_lengths_above_1_are_not(routing):
    activation = torch.tensor([0.2, 1.3, 0.0])
    assert route(GRAPH, torch.rand(6, 4), routing, activation=activation).v.isfinite().all()
    with pytest.raises(InputError, match=r"^activation: expected numbers in \[0, 1\], got -0\.8\. They are prob"):
        route(GRAPH, torch.rand(6, 4), routing, activation=activation - 0.8)
