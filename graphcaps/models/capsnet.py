"""Capsule networks for images, from a preset by name.

image (B, C, H, W) --stem--> features --primary, between--> u (I, B, P) --routing--> v (J, B, D) --lengths--> (B, J)
                                                                           `--decoder--> reconstruction (B, C, H, W)

Between the primary capsules and the last layer there may be layers of convolutional capsules; most networks have none.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import torch
from torch import nn

from ..errors import ROUNDING, InputError, check_labels, check_name, check_whole, ends_of, expect
from ..functional import margin_loss
from ..nn import CapsuleLayer, ConvCaps, Decoder, DepthwisePrimaryCaps, PrimaryCaps, SharedCaps
from ..nn.choosing import routed_with_logits
from ..nn.primary import measured_fields, receptive_fields
from ..nn.routed import routing_for_images
from ..routing import Dynamic, Routing, Spherical
from ..routing.names import to_json
from .network import ImageNetwork
from .objects import longest, present

PARENT_DIM = 16
RECONSTRUCTION_WEIGHT = 0.0005  # of the sum over pixels: section 4.1

# What multiplies the margin loss. The paper adds the loss of all classes; its authors' code (Sara Sabour's
# "capsules", published in tensorflow/models) takes half of the loss and the mean over the ten classes, so that
# reconstruction weighs 20 times as much. There, primary capsules also pass through a routing with one iteration and
# 32 parents, which multiplies their convolution, without its bias, by 1/32, and all biases start at 0.1.
PROTOCOLS = {"paper": 1.0, "official": 1 / 20}
OFFICIAL_BIAS = 0.1

LARGEST = 40
"""Pixels per side that ``compact`` and ``parts`` are made for; larger images are halved first, by convolutions."""


class CapsNetOutput(NamedTuple):
    """lengths (B, J) in [0, 1), capsules (B, J, D), reconstruction (B, C, H, W) or (B, K, C, H, W) in [0, 1].

    A network without a decoder has no reconstruction: None.
    """

    lengths: torch.Tensor
    capsules: torch.Tensor
    reconstruction: torch.Tensor | None

    @property
    def scores(self) -> torch.Tensor:
        """(B, J) in [0, 1): the lengths."""
        return self.lengths


class ChoosingOutput(NamedTuple):
    """``CapsNetOutput`` while children are asked to choose: with the logits b (I, J, B) of the last iteration."""

    lengths: torch.Tensor
    capsules: torch.Tensor
    reconstruction: torch.Tensor | None
    logits: torch.Tensor

    @property
    def scores(self) -> torch.Tensor:
        """(B, J) in [0, 1): the lengths."""
        return self.lengths


class _Front(NamedTuple):
    """What comes before the last layer; ``between`` has parent types, kernel and stride of each ``ConvCaps``."""

    stem: nn.Sequential
    primary: PrimaryCaps | DepthwisePrimaryCaps
    grid: tuple[int, int]  # positions of the primary capsules
    between: tuple[tuple[int, int, int], ...] = ()
    shared: bool = False  # whether the last layer's matrices are for all positions


def _paper(channels: int, size: tuple[int, int]) -> _Front:
    """Sabour, Frosst & Hinton 2017, section 4."""
    stem = nn.Sequential(nn.Conv2d(channels, 256, 9), nn.ReLU())
    return _Front(stem, PrimaryCaps(256), each_side(size, lambda side: (side - 8 - 9) // 2 + 1))


def _compact(channels: int, size: tuple[int, int]) -> _Front:
    """In the spirit of Efficient-CapsNet (Mazzia et al. 2021): I = 16 primary capsules, whatever the image's size."""
    stem, features, map_size = compact_stem(channels, size)
    return _Front(stem, DepthwisePrimaryCaps(features, map_size), (1, 1))


