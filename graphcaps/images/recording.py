"""Recording a network's routing of a few images, and what its decoder draws."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ..algorithms.by_name import ROUTINGS, name_of
from ..errors import GraphcapsError, check_json, expect, reading
from ..functional import squash
from ..nn.routed import route_layer
from ..trace.watched import watch
from ..viz.routing_trace import THRESHOLD, RoutingTrace
from .data import Batches, ImageSplits, to_float
from .models import CapsNet
from .models.answers import overlaid, present

if TYPE_CHECKING:
    from .training.run_folder import Run

ITERATIONS = 10  # at least this many are recorded, because three would give three nearly equal frames
MOST_DECODED_PARENTS = 20
MOST_DRAWN_CHILDREN = 64  # with more children, votes aren't decoded


def kept_epochs(last: int) -> list[int]:
    """Epochs whose routing is recorded: 0 (untrained), powers of two, and the last.

    >>> kept_epochs(10)
    [0, 1, 2, 4, 8, 10]
    """
    return sorted({0, last, *(2**k for k in range(last.bit_length()) if 2**k <= last)})


def one_of_each_class(labels: torch.Tensor, num_classes: int) -> torch.Tensor:
    """Index of the first image of each class, for labels (N,) or (N, J) bool; 0 if no image shows a class."""
    by_class = present(labels, num_classes).unbind(dim=1)
    return torch.tensor([int(shows.nonzero()[0]) for shows in by_class if shows.any()] or [0])


@torch.no_grad()
def routing_of(model: CapsNet, images: torch.Tensor) -> RoutingTrace:
    """Trace of the last layer's routing of images (N, C, H, W) in [0, 1], for at least ten iterations.

    A user-defined routing runs only for its own number of iterations, because that number may affect all of them.
    """
    layer, trained = model.capsules, model.capsules.routing.iterations
    iterations = max(ITERATIONS, trained) if name_of(layer.routing) in ROUTINGS else trained
    with watch(images=None, edges=None) as traces:
        route_layer(layer, model.children_of(images), iterations=iterations)
    fields = model.receptive_fields().numpy().astype(np.int32)
    inputs: dict[str, Any] = {"images": to_bytes(images), "fields": fields, "v": None}
    return dataclasses.replace(traces["route"], trained_iterations=trained, **inputs)


def record(
    trace: RoutingTrace | None,
    model: CapsNet,
    splits: ImageSplits,
    epoch: int,
    device: torch.device | str,
    about: dict[str, str | int | float],
) -> RoutingTrace:
    """Add the routing after ``epoch`` to the trace, or to a new one if it is None."""
    images, labels = Batches(splits.test, 1).at(one_of_each_class(splits.test.labels, splits.num_classes))
    images = overlaid(images).to(device)
    training = model.training
    model.eval()
    routed = dataclasses.replace(routing_of(model, images), epochs=np.array([epoch], np.int32))
    if trace is None:
        one_each = labels.numpy() if labels.dim() == 1 else None  # a trace can't hold several labels per image
        trace = dataclasses.replace(routed, labels=one_each, class_names=splits.class_names, about=about)
    trace = trace.with_epoch(epoch, routed, **pictures(model, images))
    model.train(training)
    return trace


def trace_of_best(run: Run) -> tuple[RoutingTrace, Any]:
    """A run's trace up to the epoch of its best weights, with their routing, and the network; None without weights.

    Raises:
        GraphcapsError: the run has no trace, or its weights are damaged.
    """
    from .training.checkpoint import read_model

    trace, best = run.trace(), run.checkpoint("best")
    if not best.exists():
        return trace, None
    network, head = read_model(best)
    run.check_trained(head)
    with reading(best, "the state of a training", kind=GraphcapsError):
        check_json(head.get("state", {}), epoch=int)
    wanted, got = network.image_shape, "none" if trace.images is None else trace.images.shape[1:]
    expect(got == wanted, f"{run}: trace.npz", f"images {wanted}", got)
    model: Any = network.eval()
    images = to_float(torch.from_numpy(trace.images))
    return trace.with_epoch(head["state"]["epoch"], routing_of(model, images), **pictures(model, images)), model


def record_picture(trace: RoutingTrace, model: CapsNet, images: torch.Tensor, file: str) -> RoutingTrace:
    """Trace of the routing of images (1, C, H, W) in [0, 1] of a file, described as the trace of a run."""
    about: dict[str, Any] = {"class_names": trace.class_names, "about": trace.about | {"file": file}}
    return dataclasses.replace(routing_of(model, images), epochs=trace.epochs[-1:], **about, **pictures(model, images))


def pictures(model: CapsNet, images: torch.Tensor) -> dict[str, Any]:
    """Decoded parents and votes of images (N, C, H, W), as fields of ``RoutingTrace``.

    There are none without a trained decoder, or with many parents.
    """
    is_trained = model.decoder is not None and model.reconstruction_weight
    return decoded(model, images) if is_trained and model.capsules.num_parents <= MOST_DECODED_PARENTS else {}


@torch.no_grad()
def decoded(model: CapsNet, images: torch.Tensor) -> dict[str, np.ndarray]:
    """Decode the parents of images (N, C, H, W) and, if there are at most 64 children, their votes.

    A vote is squashed first, which makes it the parent that this vote alone would give. Images of parents that end up
    shorter than 0.5 are 0, because no picture draws them.
    """
    layer, u = model.capsules, model.children_of(images)
    parents: list[torch.Tensor] = []
    last = route_layer(layer, u, lambda r, b, c, v, agreement: parents.append(v.transpose(0, 1)), coupling=True)
    v = torch.stack(parents, dim=1)  # (N, T, J, D)
    every = torch.arange(layer.num_parents, device=v.device).expand(v.shape[0] * v.shape[1], -1)
    drawn_parents = model.decoder(v.flatten(0, 1), every).unflatten(0, v.shape[:2])
    named = torch.linalg.vector_norm(v[:, -1:], dim=-1) > THRESHOLD  # (N, 1, J)
    fields = {"decoded_parents": to_bytes(drawn_parents * named[..., None, None, None])}
    if layer.num_children > MOST_DRAWN_CHILDREN:
        return fields
    assert last.coupling is not None
    shape = (layer.num_children, layer.num_parents, len(images))
    votes = squash(layer.votes(u).build(layer.links(u.device))).unflatten(0, shape[:2])  # (I, J, N, D)
    best = last.coupling.unflatten(0, shape[:2]).argmax(dim=1)  # (I, N)
    alone = votes.permute(2, 0, 1, 3).flatten(0, 1)  # (N I, J, D); the decoder masks all but one
    drawn_votes = model.decoder(alone, best.t().flatten()).unflatten(0, (len(images), -1))
    return fields | {"decoded_votes": to_bytes(drawn_votes)}


def to_bytes(images: torch.Tensor) -> np.ndarray:
    """Convert images in [0, 1] to uint8 on the CPU."""
    return (images * 255).round().to(torch.uint8).cpu().numpy()
