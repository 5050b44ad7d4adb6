"""Networks put together by hand: what a child sees through any stem, and how long stacked capsules are."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from graphcaps import CapsNet, InputError
from graphcaps.nn import CapsuleLayer, ConvCaps, PrimaryCaps, measured_fields, receptive_fields, scale_layers
from graphcaps.routing import Uniform


class Residual(nn.Module):
    """x + convolution(x), as in a ResNet; ReLU as a function."""

    def __init__(self, channels: int):
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x):
        return torch.relu(x + self.conv(x))


def test_padding_dilation_pooling_and_branches_are_in_what_a_child_sees():
    """Along one side: 3 by the first convolution, 5 with the branch, 6 pooled in steps of 2, 6 + 4 * 2 = 14."""
    stem = nn.Sequential(
        nn.Sequential(nn.Conv2d(2, 4, 3, padding=1), nn.BatchNorm2d(4)),
        Residual(4),
        nn.MaxPool2d(2),
        nn.Conv2d(4, 4, 3, dilation=2),
    )
    primary = PrimaryCaps(4, num_types=2, dim=4, kernel_size=1, stride=1)
    images = (2, 16, 20)  # 4 x 6 positions
    children = len(primary(stem(torch.zeros(1, *images))))
    fields = CapsNet(stem, primary, CapsuleLayer(children, 2, 4), images).receptive_fields()
    starts = [[max(0, 2 * k - 2) for k in range(count)] for count in (4, 6)]
    ends = [[min(side, 2 * k + 12) for k in range(count)] for count, side in ((4, 16), (6, 20))]
    wanted = [
        [top, left, bottom - top, right - left]
        for top, bottom in zip(starts[0], ends[0], strict=True)
        for left, right in zip(starts[1], ends[1], strict=True)
    ]
    assert fields.tolist() == wanted * 2


def test_measured_fields_are_the_computed_ones_below_and_above_windows_of_capsules():
    net = CapsNet.from_preset("deep", (1, 23, 27), routing=Uniform())
    computed = net.receptive_fields()
    net.stem = nn.ModuleList([net.stem])  # which nobody computes
    net.stem.forward = net.stem[0].forward
    assert torch.equal(net.receptive_fields(), computed)


def test_fields_that_can_not_be_known_are_refused():
    for conv in (nn.Conv2d(1, 4, 3, padding=1), nn.Conv2d(1, 4, 3, dilation=2), nn.Conv2d(1, 4, 3, padding="same")):
        with pytest.raises(InputError, match="convs: expected convolutions without padding .* measured_fields takes"):
            receptive_fields([conv], 1, (8, 8))

    class Hides(nn.Module):
        def forward(self, x):
            return torch.nan_to_num(x)

    with pytest.raises(InputError, match="front: expected layers in which NaN reaches each child"):
        measured_fields(nn.Sequential(Hides(), PrimaryCaps(1, 1, 4, 3)), (1, 8, 8))


def test_scaled_layers_have_capsules_of_half_length_and_windows_too():
    torch.manual_seed(0)
    first = ConvCaps((5, 5), 4, 4, kernel=3)
    layers = [first, *(CapsuleLayer(36, 36, 8, 8) for _ in range(3)), CapsuleLayer(36, 10)]
    u = torch.randn(100, 20, 8) / 100
    drawn = [layer.weight.detach().clone() for layer in layers]
    last = scale_layers(layers, u)
    for layer, before in zip(layers, drawn, strict=True):
        u = layer(u)
        assert abs(u.norm(dim=-1).mean() - 0.5) < 0.02
        ratio = layer.weight / before
        assert torch.allclose(ratio, ratio.mean())  # only scaled
    assert torch.equal(u, last)
