"""Primary capsules, made from a feature map: the P channels of one type at one position form a capsule."""

from collections.abc import Iterable

import torch
from torch import nn

from ..errors import check_tensor, expect
from ..functional import at_least_float32, squash
from ..graph.local import Pair
from ..typed import Size, typed
from .conv2d import Conv2d


class PrimaryCaps(nn.Module):
    """PrimaryCaps of Sabour, Frosst & Hinton 2017: one 9x9 convolution for all types, then a squash of each capsule.

    Args:
        in_channels: channels of the feature map.
        num_types: T, number of capsule types. Each position has one capsule of every type.
        dim: P, numbers per capsule.

    Shapes:
        features (B, in_channels, H, W) -> u (I, B, P), I = T * positions, i = type * positions + position

    >>> PrimaryCaps(256)(torch.zeros(2, 256, 20, 20)).shape
    torch.Size([1152, 2, 8])
    """

    @typed
    def __init__(self, in_channels: Size, num_types: Size = 32, dim: Size = 8, kernel_size: Pair = 9, stride: Pair = 2):
        super().__init__()
        self.num_types, self.dim = num_types, dim
        self.conv = Conv2d(in_channels, num_types * dim, kernel_size, stride)

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        check_features(features, self.conv.in_channels)
        x = at_least_float32(self.conv(features))  # (B, T * P, h, w)
        u = x.unflatten(1, (self.num_types, self.dim)).permute(1, 3, 4, 0, 2).flatten(0, 2)  # (I, B, P)
        return squash(u)


class DepthwisePrimaryCaps(nn.Module):
    """Primary capsules of Efficient-CapsNet (Mazzia et al. 2021): a depthwise convolution as large as its feature map.

    Every channel becomes one number, computed from the whole map; P neighbouring channels form a capsule.

    Args:
        channels, map_size: channels and size (H, W) of the feature map; ``channels`` is a multiple of ``dim``.
        dim: P, numbers per capsule.

    Shapes:
        features (B, channels, H, W) -> u (I, B, P), I = channels / P

    >>> DepthwisePrimaryCaps(128, (9, 9))(torch.zeros(2, 128, 9, 9)).shape
    torch.Size([16, 2, 8])
    """

    @typed
    def __init__(self, channels: Size, map_size: tuple[Size, Size], dim: Size = 8):
        super().__init__()
        expect(channels % dim == 0, "channels", f"a multiple of dim={dim}", channels)
        self.num_types, self.dim = channels // dim, dim
        self.conv = nn.Conv2d(channels, channels, map_size, groups=channels)

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        check_features(features, self.conv.in_channels)
        wanted, shape = (self.conv.in_channels, *self.conv.kernel_size), tuple(features.shape)
        expect(shape[1:] == wanted, "features", "(B, {}, H={}, W={})".format(*wanted), shape)
        # A product and a sum replace the convolution, whose gradient takes a tenth of a training step of `compact` on
        # a CPU. Channels come last, as in training: another layout makes batch normalisation several times slower.
        weight = self.conv.weight.squeeze(1).permute(1, 2, 0).contiguous()  # (H, W, channels)
        x = (features.to(weight.dtype).permute(0, 2, 3, 1) * weight).sum(dim=(1, 2))  # (B, channels)
        x = x if self.conv.bias is None else x + self.conv.bias
        u = at_least_float32(x).unflatten(1, (self.num_types, self.dim)).transpose(0, 1)  # (I, B, P)
        return squash(u)


def check_features(features: torch.Tensor, channels: int) -> None:
    """Raise ``InputError`` unless the features are floating point (B, channels, H, W)."""
    shape = check_tensor("features", features).shape
    expect(len(shape) == 4 and shape[1] == channels, "features", f"(B, {channels}, H, W)", tuple(shape))


@typed
def receptive_fields(convs: Iterable[nn.Conv2d], num_types: Size, image_size: tuple[Size, Size]) -> torch.Tensor:
    """The receptive field of each primary capsule after a chain of convolutions without padding and dilation.

    Args:
        convs: the convolutions in order; the last makes the primary capsules.
        num_types: T, capsules per position.
        image_size: (H, W) in pixels.

    Returns:
        (I, 4) int64: top, left, height and width of each field. Capsules are ordered by type first.

    >>> receptive_fields([nn.Conv2d(1, 256, 9), nn.Conv2d(256, 256, 9, 2)], 32, (28, 28))[35]
    tensor([10, 10, 17, 17])
    """
    size, step, positions = [1, 1], [1, 1], list(image_size)
    for conv in convs:
        sizes = getattr(conv, "kernel_size", None), getattr(conv, "padding", (0, 0)), getattr(conv, "dilation", (1, 1))
        plain = isinstance(sizes[0], tuple) and sizes[1:] == ((0, 0), (1, 1))
        expect(plain, "convs", "convolutions without padding and dilation", conv)
        for axis in (0, 1):
            size[axis] += (conv.kernel_size[axis] - 1) * step[axis]
            step[axis] *= conv.stride[axis]
            positions[axis] = (positions[axis] - conv.kernel_size[axis]) // conv.stride[axis] + 1
    top, left = (torch.arange(n) * s for n, s in zip(positions, step, strict=True))
    corners = torch.cartesian_prod(top, left)  # (positions, 2)
    return torch.cat([corners, torch.tensor([size]).expand(len(corners), 2)], dim=1).repeat(num_types, 1)
