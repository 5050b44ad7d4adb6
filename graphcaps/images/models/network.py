"""The interface of all networks for images, checks of their inputs, and sizes of feature maps."""

import copy
import math
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ...errors import ROUNDING, check_name, check_tensor, expect, min_max
from ...nn import DepthwisePrimaryCaps, MatrixPrimaryCaps, PrimaryCaps, receptive_fields
from .evidence import Limits


class ImageNetwork(nn.Module):
    """Base class of networks for images; training, evaluation and pictures use this interface.

    For images (B, C, H, W) in [0, 1], the output has ``scores`` (B, J) in [0, 1]. The classes with the largest scores
    are the answer. ``routes`` is true for a ``RoutingNetwork``; ``decoder`` may be None.
    """

    routes = False  # whether it has capsules that are routed
    objects: int | None = 1  # K, the number of classes that an image shows; None: any number (multi-label)
    class_names: tuple[str, ...] = ()  # one per class, if known
    limits = Limits()  # limits for doubtful answers, if known
    preset: dict[str, Any] | None = None  # name and arguments for ``from_preset``, stored in checkpoints

    def __init__(self, image_shape: Sequence[int]):
        super().__init__()
        channels, height, width = image_shape
        self.image_shape = (channels, height, width)
        self.decoder: Any = None

    def loss(self, output: Any, images: Tensor, labels: Tensor, progress: float = 1.0) -> Tensor:
        """The training loss; ``progress`` is the share of training that is done, in [0, 1]."""
        raise NotImplementedError

    def check_images(self, images: Tensor) -> Tensor:
        """Return images in the dtype of the weights. They must be on their device, and floats (B, C, H, W) in [0, 1].

        On a GPU, a check of the values would wait for the device. So images in [0, 255] pass there, and answers are
        wrong.
        """
        weight = next(self.parameters())
        device = weight.device
        shape = tuple(check_tensor("images", images, floating=False).shape)
        advice = "One image is a batch too: images[None]" if len(shape) == 3 else ""
        fits = len(shape) == 4 and shape[1:] == self.image_shape
        expect(fits, "images", "(B, C={}, H={}, W={})".format(*self.image_shape), shape, advice)
        expect(images.is_floating_point(), "images", "floating point in [0, 1]", images.dtype, "uint8: images / 255")
        wanted, advice = f"device {device}, like the network's weights", f"Move them: images.to('{device}')"
        expect(images.device == device, "images", wanted, images.device, advice)
        low, high = min_max(images) or (0, 1)
        expect(math.isfinite(low) and math.isfinite(high), "images", "numbers in [0, 1]", "NaN or infinity")
        advice = "The networks of graphcaps read images that aren't normalised"
        advice = "Divide them: images / 255" if low >= 0 and high > 2 else advice
        fits = low >= -ROUNDING and high <= 1 + ROUNDING
        expect(fits, "images", "numbers in [0, 1]", f"{low:g} to {high:g}", advice)
        return images.to(weight.dtype)


class RoutingNetwork(ImageNetwork):
    """Base class of networks of capsules, with the arguments of ``CapsNet``."""

    routes = True
    between: Any

    def __init__(
        self, stem: nn.Module, primary: Any, capsules: Any, image_shape: Sequence[int], between: Iterable[Any]
    ):
        super().__init__(image_shape)
        self.stem, self.primary, self.between, self.capsules = stem, primary, nn.Sequential(*between), capsules
        self.child_types: int = self.between[-1].parent_types if len(self.between) else primary.num_types
        """T, the number of types of the last layer's children; child i is of type i // (I / T)."""

    def children_of(self, images: Tensor) -> Any:
        """The last layer's input for images (B, C, H, W): u (I, B, P), or ``Poses``."""
        return self.between(self.primary(self.stem(self.check_images(images))))

    def receptive_fields(self) -> Tensor:
        """(I, 4) int64: top, left, height, width in pixels of the receptive field of each child of the last layer.

        If there are layers ``between``, the field covers all votes for the child. With more than one iteration, the
        weight of each vote also depends on competing neighbours, that is on pixels outside this field.

        Raises:
            InputError: the stem isn't a sequence of convolutions without padding and dilation, ReLU and batch
                normalisation, or the primary capsules aren't those of graphcaps.
        """
        kinds = nn.Sequential, nn.Conv2d, nn.ReLU, nn.BatchNorm2d
        others = [type(layer).__name__ for layer in self.stem.modules() if type(layer) not in kinds]
        if not isinstance(self.primary, (PrimaryCaps, DepthwisePrimaryCaps, MatrixPrimaryCaps)):
            others.append(type(self.primary).__name__)
        expect(not others, "stem and primary", "convolutions, ReLU and batch normalisation", ", ".join(others))
        layers = [*self.stem.modules(), *self.primary.modules()]
        convs: list[Any] = [layer for layer in layers if isinstance(layer, nn.Conv2d)]
        return receptive_fields([*convs, *self.between], self.child_types, self.image_shape[1:])


@torch.no_grad()
def output_size(layers: nn.Module, image_shape: Sequence[int]) -> tuple[int, int]:
    """(H, W) of the layers' output for images (C, H, W). A forward pass on the meta device costs no arithmetic."""
    features = copy.deepcopy(layers).to("meta").eval()(torch.zeros(1, *image_shape, device="meta"))
    return features.shape[2], features.shape[3]


def field_centres(windows: Iterable[Any], image_shape: tuple[int, int, int]) -> torch.Tensor:
    """(positions, 2): row and column in [0, 1] of the centre of each position's receptive field."""
    with torch.device("cpu"):
        fields = receptive_fields(windows, 1, image_shape[1:]).double()
        return ((fields[:, :2] + fields[:, 2:] / 2) / torch.tensor(image_shape[1:])).float()


def choose_preset(presets: dict, name: str, image_shape: tuple[int, int, int]) -> Any:
    """Return the preset of that name, if images (C, H, W) have its smallest side in pixels, its first element."""
    check_name("preset", name, list(presets))
    smallest = presets[name][0]
    height, width = image_shape[1:]
    wanted = f"at least {smallest} x {smallest} pixels for '{name}'"
    expect(min(height, width) >= smallest, "image_shape", wanted, f"{height} x {width}")
    return presets[name]
