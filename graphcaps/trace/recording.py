"""What a picture needs and only a network can make: its routing on a few images, reconstructions, saliency."""

from __future__ import annotations

import dataclasses

import numpy as np
import torch

from ..data import Batches, ImageSplits
from ..models import CapsNet
from ..models.answers import overlaid, present
from ..nn.routed import activation_of, route_layer
from ..routing.names import ROUTINGS
from ..routing_trace import RoutingTrace
from .watched import watch

ITERATIONS = 10  # more than a network is trained with: three would be three nearly flat frames
STEPS = np.linspace(-0.25, 0.25, 11, dtype=np.float32)
MOST_SALIENCY_CHILDREN = 64  # beyond these, a child's receptive field says where it looks


def kept_epochs(last: int) -> list[int]:
    """Epochs whose routing is kept: 0 (untrained), powers of two, and the last.

    >>> kept_epochs(10)
    [0, 1, 2, 4, 8, 10]
    """
    return sorted({0, last, *(2**k for k in range(last.bit_length()) if 2**k <= last)})


def one_of_each_class(labels: torch.Tensor, num_classes: int) -> torch.Tensor:
    """Where the first image of each class is in labels (N,) or (N, J) bool, in the order of classes."""
    return torch.tensor([int(of.nonzero()[0]) for of in present(labels, num_classes).unbind(dim=1) if of.any()])


@torch.no_grad()
def routing_of(model: CapsNet, images: torch.Tensor) -> RoutingTrace:
    """The last layer's routing of images (N, C, H, W) in [0, 1]: ten iterations, or the network's where it has more.

    Of a routing of the user's own only the network's: with others it may be another algorithm from the first one on.
    """
    layer, u = model.capsules, model.children_of(images)
    trained = layer.routing.iterations
    further = type(layer.routing) in ROUTINGS.values()
    with watch(images=None, edges=None) as seen:
        route_layer(layer, u, iterations=max(ITERATIONS, trained) if further else trained)
    fields = model.receptive_fields().numpy().astype(np.int32)
    trace = dataclasses.replace(seen["route"], trained_iterations=layer.routing.iterations)
    return dataclasses.replace(trace, images=to_bytes(images), fields=fields, v=None)


def record(
    trace: RoutingTrace | None,
    model: CapsNet,
    splits: ImageSplits,
    epoch: int,
    device: torch.device | str,
    about: dict[str, str | int | float],
) -> RoutingTrace:
    """Add the routing after ``epoch`` to the trace; without one, start it."""
    images, labels = Batches(splits.test, 1).at(one_of_each_class(splits.test.labels, splits.num_classes))
    images = overlaid(images).to(device)
    training = model.training
    model.eval()
    routed = dataclasses.replace(routing_of(model, images), epochs=np.array([epoch], np.int32))
    if trace is None:
        one_each = labels.numpy() if labels.dim() == 1 else None  # a trace has one label per image or none
        trace = dataclasses.replace(routed, labels=one_each, class_names=splits.class_names, about=about)
    trace = trace.with_epoch(epoch, routed, **pictures(model, images))
    model.train(training)
    return trace


def pictures(model: CapsNet, images: torch.Tensor) -> dict[str, np.ndarray | None]:
    """Reconstructions, perturbed ones and saliency of images (N, C, H, W), as ``RoutingTrace`` keeps them.

    A network without a decoder has no reconstructions.
    """
    if not model.reconstructs:
        return {"saliency": kept_saliency(model, images)}
    with torch.no_grad():
        output = CapsNet.forward(model, images)  # in float32, as its routing: Accelerate puts autocast around model()
        longest = output.lengths.argmax(dim=1)  # (N,)
        num_images, num_classes, dim = output.capsules.shape
        moves = torch.from_numpy(STEPS).to(images.device)
        moves = moves[:, None] * torch.eye(dim, device=images.device)[:, None]  # (D, S, D)
        moved = output.capsules[:, None, None] + moves[None, :, :, None]  # (N, D, S, J, D)
        repeat = moved.shape[1] * moved.shape[2]
        reconstructions = model.decoder(output.capsules, longest)
        perturbed = model.decoder(moved.flatten(0, 2), longest.repeat_interleave(repeat))
    return {
        "reconstructions": to_bytes(reconstructions),
        "perturbed": to_bytes(perturbed.unflatten(0, (num_images, dim, len(STEPS)))),
        "steps": STEPS,
        "saliency": kept_saliency(model, images),
    }


def kept_saliency(model: CapsNet, images: torch.Tensor) -> np.ndarray | None:
    """``saliency`` as ``RoutingTrace`` keeps it; None of a network with many children, whose fields say as much."""
    if model.capsules.num_children > MOST_SALIENCY_CHILDREN:
        return None
    return saliency(model, images).cpu().numpy().astype(np.float16)


def saliency(model: CapsNet, images: torch.Tensor) -> torch.Tensor:
    """Where each child looks: |d length of u_i / d pixel|, the largest over channels, each child scaled to 1.

    Returns:
        (N, I, H, W) in [0, 1].
    """
    images = images.detach().requires_grad_()
    lengths = activation_of(model.children_of(images))  # (I, N)
    gradients = (torch.autograd.grad(child.sum(), images, retain_graph=True)[0] for child in lengths)  # (N, C, H, W)
    slopes = torch.stack([gradient.abs().amax(dim=1) for gradient in gradients], dim=1)  # (N, I, H, W)
    return slopes / slopes.amax(dim=(2, 3), keepdim=True).clamp_min(torch.finfo(slopes.dtype).tiny)


def with_history(trace: RoutingTrace, history: list[dict]) -> RoutingTrace:
    """The trace with the training curves so far."""
    columns = {key: [row[key] for row in history] for key in history[0]} if history else {}
    return dataclasses.replace(trace, history=columns)


def to_bytes(images: torch.Tensor) -> np.ndarray:
    """Images in [0, 1] as uint8."""
    return (images * 255).round().to(torch.uint8).cpu().numpy()
