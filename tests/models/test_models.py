"""The presets: sizes, shapes, receptive fields, images apart from each other, losses, bad images."""

from __future__ import annotations

import pytest
import torch

from graphcaps import CapsNet, margin_loss
from graphcaps.models import capsnet_loss
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
    assert count(compact) - count(compact.decoder) == 161_664 and compact.capsules.graph().num_edges() == 160
    assert [layer.num_children for layer in (*deep.between, deep.capsules)] == [1296, 256, 64]
    assert [layer.graph().num_edges() for layer in (*deep.between, deep.capsules)] == [36_864, 9_216, 640]
    assert (deep.child_types, count(deep) - count(deep.decoder)) == (16, 489_536)


SHAPES = [
    ("paper", (2, 18, 23), 4),
    ("compact", (1, 11, 11), 1),
    ("deep", (2, 24, 31), 4),
    ("parts", (1, 13, 13), 1),
]


@pytest.mark.parametrize(("preset", "shape", "num_classes"), SHAPES)
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


@pytest.mark.fact(2)
@pytest.mark.parametrize(("preset", "shape"), [("paper", (1, 19, 17)), ("compact", (1, 28, 28)), ("deep", (1, 23, 27))])
def test_a_batch_of_images_gives_what_they_give_one_by_one(preset, shape):
    net, images = net_of(preset, shape).eval(), images_of(4, shape)
    together = net(images)
    for k in range(4):
        for got, wanted in zip(net(images[k : k + 1]), together, strict=True):
            # float32 sums of up to 256 * 81 terms, taken in another order: sqrt(20736) * 1.2e-7 = 2e-5
            torch.testing.assert_close(got, wanted[k : k + 1], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("preset", "shape"),
    [
        ("paper", (2, 19, 22)),
        ("compact", (2, 28, 15)),
        ("deep", (1, 32, 38)),
        ("parts", (2, 19, 24)),
    ],
)
def test_receptive_fields_are_the_pixels_that_a_gradient_reaches(preset, shape):
    """Routing takes one iteration: in the next, a child of convolutional capsules hears of other windows too."""
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


@pytest.mark.parametrize(
    ("preset", "shape"),
    [("paper", (1, 19, 19)), ("deep", (1, 28, 28))],
)
def test_training_reaches_every_parameter(preset, shape):
    net, images, labels = net_of(preset, shape, 3).train(), images_of(6, shape), torch.arange(6) % 3
    capsnet_loss(net(images, labels), images, labels).backward()
    for name, parameter in net.named_parameters():
        assert parameter.grad.isfinite().all() and parameter.grad.any(), name


@pytest.mark.parametrize(("preset", "shape"), [("paper", (1, 19, 19)), ("deep", (1, 23, 23))])
def test_bfloat16_autocast_gives_nearly_what_float32_gives(preset, shape):
    net, images, labels = net_of(preset, shape, 3).eval(), images_of(4, shape), torch.arange(4) % 3
    exact = net(images)
    with torch.autocast("cpu", torch.bfloat16):
        output = net.train(preset == "paper")(images, labels if preset == "paper" else None)
        loss = capsnet_loss(output, images, labels)
    assert output.lengths.dtype == output.reconstruction.dtype == loss.dtype == torch.float32
    # bfloat16 keeps 8 bits: 2^-8 per layer, a handful of layers, lengths below 1
    torch.testing.assert_close(output.lengths, exact.lengths, rtol=0, atol=0.05)
    loss.backward()
    assert all(parameter.grad.dtype == torch.float32 for parameter in net.parameters())
    assert all(parameter.grad.isfinite().all() for parameter in net.parameters())


def test_the_loss_is_margin_plus_weighted_sum_of_squared_pixels():
    net, images, labels = (
        net_of("compact", (1, 11, 11), 3).eval(),
        images_of(4, (1, 11, 11)),
        torch.tensor([0, 1, 2, 0]),
    )
    output = net(images)
    margin = margin_loss(output.lengths, labels)
    squares = [((output.reconstruction[k] - images[k]) ** 2).sum() for k in range(4)]
    torch.testing.assert_close(capsnet_loss(output, images, labels), margin + 0.0005 * sum(squares) / 4)
    torch.testing.assert_close(capsnet_loss(output, images, labels, reconstruction_weight=0.0), margin)
