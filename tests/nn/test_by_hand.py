"""Networks put together by hand: the pixels that a child sees through any stem."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from graphcaps import CapsNet, InputError
from graphcaps.nn import CapsuleLayer, PrimaryCaps, receptive_fields
from graphcaps.routing import Uniform


class Residual(nn.Module):
    """x + convolution(x), as in a ResNet; ReLU as a function."""

    def __init__(self, channels: int):
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x):
        return torch.relu(x + self.conv(x))


def test_padding_dilation_pooling_and_branches_widen_what_a_child_sees():
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
    rows, columns = (list(zip(*sides, strict=True)) for sides in zip(starts, ends, strict=True))
    wanted = [[top, left, bottom - top, right - left] for top, bottom in rows for left, right in columns]
    assert fields.tolist() == wanted * 2


def test_measured_fields_are_the_computed_ones_below_and_above_windows_of_capsules():
    net = CapsNet.from_preset("deep", (1, 23, 27), routing=Uniform())
    computed = net.receptive_fields()
    net.stem = nn.ModuleList([net.stem])  # whose fields are not computed
    net.stem.forward = net.stem[0].forward
    assert torch.equal(net.receptive_fields(), computed)


def test_fields_that_can_not_be_known_are_refused():
    for conv in (nn.Conv2d(1, 4, 3, padding=1), nn.Conv2d(1, 4, 3, dilation=2), nn.Conv2d(1, 4, 3, padding="same")):
        with pytest.raises(InputError, match="convs: expected convolutions without padding .* CapsNet.receptive_f"):
            receptive_fields([conv], 1, (8, 8))

    class Hides(nn.Module):
        def forward(self, x):
            return torch.nan_to_num(x)

    net = CapsNet(Hides(), PrimaryCaps(1, 1, 4, 3), CapsuleLayer(9, 2, 4), (1, 8, 8))
    with pytest.raises(InputError, match="front: expected layers in which NaN reaches each child"):
        net.receptive_fields()
