"""Capsule networks for images, and their presets.

image (B, C, H, W) --stem--> features --primary, between--> u (I, B, P) --routing--> v (J, B, D) --lengths--> (B, J)
                                                                           `--decoder--> reconstruction (B, C, H, W)

``between`` are layers of convolutional capsules; most networks have none.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import torch
from torch import nn

from ..errors import check_name, check_whole, expect
from ..nn import CapsuleLayer, ConvCaps, Decoder, DepthwisePrimaryCaps, PrimaryCaps, SharedCaps
from ..nn.choosing import routed_with_logits
from ..nn.primary import measured_fields, receptive_fields
from ..nn.routed import routing_for_images
from ..routing import Routing
from ..routing.names import to_json
from ..routing.routing import rule_of
from .answers import longest
from .losses import RECONSTRUCTION_WEIGHT, capsnet_loss, coupling_loss
from .network import ImageNetwork, check_images, check_sizes, field_centres, output_size
from .stems import PRESETS

PARENT_DIM = 16


class CapsNetOutput(NamedTuple):
    """lengths (B, J) in [0, 1), capsules (B, J, D), reconstruction (B, C, H, W) or (B, K, C, H, W) in [0, 1].

    The reconstruction is None if the network has no decoder.
    """

    lengths: torch.Tensor
    capsules: torch.Tensor
    reconstruction: torch.Tensor | None

    @property
    def scores(self) -> torch.Tensor:
        """(B, J) in [0, 1): the lengths."""
        return self.lengths


class ChoosingOutput(NamedTuple):
    """``CapsNetOutput`` with the logits b (I, J, B) of the last iteration, for ``coupling_loss``."""

    lengths: torch.Tensor
    capsules: torch.Tensor
    reconstruction: torch.Tensor | None
    logits: torch.Tensor

    @property
    def scores(self) -> torch.Tensor:
        """(B, J) in [0, 1): the lengths."""
        return self.lengths


class CapsNet(ImageNetwork):
    """A capsule network for images; ``from_preset`` builds one of the presets.

    Args:
        stem: image (B, C, H, W) -> features.
        primary: features -> primary capsules; a module with ``num_types``, ``dim`` and ``conv``.
        capsules: the last layer, u (I, B, P) -> v (J, B, D). Its routing is recorded and drawn.
        image_shape: (C, H, W).
        between: layers of convolutional capsules from the primary capsules to u (I, B, P). If there are none, u are
            the primary capsules.

    Set ``decoder`` to None for a network without a reconstruction.

    >>> net = CapsNet.from_preset("compact", image_shape=(1, 28, 28), num_classes=10).eval()
    >>> lengths, capsules, reconstruction = net(torch.zeros(2, 1, 28, 28))
    >>> lengths.shape, capsules.shape, reconstruction.shape
    (torch.Size([2, 10]), torch.Size([2, 10, 16]), torch.Size([2, 1, 28, 28]))
    """

    routes = True

    def __init__(
        self,
        stem: nn.Module,
        primary: PrimaryCaps | DepthwisePrimaryCaps,
        capsules: CapsuleLayer | SharedCaps,
        image_shape: tuple[int, int, int],
        between: Iterable[ConvCaps] = (),
    ):
        super().__init__(image_shape)
        self.stem, self.primary, self.between, self.capsules = stem, primary, nn.Sequential(*between), capsules
        self.decoder = Decoder(capsules.num_parents, capsules.weight.shape[-1], image_shape)
        self.reconstruction_weight, self.coupling_weight = RECONSTRUCTION_WEIGHT, 0.0

    @classmethod
    def from_preset(
        cls,
        name: str,
        image_shape: tuple[int, int, int] = (1, 28, 28),
        num_classes: int = 10,
        routing: Routing | str = "dynamic",
        objects: int | None = 1,
        reconstruction_weight: float = RECONSTRUCTION_WEIGHT,
        prior: str = "none",
        coupling_weight: float = 0.0,
    ) -> CapsNet:
        """Build a network by name.

        Args:
            name: ``"paper"`` (8.2 M parameters on MNIST, 1152 children), ``"compact"`` (162 K without the decoder, 16
                children: few enough to draw them all), ``"deep"`` (two layers of convolutional capsules before the
                last layer, which has 64 children on MNIST) or ``"parts"`` (512 children with fields of 13 x 13 pixels;
                all positions share their matrices).
            image_shape: (C, H, W).
            num_classes: J, the number of parent capsules, one per class.
            routing: a routing such as ``Dynamic(3)``, or its name. Each layer holds a copy.
            objects: K in [1, J], the number of classes in each image. The answer is the K longest capsules. None: any
                number of classes. The answer is then all capsules longer than 0.5.
            reconstruction_weight: weight of the decoder's errors in the loss, >= 0. With 0 the decoder learns nothing.
            prior: ``"learned"``: the initial logit of each edge of the last layer is a learned parameter.
            coupling_weight: weight of ``coupling_loss`` in the loss, >= 0. It may be > 0 only for ``parts`` with
                ``Dynamic`` or ``Spherical`` routing.

        Raises:
            InputError: an unknown name, or images that are too small for the preset.
        """
        check_name("preset", name, list(PRESETS))
        build, smallest = PRESETS[name]
        channels, height, width = check_sizes(name, smallest, image_shape, num_classes)
        check_name("prior", prior, ["none", "learned"])
        expect(reconstruction_weight >= 0, "reconstruction_weight", "a number >= 0", reconstruction_weight)
        routing = routing_for_images(routing)
        if coupling_weight != 0:
            rule = rule_of(routing)
            by_agreement = rule is not None and rule.query != "sums" and rule.iterations > 1
            fits = name == "parts" and coupling_weight > 0 and by_agreement
            wanted = "0, or a number > 0 for 'parts' with Dynamic or Spherical of 2 iterations or more"
            expect(fits, "coupling_weight", wanted, f"{coupling_weight} for '{name}' with {routing}")
            expect(objects is not None, "coupling_weight", "0 for any number of classes in an image", coupling_weight)
        if objects is not None:
            check_whole("objects", objects, 1, num_classes, f"an integer from 1 to num_classes={num_classes}, or None")
        stem, primary, windows, shared = build(channels, (height, width))
        grid = output_size(nn.Sequential(stem, primary.conv), image_shape)
        types, between = primary.num_types, []
        for parent_types, kernel, stride in windows:
            layer = ConvCaps(grid, types, parent_types, kernel, stride, primary.dim, primary.dim, routing)
            between.append(layer)
            grid, types = layer.out_grid, parent_types
        sizes = (num_classes, primary.dim, PARENT_DIM, routing, prior == "learned")
        capsules: CapsuleLayer | SharedCaps
        if shared:
            convs = [layer for layer in (*stem, primary.conv) if isinstance(layer, nn.Conv2d)]
            capsules = SharedCaps(types, field_centres(convs, image_shape), *sizes)
        else:
            capsules = CapsuleLayer(types * grid[0] * grid[1], *sizes)
        model = cls(stem, primary, capsules, image_shape, between)
        model.preset = dict(
            name=name,
            image_shape=tuple(image_shape),
            num_classes=num_classes,
            routing=to_json(routing),
            objects=objects,
            reconstruction_weight=reconstruction_weight,
            prior=prior,
            coupling_weight=coupling_weight,
        )
        model.objects, model.coupling_weight = objects, coupling_weight
        model.reconstruction_weight = reconstruction_weight
        return model

    def children_of(self, images: torch.Tensor) -> torch.Tensor:
        """The last layer's input u (I, B, P) for images (B, C, H, W)."""
        check_images(images, self.image_shape)
        return self.between(self.primary(self.stem(images)))

    @property
    def child_types(self) -> int:
        """T, the number of types of the last layer's children; child i is of type i // (I / T)."""
        layers = [layer for layer in self.between if isinstance(layer, ConvCaps)]
        return layers[-1].parent_types if layers else self.primary.num_types

    def forward(self, images: torch.Tensor, labels: torch.Tensor | None = None) -> CapsNetOutput | ChoosingOutput:
        """Classify images, and decode one capsule per image, or K capsules if images show K objects.

        Args:
            images: (B, C, H, W) in [0, 1]. Values are checked only on the CPU.
            labels: (B,) int64, (B, K) for K > 1, or (B, J) of 0 and 1 for any number of classes. In training mode, the
                capsules of the true classes are decoded: separately (section 6.1 of the 2017 paper), or together for
                any number of classes. In eval mode or without labels, the capsules of the answer are decoded.
        """
        u, logits = self.children_of(images), None
        if self.coupling_weight and self.training and isinstance(self.capsules, SharedCaps):
            v, logits = routed_with_logits(self.capsules, u)
        else:
            v = self.capsules(u)
        capsules = v.transpose(0, 1)  # (B, J, D)
        lengths = torch.linalg.vector_norm(capsules, dim=-1)  # (B, J)
        chosen = longest(lengths, self.objects)
        if labels is not None and self.training:
            fits = labels.shape == chosen.shape and (self.objects is None or labels.dtype == torch.int64)
            kinds = {1: "(B={0},) int64", None: "(B={0}, J={1}) of 0 and 1"}
            wanted = kinds.get(self.objects, "(B={0}, K={2}) int64").format(*lengths.shape, self.objects)
            then = "For 0 and 1 of each class: from_preset(..., objects=None)" if labels.shape == lengths.shape else ""
            expect(fits, "labels", wanted, f"{tuple(labels.shape)} {labels.dtype}", then)
            chosen = labels > 0.5 if self.objects is None else labels
        reconstruction = None if self.decoder is None else self.decoder(capsules, chosen)
        if logits is not None:
            return ChoosingOutput(lengths, capsules, reconstruction, logits)
        return CapsNetOutput(lengths, capsules, reconstruction)

    def loss(
        self, output: CapsNetOutput | ChoosingOutput, images: torch.Tensor, labels: torch.Tensor, progress: float = 1.0
    ) -> torch.Tensor:
        """``capsnet_loss``, in training plus ``coupling_weight`` times ``coupling_loss``. ``progress`` is ignored."""
        loss = capsnet_loss(output, images, labels, self.reconstruction_weight)
        if isinstance(output, ChoosingOutput):
            rows, columns = self.centres()
            ink = (images if images.dim() == 5 else images.unsqueeze(1)).mean(2)[:, :, rows, columns]  # (B, K, I)
            loss = loss + self.coupling_weight * coupling_loss(output.logits, ink, labels)
        return loss

    def centres(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Row and column, (I,) each, of the centre pixel of each receptive field."""
        top, left, height, width = self.receptive_fields().unbind(dim=1)
        return top + height // 2, left + width // 2

    def receptive_fields(self) -> torch.Tensor:
        """(I, 4) int64: top, left, height, width in pixels of the receptive field of each child of the last layer.

        If there are layers ``between``, the field covers all votes for the child. With more than one iteration, the
        weight of each vote also depends on competing neighbours, that is on pixels outside this field.

        Fields of stems of plain convolutions are computed. Fields of other stems are measured, which takes a forward
        pass for each row and column of the image.
        """
        layers = [layer for layer in self.stem.modules() if type(layer) is not nn.Sequential]
        convs = [layer for layer in layers if isinstance(layer, nn.Conv2d)]
        known = isinstance(self.primary, (PrimaryCaps, DepthwisePrimaryCaps))
        plain = all(conv.padding == (0, 0) and conv.dilation == (1, 1) for conv in convs)
        if known and plain and all(isinstance(layer, (nn.Conv2d, nn.ReLU, nn.BatchNorm2d)) for layer in layers):
            windows: list[Any] = [*convs, self.primary.conv, *self.between]
            return receptive_fields(windows, self.child_types, self.image_shape[1:])
        return measured_fields(nn.Sequential(self.stem, self.primary, self.between), self.image_shape)
