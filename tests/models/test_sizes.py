"""Stems of compact and parts for images of any size."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from graphcaps.models import CapsNet

AS_PUBLISHED = {
    "compact": [(1, 32, (5, 5), (1, 1)), (32, 64, (3, 3), (1, 1)), (64, 64, (3, 3), (1, 1)), (64, 128, (3, 3), (2, 2))],
    "parts": [(1, 32, (5, 5), (2, 2)), (32, 64, (3, 3), (1, 1)), (64, 128, (3, 3), (1, 1))],
}


@pytest.mark.parametrize("size", [28, 40])
@pytest.mark.parametrize("name", AS_PUBLISHED)
def test_up_to_40_pixels_stems_are_as_published(name, size):
    stem = CapsNet.from_preset(name, (1, size, size), 3).stem
    convs = [layer for layer in stem if isinstance(layer, nn.Conv2d)]
    assert [(c.in_channels, c.out_channels, c.kernel_size, c.stride) for c in convs] == AS_PUBLISHED[name]


@pytest.mark.parametrize("size", [(41, 41), (48, 64), (161, 161), (224, 224)], ids=str)
def test_larger_images_have_as_many_children_and_kernels_as_small(size):
    with torch.no_grad():
        for name in AS_PUBLISHED:
            network = CapsNet.from_preset(name, (3, *size), 3).eval()
            assert network(torch.rand(1, 3, *size)).lengths.shape == (1, 3)
            fields = network.receptive_fields()
            assert len(fields) == network.capsules.num_children
            assert ((fields[:, :2] + fields[:, 2:]).amax(0) > torch.tensor(size) * 0.92).all()
            assert 100 <= len(fields) <= 600 if name == "parts" else max(network.primary.conv.kernel_size) <= 15