def compact_stem(channels: int, size: tuple[int, int]) -> tuple[nn.Sequential, int, tuple[int, int]]:
    """The convolutions of ``compact``, their channels, and the size of their map for images (H, W)."""
    halving, channels, size = _halving(channels, size)
    stem = _convolutions(*halving, (channels, 32, 5, 1), (32, 64, 3, 1), (64, 64, 3, 1), (64, 128, 3, 2))
    return stem, 128, each_side(size, lambda side: (side - 8 - 3) // 2 + 1)


def _deep(channels: int, size: tuple[int, int]) -> _Front:
    """Two layers of convolutional capsules: 9 x 9, 4 x 4 and 2 x 2 positions of 16 types for images of 28 x 28."""
    stem = _convolutions((channels, 64, 5, 1), (64, 64, 3, 2))
    # Untrained, in eval mode, batch normalisation leaves small maps small, and layer by layer short capsules end at 0.
    for conv in (stem[0], stem[3]):
        nn.init.kaiming_normal_(next(conv.parameters()), nonlinearity="relu")
    grid = each_side(size, lambda side: (side - 4 - 3) // 2 + 1 - 2)
    return _Front(stem, PrimaryCaps(64, 16, 8, 3, 1), grid, ((16, 3, 2), (16, 3, 1)))


def _parts(channels: int, size: tuple[int, int]) -> _Front:
    """Children that see 13 x 13 pixels, of 8 types at 8 x 8 positions for images of 28 x 28: parts of a drawing.

    Of images with a side of more than 40 pixels there are 4 to 8 positions on a side of 41 or more.
    """
    halving, channels, size = _halving(channels, size)
    step = each_side(size, lambda side: 3 if halving and side > 28 else 2)
    stem = _convolutions(*halving, (channels, 32, 5, step), (32, 64, 3, 1), (64, 128, 3, 1))
    grid = (size[0] - 5) // step[0] + 1 - 4, (size[1] - 5) // step[1] + 1 - 4
    return _Front(stem, PrimaryCaps(128, 8, 8, 1, 1), grid, shared=True)


def _halving(channels: int, size: tuple[int, int]) -> tuple[list[tuple], int, tuple[int, int]]:
    """Convolutions for ``_convolutions`` that halve each side while it is above ``LARGEST``, and what they leave."""
    convs: list[tuple] = []
    while max(size) > LARGEST:
        stride = each_side(size, lambda side: 2 if side > LARGEST else 1)
        kernel = tuple(1 if step == 1 else 3 if convs else 5 for step in stride)
        convs.append((channels, 32, kernel, stride))
        channels, size = 32, ((size[0] - kernel[0]) // stride[0] + 1, (size[1] - kernel[1]) // stride[1] + 1)
    return convs, channels, size


def _convolutions(*convs: tuple) -> nn.Sequential:
    """Convolutions with ReLU and batch normalisation, from channels in and out, kernel and stride."""
    blocks = ((nn.Conv2d(*conv), nn.ReLU(), nn.BatchNorm2d(conv[1])) for conv in convs)
    return nn.Sequential(*(layer for block in blocks for layer in block))


# name: (builder, smallest side of an image in pixels)
_PRESETS = {"paper": (_paper, 17), "compact": (_compact, 11), "deep": (_deep, 23), "parts": (_parts, 13)}


class CapsNet(ImageNetwork):
    """A capsule network for images; ``from_preset`` makes the ones that papers describe.

    Args:
        stem: image (B, C, H, W) -> features.
        primary: features -> primary capsules, with ``num_types``, ``dim`` and ``conv``.
        capsules: ``CapsuleLayer`` or ``SharedCaps``, u (I, B, P) -> v (J, B, D): the layer whose routing is
            recorded and drawn.
        image_shape: (C, H, W).
        between: layers of convolutional capsules, from the primary ones to u (I, B, P); none: u are the primary ones.

    ``decoder`` may be set to None: the network then has no reconstruction.

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
        self.decoder: Any = Decoder(capsules.num_parents, capsules.weight.shape[-1], image_shape)
        self.margin_weight, self.reconstruction_weight, self.coupling_weight = 1.0, RECONSTRUCTION_WEIGHT, 0.0

    @classmethod
    def from_preset(
        cls,
        name: str,
        image_shape: tuple[int, int, int] = (1, 28, 28),
        num_classes: int = 10,
        routing: Routing | str = "dynamic",
        objects: int | None = 1,
        protocol: str = "paper",
        reconstruction_weight: float = RECONSTRUCTION_WEIGHT,
        prior: str = "none",
        coupling_weight: float = 0.0,
    ) -> CapsNet:
        """Build a network by name.

        Args:
            name: ``"paper"`` (8.2 M parameters on MNIST, 1152 children), ``"compact"`` (162 K before the decoder, 16
                children: small enough to look at whole), ``"deep"`` (two layers of convolutional capsules before the
                last, which has 64 children on MNIST) or ``"parts"`` (512 children that see 13 x 13 pixels each, and
                matrices that all positions share).
            image_shape: (C, H, W).
            num_classes: J, parent capsules, one per class.
            routing: a routing such as ``Dynamic(3)``, of which each layer holds a copy, or the name of one.
            objects: K in [1, J], how many classes each image shows; as many of the longest capsules are the answer.
                None: any number, and those that are longer than 0.5 are.
            protocol: ``"paper"``; or ``"official"``, for ``paper`` alone: as the authors' code trains (``PROTOCOLS``).
            reconstruction_weight: of the decoder's errors in the loss, >= 0; with 0 the decoder learns nothing.
            prior: ``"learned"``: a logit for each edge of the last layer is learned, which its routing starts from.
            coupling_weight: of ``coupling_loss`` in the loss, >= 0; for ``parts``, routed by ``Dynamic`` or
                ``Spherical``.

        Raises:
            InputError: unknown name, or images smaller than the preset can take.
        """
        check_name("preset", name, list(_PRESETS))
        build, smallest = _PRESETS[name]
        channels, height, width = check_sizes(name, smallest, image_shape, num_classes)
        check_name("protocol", protocol, list(PROTOCOLS))
        check_name("prior", prior, ["none", "learned"])
        alone = protocol == "paper" or name == "paper"
        expect(alone, "protocol", f"paper for '{name}'", protocol, "official is what the authors of 'paper' ran")
        expect(reconstruction_weight >= 0, "reconstruction_weight", "a number >= 0", reconstruction_weight)
        routing = routing_for_images(routing)
        by_agreement = isinstance(routing, (Dynamic, Spherical)) and routing.iterations > 1
        asks = coupling_weight == 0 or (name == "parts" and coupling_weight > 0 and by_agreement)
        wanted = "0, or a number > 0 for 'parts' with Dynamic or Spherical of 2 iterations or more"
        expect(asks, "coupling_weight", wanted, f"{coupling_weight} for '{name}' with {routing}")
        if objects is None:
            expect(coupling_weight == 0, "coupling_weight", "0 for any number of classes in an image", coupling_weight)
        else:
            check_whole("objects", objects, 1, num_classes, f"an integer from 1 to num_classes={num_classes}, or None")
        stem, primary, grid, windows, shared = build(channels, (height, width))
        if protocol == "official":
            primary.scale = 1 / primary.num_types
            nn.init.constant_(dict(primary.conv.named_parameters())["bias"], OFFICIAL_BIAS)
        types, between = primary.num_types, []
        for parent_types, kernel, stride in windows:
            layer = ConvCaps(grid, types, parent_types, kernel, stride, primary.dim, primary.dim, routing)
            between.append(layer)
            grid, types = layer.out_grid, parent_types
        last = (routing, prior == "learned")
        capsules: CapsuleLayer | SharedCaps
        if shared:
            centres = field_centres([*stem, primary.conv], image_shape)
            capsules = SharedCaps(types, centres, num_classes, primary.dim, PARENT_DIM, *last)
        else:
            capsules = CapsuleLayer(types * grid[0] * grid[1], num_classes, primary.dim, PARENT_DIM, *last)
        model = cls(stem, primary, capsules, image_shape, between)
        model.preset = dict(
            name=name,
            image_shape=tuple(image_shape),
            num_classes=num_classes,
            routing=to_json(routing),
            objects=objects,
            protocol=protocol,
            reconstruction_weight=reconstruction_weight,
            prior=prior,
            coupling_weight=coupling_weight,
        )
        model.objects, model.coupling_weight = objects, coupling_weight
        model.margin_weight, model.reconstruction_weight = PROTOCOLS[protocol], reconstruction_weight
        return model

    @classmethod
    def from_pretrained(cls, name: str) -> CapsNet:
        """A trained network that comes with graphcaps, in eval mode, with ``class_names`` and ``limits``.

        Its weights are in half precision on disk and float32 here. It has no decoder, so that its output's
        ``reconstruction`` is None. ``graphcaps.load`` gives the network of a run of your own.

        Args:
            name: the data set that it was trained on: ``"mnist"``; or ``"multimnist"``, two overlapping digits in
                36 x 36 pixels.

        Raises:
            InputError: unknown name.
            GraphcapsError: the file with its weights is missing or damaged.

        >>> net = CapsNet.from_pretrained("mnist")
        >>> net.image_shape, net.class_names[4], net(torch.zeros(2, 1, 28, 28)).lengths.shape
        ((1, 28, 28), '4', torch.Size([2, 10]))
        """
        from .pretrained import network

        return network(name)

    def children_of(self, images: torch.Tensor) -> torch.Tensor:
        """u (I, B, P): what enters the last layer, of images (B, C, H, W)."""
        check_images(images, self.image_shape)
        return self.between(self.primary(self.stem(images)))

    @property
    def child_types(self) -> int:
        """T, kinds of capsule that enter the last layer; child i is of type i // (I / T)."""
        layers = [layer for layer in self.between if isinstance(layer, ConvCaps)]
        return layers[-1].parent_types if layers else self.primary.num_types

    def forward(self, images: torch.Tensor, labels: torch.Tensor | None = None) -> CapsNetOutput | ChoosingOutput:
        """Classify images and decode one capsule of each, or K where images show K objects.

        Args:
            images: (B, C, H, W) in [0, 1]; on the CPU numbers outside are refused, elsewhere not looked at.
            labels: (B,) int64, (B, K) for K > 1, (B, J) of 0 and 1 for any number of classes. While training, the
                capsules of the true classes are decoded, each alone (section 6.1 of the 2017 paper), of any number
                together; in eval mode, and without labels, the longest: evaluation sees no labels.
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
        self,
        output: CapsNetOutput | ChoosingOutput,
        images: torch.Tensor,
        labels: torch.Tensor,
        progress: float = 1.0,
    ) -> torch.Tensor:
        """``capsnet_loss`` with the weights of the network's protocol, the same whatever the ``progress``.

        With a ``coupling_weight``, while training, the ``coupling_loss`` times it is added.
        """
        loss = capsnet_loss(output, images, labels, self.reconstruction_weight, self.margin_weight)
        if isinstance(output, ChoosingOutput):
            rows, columns = self.centres()
            ink = (images if images.dim() == 5 else images.unsqueeze(1)).mean(2)[:, :, rows, columns]  # (B, K, I)
            loss = loss + self.coupling_weight * coupling_loss(output.logits, ink, labels)
        return loss

    def centres(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Row and column, (I,) each, of the pixel at the centre of what each child of the last layer sees."""
        top, left, height, width = self.receptive_fields().unbind(dim=1)
        return top + height // 2, left + width // 2

    def receptive_fields(self) -> torch.Tensor:
        """(I, 4) int64: top, left, height, width in pixels of what each child of the last layer sees.

        Below layers of convolutional capsules it is what is voted for a child from. How much of each vote counts, after
        more than one iteration, depends on the neighbours it competes with, and so on a wider field.

        Of a stem of plain convolutions it is computed, of any other measured, which takes a pass for each row and
        column of the image.
        """
        layers = [layer for layer in self.stem.modules() if type(layer) is not nn.Sequential]
        convs = [layer for layer in layers if isinstance(layer, nn.Conv2d)]
        known = isinstance(self.primary, (PrimaryCaps, DepthwisePrimaryCaps))
        plain = all(conv.padding == (0, 0) and conv.dilation == (1, 1) for conv in convs)
        if known and plain and all(isinstance(layer, (nn.Conv2d, nn.ReLU, nn.BatchNorm2d)) for layer in layers):
            windows: list[Any] = [*convs, self.primary.conv, *self.between]
            return receptive_fields(windows, self.child_types, self.image_shape[1:])
        fields = measured_fields(nn.Sequential(self.stem, self.primary), self.image_shape)
        layer: Any
        for layer in self.between:
            src, dst = layer.graph().edges()
            corners = torch.cat([fields[:, :2], -(fields[:, :2] + fields[:, 2:])], dim=1)[src]  # (E, 4)
            above = torch.zeros(layer.num_parents, 4, dtype=torch.int64)
            least = above.scatter_reduce(0, dst.unsqueeze(1).expand(-1, 4), corners, "amin", include_self=False)
            fields = torch.cat([least[:, :2], -least[:, 2:] - least[:, :2]], dim=1)
        return fields


def field_centres(layers: Iterable[nn.Module], image_shape: tuple[int, int, int]) -> torch.Tensor:
    """(positions, 2): row and column of the centre of what each position of the last convolution sees, in [0, 1]."""
    size = torch.tensor(image_shape[1:])
    convs = [layer for layer in layers if isinstance(layer, nn.Conv2d)]
    fields = receptive_fields(convs, 1, (int(size[0]), int(size[1]))).double()
    return ((fields[:, :2] + fields[:, 2:] / 2) / size).float()


def coupling_loss(logits: torch.Tensor, ink: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """-ln of each child's coupling with the object whose ink it sees, the mean over all ink.

    Args:
        logits: b (I, J, B), of the couplings.
        ink: (B, K, I) in [0, 1], of each object at the centre of each child's field.
        labels: (B,), or (B, K), the objects' classes.

    Returns:
        Scalar >= 0; 0 where there is no ink. ln J where couplings are equal.
    """
    check_labels(labels, logits.shape[1])
    expect(labels.numel() == ink[..., 0].numel(), "labels", f"of {tuple(ink.shape[:2])} objects", tuple(labels.shape))
    classes = labels.reshape(len(labels), -1).t().unsqueeze(0).expand(len(logits), -1, -1)  # (I, K, B)
    ink = ink.permute(2, 1, 0)  # (I, K, B)
    return -(ink * logits.log_softmax(dim=1).gather(1, classes)).sum() / ink.sum().clamp_min(1)


def capsnet_loss(
    output: CapsNetOutput | ChoosingOutput,
    images: torch.Tensor,
    labels: torch.Tensor,
    reconstruction_weight: float = RECONSTRUCTION_WEIGHT,
    margin_weight: float = 1.0,
) -> torch.Tensor:
    """Margin loss + weight x sum over pixels of squared errors, each the mean over the batch (section 4.1).

    Of K objects, each capsule's reconstruction is held against its own object, and the errors' mean over the objects is
    taken: section 6.1 picks one of them at a time. Without a reconstruction it is the margin loss alone.

    Args:
        images: (B, C, H, W), or layers (B, K, C, H, W) of which the network saw the overlay.
        labels: of images (B,) classes, or (B, J) of 0 and 1; of layers (B, K) classes in the order of the layers.
        margin_weight: the margin loss is multiplied by it.

    Raises:
        InputError: images that are not of the reconstructions' shape, which torch might broadcast.
    """
    if images.dim() == 5:
        layers = tuple(images.shape[:2])
        expect(labels.shape == layers, "labels", f"(B, K)={layers} of layers", tuple(labels.shape))
        labels = present(labels, output.lengths.shape[1])
    margin = margin_weight * margin_loss(output.lengths, labels)
    if output.reconstruction is None:
        return margin
    drawn = tuple(output.reconstruction.shape)
    expect(tuple(images.shape) == drawn, "images", f"{drawn}, as the reconstructions", tuple(images.shape))
    errors = (output.reconstruction - images).square().flatten(-3).sum(dim=-1)  # (B,) or (B, K)
    return margin + reconstruction_weight * errors.mean()


def check_sizes(name: str, smallest: int, image_shape: tuple[int, int, int], num_classes: int) -> tuple[int, int, int]:
    """``image_shape`` (C, H, W); raise ``InputError`` where a preset can't take it, or no classes."""
    good = len(image_shape) == 3 and all(isinstance(size, int) and size >= 1 for size in image_shape)
    expect(good, "image_shape", "(C, H, W), three integers >= 1", image_shape)
    channels, height, width = image_shape
    fits = min(height, width) >= smallest
    expect(fits, "image_shape", f"at least {smallest} x {smallest} pixels for '{name}'", f"{height} x {width}")
    check_whole("num_classes", num_classes)
    return channels, height, width


def each_side(size: tuple[int, int], of: Callable[[int], int]) -> tuple[int, int]:
    """A formula of each of two sides."""
    return of(size[0]), of(size[1])


def check_images(images: torch.Tensor, image_shape: tuple[int, int, int]) -> None:
    """Raise ``InputError`` unless images are floating point of shape (B, C, H, W) and, on the CPU, in [0, 1].

    Looking at the numbers takes microseconds on the CPU. Elsewhere it would wait for the device, so that there images
    from 0 to 255 go through, and come out as wrong answers.
    """
    expect(isinstance(images, torch.Tensor), "images", "a tensor", type(images).__name__)
    shape = tuple(images.shape)
    if not (len(shape) == 4 and shape[1:] == image_shape):
        alone = "One image is a batch too: images[None]" if shape == image_shape else ""
        expect(False, "images", "(B, C={}, H={}, W={})".format(*image_shape), shape, alone)
    expect(images.is_floating_point(), "images", "floating point in [0, 1]", images.dtype, "uint8: images / 255")
    ends = ends_of(images)
    if ends is not None and not (ends[0] >= -ROUNDING and ends[1] <= 1 + ROUNDING):
        bytes_ = ends[0] >= 0 and ends[1] > 2
        then = "Divide them: images / 255" if bytes_ else "Networks here read images as they are, not normalised"
        finite = math.isfinite(ends[0]) and math.isfinite(ends[1])
        got = f"{ends[0]:g} to {ends[1]:g}" if finite else "NaN or infinity"
        raise InputError(f"images: expected numbers in [0, 1], got {got}" + (f". {then}" if finite else ""))
