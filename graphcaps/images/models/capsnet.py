"""Capsule networks for images, and their presets.

image (B, C, H, W) --stem--> features --primary, between--> u (I, B, P) --routing--> v (J, B, D) --lengths--> (B, J)
                                                                           `--decoder--> reconstruction (B, C, H, W)
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, NamedTuple

import torch
from torch import nn

from ...algorithms.by_name import to_json
from ...errors import check_tensor, check_whole, expect
from ...functional import margin_loss
from ...nn import CapsuleLayer, ConvCaps, Decoder, DepthwisePrimaryCaps, PrimaryCaps, SharedCaps
from ...nn.routed import routing_for_images
from ...routing import Routing
from ...tracing import exportable
from ...typed import AtLeastZero, Size, typed
from ..data.images import ABSENT
from .answers import longest, present
from .network import RoutingNetwork, choose_preset, field_centres, output_size
from .stems import STEMS

PARENT_DIM = 16
SMALL_DECODER = (64, 48)  # widths of the hidden layers for ``small``, whose file in half precision has 1 MB
RECONSTRUCTION_WEIGHT = 0.0005  # weight of the squared errors, summed over pixels: section 4.1


@exportable
class CapsNetOutput(NamedTuple):
    """lengths (B, J) in [0, 1), capsules (B, J, D), and a reconstruction in [0, 1], or None without a decoder.

    The reconstruction is (B, C, H, W), or (B, K, C, H, W) if images show K > 1 objects.
    """

    lengths: torch.Tensor
    capsules: torch.Tensor
    reconstruction: torch.Tensor | None

    @property
    def scores(self) -> torch.Tensor:
        """(B, J) in [0, 1): the lengths."""
        return self.lengths


class CapsNet(RoutingNetwork):
    """A capsule network for images; ``from_preset`` builds one of the presets.

    Args:
        stem, image_shape: a module from images of shape (C, H, W) to features.
        primary: a module from features to primary capsules, with an attribute ``num_types``.
        capsules: the last layer, u (I, B, P) -> v (J, B, D). Its routing is recorded and drawn.
        between: layers of convolutional capsules between the primary capsules and u.

    Set ``decoder`` to None for a network without a reconstruction.

    >>> net = CapsNet.from_preset("compact", image_shape=(1, 28, 28), num_classes=10).eval()
    >>> lengths, capsules, reconstruction = net(torch.zeros(2, 1, 28, 28))
    >>> lengths.shape, capsules.shape, reconstruction.shape
    (torch.Size([2, 10]), torch.Size([2, 10, 16]), torch.Size([2, 1, 28, 28]))
    """

    def __init__(
        self,
        stem: nn.Module,
        primary: PrimaryCaps | DepthwisePrimaryCaps,
        capsules: CapsuleLayer | SharedCaps,
        image_shape: tuple[int, int, int],
        between: Iterable[ConvCaps] = (),
    ):
        super().__init__(stem, primary, capsules, image_shape, between)
        self.decoder = Decoder(capsules.num_parents, capsules.weight.shape[-1], image_shape)
        self.reconstruction_weight = RECONSTRUCTION_WEIGHT

    @classmethod
    @typed
    def from_preset(
        cls,
        name: str,
        image_shape: tuple[Size, Size, Size] = (1, 28, 28),
        num_classes: Size = 10,
        routing: Routing | str = "dynamic",
        objects: Size | None = 1,
        reconstruction_weight: AtLeastZero = RECONSTRUCTION_WEIGHT,
        prior: Literal["none", "learned"] = "none",
    ) -> CapsNet:
        """Build a network by name.

        Args:
            name: ``"paper"`` (8.2 M parameters on MNIST, 1152 children), ``"compact"`` (162 K without the decoder, 16
                children), ``"small"`` (402 K without the decoder, 16 children; images of 29 x 29 pixels or more),
                ``"deep"`` (two layers of convolutional capsules before the last layer, which has 64 children on MNIST)
                or ``"parts"`` (512 children with fields of 13 x 13 pixels; all positions share matrices).
            image_shape: (C, H, W).
            num_classes: J, the number of parent capsules, one per class.
            routing: a routing such as ``Dynamic(3)``, or its name. Each layer holds a copy.
            objects: K in [1, J], the number of classes in each image; None: any number (multi-label). The answer is the
                K longest capsules or, for None, all that are longer than 0.5.
            reconstruction_weight: weight of the decoder's errors in the loss, >= 0. With 0 the decoder learns nothing.
            prior: if ``"learned"``, the initial logit of each edge of the last layer is a learned parameter.

        Raises:
            InputError: an unknown name, or images that are too small for the preset.
        """
        _, build, windows = choose_preset(STEMS, name, image_shape)
        routing = routing_for_images(routing)
        if objects is not None:
            check_whole("objects", objects, 1, num_classes, f"an integer from 1 to num_classes={num_classes}, or None")
        stem, primary = build(image_shape[0], image_shape[1:])
        grid = output_size(nn.Sequential(stem, primary.conv), image_shape)
        types, between = primary.num_types, []
        for parent_types, kernel, stride in windows:
            layer = ConvCaps(grid, types, parent_types, kernel, stride, primary.dim, primary.dim, routing)
            between.append(layer)
            grid, types = layer.out_grid, parent_types
        sizes = (num_classes, primary.dim, PARENT_DIM, routing, prior == "learned")
        capsules: CapsuleLayer | SharedCaps
        if name == "parts":  # all positions share matrices
            convs = [layer for layer in (*stem, primary.conv) if isinstance(layer, nn.Conv2d)]
            capsules = SharedCaps(types, field_centres(convs, image_shape), *sizes)
        else:
            capsules = CapsuleLayer(types * grid[0] * grid[1], *sizes)
        model = cls(stem, primary, capsules, image_shape, between)
        model.preset = dict(name=name, image_shape=tuple(image_shape), num_classes=num_classes, objects=objects)
        model.preset |= dict(routing=to_json(routing), reconstruction_weight=reconstruction_weight, prior=prior)
        if name == "small":
            model.decoder = Decoder(num_classes, PARENT_DIM, image_shape, SMALL_DECODER)
        model.objects, model.reconstruction_weight = objects, reconstruction_weight
        return model

    def forward(self, images: torch.Tensor, labels: torch.Tensor | None = None) -> CapsNetOutput:
        """Classify images, and decode one capsule per image, or K capsules if images show K objects.

        Args:
            images: (B, C, H, W) in [0, 1]. Values are checked only on the CPU.
            labels: (B,) int64, (B, K) for K > 1, or (B, J) of 0 and 1 for ``objects=None``. In training mode, the
                capsules of these classes are decoded instead of the answer's: one image for each capsule (section 6.1
                of the 2017 paper), or one image of all for ``objects=None``.
        """
        capsules = self.capsules(self.children_of(images)).transpose(0, 1)  # (B, J, D)
        lengths = torch.linalg.vector_norm(capsules, dim=-1)  # (B, J)
        chosen = longest(lengths, self.objects)
        if labels is not None and self.training:
            check_tensor("labels", labels, floating=False)
            fits = labels.shape == chosen.shape and (self.objects is None or labels.dtype == torch.int64)
            kinds = {1: "(B={0},) int64", None: "(B={0}, J={1}) of 0 and 1"}
            wanted = kinds.get(self.objects, "(B={0}, K={2}) int64").format(*lengths.shape, self.objects)
            advice = "For labels of 0 and 1: from_preset(..., objects=None)" if labels.shape == lengths.shape else ""
            expect(fits, "labels", wanted, f"{tuple(labels.shape)} {labels.dtype}", advice)
            chosen = labels > 0.5 if self.objects is None else labels
            if chosen.dim() == 2 and self.objects is not None:  # the loss ignores the image of an absent object
                chosen = chosen.masked_fill(chosen == ABSENT, 0)
        reconstruction = None if self.decoder is None else self.decoder(capsules, chosen)
        return CapsNetOutput(lengths, capsules, reconstruction)

    def loss(
        self, output: CapsNetOutput, images: torch.Tensor, labels: torch.Tensor, progress: float = 1.0
    ) -> torch.Tensor:
        """``capsnet_loss``; ``progress`` is ignored."""
        return capsnet_loss(output, images, labels, self.reconstruction_weight)


@typed
def capsnet_loss(
    output: CapsNetOutput,
    images: torch.Tensor,
    labels: torch.Tensor,
    reconstruction_weight: AtLeastZero = RECONSTRUCTION_WEIGHT,
) -> torch.Tensor:
    """Margin loss + weight x squared errors summed over pixels, both averaged over the batch (section 4.1).

    If images show K objects, each reconstruction is compared with its own object, and the errors are averaged over the
    objects, where those of an absent object (label -1) are 0; section 6.1 uses one object at a time.

    Args:
        images: (B, C, H, W), or layers (B, K, C, H, W) whose overlay was the network's input.
        labels: for images, (B,) classes or (B, J) of 0 and 1; for layers, (B, K) classes in the order of the layers.

    Raises:
        InputError: images and reconstructions differ in shape (torch might broadcast them).
    """
    check_tensor("images", images)
    if images.dim() == 5:
        layers = tuple(images.shape[:2])
        expect(labels.shape == layers, "labels", f"(B, K)={layers} of layers", tuple(labels.shape))
    margin = margin_loss(output.lengths, present(labels, output.lengths.shape[1]) if images.dim() == 5 else labels)
    if output.reconstruction is None:
        return margin
    drawn = tuple(output.reconstruction.shape)
    expect(tuple(images.shape) == drawn, "images", f"{drawn}, like the reconstructions", tuple(images.shape))
    errors = (output.reconstruction - images).square().flatten(-3).sum(dim=-1)  # (B,) or (B, K)
    if images.dim() == 5:
        errors = errors.masked_fill(labels == ABSENT, 0)
    return margin + reconstruction_weight * errors.mean()
