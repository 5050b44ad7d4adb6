"""The presets: sizes, shapes, receptive fields, losses, and images of any size."""

import pytest
import torch
from torch import nn

from graphcaps import CapsNet, InputError, margin_loss
from graphcaps.images.models import CNN, capsnet_loss
from graphcaps.nn import CapsuleLayer, PrimaryCaps, receptive_fields
from graphcaps.routing import Dynamic

pytestmark = pytest.mark.usefixtures("one_thread")


def net_of(preset, image_shape=(1, 28, 28), num_classes=10, **options):
    torch.manual_seed(0)
    return CapsNet.from_preset(preset, image_shape, num_classes, **options)


def images_of(count, image_shape):
    return torch.rand(count, *image_shape, generator=torch.Generator().manual_seed(1))


def count(module):
    return sum(parameter.numel() for parameter in module.parameters())


def test_presets_have_the_sizes_that_their_docstrings_say():
    paper, compact, deep = net_of("paper"), net_of("compact"), net_of("deep")
    # section 4 of the paper: 8.2 M with the decoder, 6.8 M without; one convolution for all 32 types
    assert count(paper) == 8_215_568 and count(paper.primary) == 256 * 256 * 81 + 256
    assert count(paper.capsules) == 1152 * 10 * 8 * 16
    assert count(net_of("compact", (1, 40, 40)).stem) == count(compact.stem)  # larger images have other stems
    assert count(compact) - count(compact.decoder) == 161_664 and compact.capsules.graph().num_edges() == 160
    assert [layer.num_children for layer in (*deep.between, deep.capsules)] == [1296, 256, 64]
    assert [layer.graph().num_edges() for layer in (*deep.between, deep.capsules)] == [36_864, 9_216, 640]
    assert (deep.child_types, count(deep) - count(deep.decoder)) == (16, 489_536)
    small = net_of("small", (1, 36, 36))
    assert (count(small) - count(small.decoder), small.capsules.num_children) == (401_584, 16)
    cnn = CNN.from_preset("cnn")
    assert count(cnn) == 35_445_522  # section 5 of the paper: 35.4 M
    convs = [layer for layer in cnn.layers if isinstance(layer, nn.Conv2d)]
    assert [(conv.out_channels, conv.kernel_size) for conv in convs] == [(n, (5, 5)) for n in (256, 256, 128)]


@pytest.mark.parametrize(
    ("preset", "shape", "num_classes"),
    [
        ("paper", (2, 18, 23), 4),
        ("compact", (1, 11, 11), 1),
        ("deep", (2, 24, 31), 4),
        ("parts", (1, 13, 13), 1),
        ("small", (1, 29, 40), 3),
    ],
)
def test_sizes_come_from_the_images_and_the_classes(preset, shape, num_classes):
    net, images = net_of(preset, shape, num_classes), images_of(2, shape)
    lengths, capsules, reconstruction = net.eval()(images)
    assert lengths.shape == (2, num_classes) and capsules.shape == (2, num_classes, 16)
    assert reconstruction.shape == images.shape
    torch.testing.assert_close(lengths, capsules.norm(dim=-1))
    assert ((lengths >= 0) & (lengths < 1)).all() and ((reconstruction >= 0) & (reconstruction <= 1)).all()
    u = net.children_of(images)
    assert u.shape == (net.capsules.num_children, 2, 8) and (u.norm(dim=-1) < 1).all()
    assert net.receptive_fields().shape == (net.capsules.num_children, 4)


