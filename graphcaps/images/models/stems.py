"""All layers of each ``CapsNet`` preset except the last: convolutions and primary capsules."""

from torch import nn

from ...nn import DepthwisePrimaryCaps, PrimaryCaps
from .network import output_size

MAX_SIDE = 40  # largest side in pixels for ``compact`` and ``parts``; convolutions first halve larger images
Size = tuple[int, int]
Front = tuple[nn.Sequential, PrimaryCaps | DepthwisePrimaryCaps]  # stem and primary capsules


def _paper(channels: int, size: Size) -> Front:
    """Sabour, Frosst & Hinton 2017, section 4."""
    return nn.Sequential(nn.Conv2d(channels, 256, 9), nn.ReLU()), PrimaryCaps(256)


def compact(channels: int, size: Size) -> Front:
    """Based on Efficient-CapsNet (Mazzia et al. 2021): I = 16 primary capsules for images of any size."""
    halving, features, _ = _halving(channels, size)
    convs = _convolutions((features, 32, 5, 1), (32, 64, 3, 1), (64, 64, 3, 1), (64, 128, 3, 2))
    stem = nn.Sequential(*halving, *convs)
    return stem, DepthwisePrimaryCaps(128, output_size(stem, (channels, *size)))


def _small(channels: int, size: Size) -> Front:
    """I = 16 primary capsules for images of any size, with a ninth of the multiplications of ``compact`` on 36 x 36."""
    convs = (channels, 32, 5, 2), (32, 48, 3, 1), (48, 96, 3, 2), (96, 128, 3, 1), (128, 128, 3, 1)
    stem = nn.Sequential(*_convolutions(*convs))
    return stem, PrimaryCaps(128, 16, 8, output_size(stem, (channels, *size)), 1)


def _deep(channels: int, size: Size) -> Front:
    """Two layers of convolutional capsules: 9 x 9, 4 x 4 and 2 x 2 positions of 16 types for images of 28 x 28."""
    stem = nn.Sequential(*_convolutions((channels, 64, 5, 1), (64, 64, 3, 2)))
    # Keep the features' scale. Untrained batch normalisation doesn't, so later capsules would have lengths near 0.
    for conv in (stem[0], stem[3]):
        nn.init.kaiming_normal_(next(conv.parameters()), nonlinearity="relu")
    return stem, PrimaryCaps(64, 16, 8, 3, 1)


def _parts(channels: int, size: Size) -> Front:
    """Children with fields of 13 x 13 pixels: for images of 28 x 28, 8 types at 8 x 8 positions.

    A side of more than 40 pixels has 4 to 8 positions.
    """
    halving, features, size = _halving(channels, size)
    step = tuple(3 if halving and side > 28 else 2 for side in size)
    stem = nn.Sequential(*halving, *_convolutions((features, 32, 5, step), (32, 64, 3, 1), (64, 128, 3, 1)))
    return stem, PrimaryCaps(128, 8, 8, 1, 1)


def _halving(channels: int, size: Size) -> tuple[list[nn.Module], int, Size]:
    """Return layers that halve each side until it is at most ``MAX_SIDE``, and the channels and size of the output."""
    layers: list[nn.Module] = []
    while max(size) > MAX_SIDE:
        stride = tuple(2 if side > MAX_SIDE else 1 for side in size)
        kernel = tuple(1 if step == 1 else 3 if layers else 5 for step in stride)
        block = _convolutions((channels, 32, kernel, stride))
        channels, size = 32, output_size(nn.Sequential(*block), (channels, *size))
        layers += block
    return layers, channels, size


def _convolutions(*convs: tuple) -> list[nn.Module]:
    """Blocks of convolution, ReLU and batch normalisation, from (channels in, channels out, kernel, stride)."""
    blocks = ([nn.Conv2d(*conv), nn.ReLU(), nn.BatchNorm2d(conv[1])] for conv in convs)
    return [layer for block in blocks for layer in block]


# name: (smallest side of an image in pixels, builder, (parent types, kernel, stride) of each ``ConvCaps``)
STEMS = {
    "paper": (17, _paper, ()),
    "compact": (11, compact, ()),
    "small": (29, _small, ()),
    "deep": (23, _deep, ((16, 3, 2), (16, 3, 1))),
    "parts": (13, _parts, ()),
}