@pytest.mark.parametrize(
    ("preset", "shape"),
    [("paper", (2, 19, 22)), ("compact", (2, 28, 15)), ("deep", (1, 32, 38)), ("parts", (2, 19, 24))],
)
def test_receptive_fields_are_the_pixels_that_a_gradient_reaches(preset, shape):
    """One iteration of routing: after a second, a child of convolutional capsules depends on other windows too."""
    net = net_of(preset, shape, routing=Dynamic(1)).eval()
    fields = net.receptive_fields()
    images = images_of(1, shape).requires_grad_()
    u = net.children_of(images)[:, 0]  # (I, 8)
    step = max(1, len(u) // 17)  # a spread of types and positions; every child where there are few
    for i in range(0, len(u), step):
        (gradient,) = torch.autograd.grad(u[i].sum(), images, retain_graph=True)
        rows, columns = gradient[0].abs().amax(0).nonzero().T
        top, left = rows.min(), columns.min()
        measured = [top, left, rows.max() - top + 1, columns.max() - left + 1]
        assert fields[i].tolist() == [int(x) for x in measured]


def test_fields_that_can_not_be_known_are_refused():
    for conv in (nn.Conv2d(1, 4, 3, padding=1), nn.Conv2d(1, 4, 3, dilation=2), nn.Conv2d(1, 4, 3, padding="same")):
        with pytest.raises(InputError, match="convs: expected convolutions without padding"):
            receptive_fields([conv], 1, (8, 8))
    net = CapsNet(nn.MaxPool2d(2), PrimaryCaps(1, 1, 4, 3), CapsuleLayer(1, 2, 4), (1, 8, 8))
    with pytest.raises(InputError, match="stem and primary: expected convolutions, .* got MaxPool2d"):
        net.receptive_fields()


# Training


@pytest.mark.parametrize(("preset", "shape"), [("paper", (1, 19, 19)), ("deep", (1, 28, 28))])
def test_training_reaches_every_parameter(preset, shape):
    net, images, labels = net_of(preset, shape, 3).train(), images_of(6, shape), torch.arange(6) % 3
    capsnet_loss(net(images, labels), images, labels).backward()
    for name, parameter in net.named_parameters():
        assert parameter.grad.isfinite().all() and parameter.grad.any(), name


def test_bfloat16_autocast_gives_nearly_what_float32_gives():
    net, images, labels = net_of("deep", (1, 23, 23), 3).eval(), images_of(4, (1, 23, 23)), torch.arange(4) % 3
    exact = net(images)
    with torch.autocast("cpu", torch.bfloat16):
        output = net(images)
        loss = capsnet_loss(output, images, labels)
    assert output.lengths.dtype == output.reconstruction.dtype == loss.dtype == torch.float32
    # bfloat16 keeps 8 bits: 2^-8 per layer, a handful of layers, lengths below 1
    torch.testing.assert_close(output.lengths, exact.lengths, rtol=0, atol=0.05)
    loss.backward()
    assert all(parameter.grad.dtype == torch.float32 for parameter in net.parameters())
    assert all(parameter.grad.isfinite().all() for parameter in net.parameters())


def test_the_loss_is_margin_plus_weighted_sum_of_squared_pixels():
    net, images, labels = net_of("compact", (1, 11, 11), 3).eval(), images_of(4, (1, 11, 11)), torch.arange(4) % 3
    output = net(images)
    margin = margin_loss(output.lengths, labels)
    squares = [((output.reconstruction[k] - images[k]) ** 2).sum() for k in range(4)]
    torch.testing.assert_close(capsnet_loss(output, images, labels), margin + 0.0005 * sum(squares) / 4)
    torch.testing.assert_close(capsnet_loss(output, images, labels, reconstruction_weight=0.0), margin)


# Images of any size


@pytest.mark.parametrize("size", [(41, 41), (48, 64)], ids=str)
def test_larger_images_have_as_many_children_and_kernels_as_small(size):
    with torch.no_grad():
        for name in ("compact", "parts"):
            network = CapsNet.from_preset(name, (3, *size), 3).eval()
            assert network(torch.rand(1, 3, *size)).lengths.shape == (1, 3)
            fields = network.receptive_fields()
            assert len(fields) == network.capsules.num_children
            assert ((fields[:, :2] + fields[:, 2:]).amax(0) > torch.tensor(size) * 0.92).all()
            assert 100 <= len(fields) <= 600 if name == "parts" else max(network.primary.conv.kernel_size) <= 15


def test_larger_images_have_more_positions_of_parts_and_no_more_weights():
    for side, positions in ((28, 64), (40, 196)):
        net = net_of("parts", (1, side, side))
        own = sum(p.numel() for name, p in net.named_parameters() if not name.startswith("decoder."))
        assert own == 132_608 and net.capsules.num_children == 8 * positions
        fields = net.receptive_fields()
        assert fields[:, 2:].unique().tolist() == [13]
        torch.testing.assert_close(net.capsules.places, (2 * (fields[:, :2] + 6.5) / side - 1).unsqueeze(1))
