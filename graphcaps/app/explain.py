"""What a network says of one image, as the JSON that the live page draws: all of its torch work."""

from __future__ import annotations

import numpy as np
import torch

from ..data import to_float
from ..models import CapsNet, doubts
from ..trace.recording import kept_saliency, routing_of, to_bytes, unrouted
from ..viz.explorer.data import explorer_data, packed

TOPS = 3


def explain_image(model: CapsNet, pixels: np.ndarray, epoch: int = 0, about: dict | None = None) -> dict:
    """Route one image and decode the capsules of its likeliest classes.

    Args:
        model: in eval mode, on the CPU, with ``class_names``.
        pixels: uint8 (C, H, W).
        epoch: epochs of training that made its weights.
        about: as in ``RoutingTrace``.

    Returns:
        ``trace``: as ``graphcaps.viz.explorer.data`` describes it, of this image and epoch.
        ``tops``: of the parents that are longest after the trained iterations, at most three, the longest first:
        ``parent``, ``length``, ``capsule`` (its D numbers) and ``picture``, what the decoder makes of it.
        ``doubts``: why the answer shouldn't be believed, each a ``graphcaps.models.Doubt`` as ``kind`` and ``text``.

    Raises:
        GraphcapsError: the network answers with numbers that are not finite.
    """
    images = to_float(torch.from_numpy(pixels))[None]
    trace = unrouted(model, pixels[None], class_names=model.class_names, about=about or {})
    trace = trace.with_epoch(epoch, routing_of(model, images), saliency=kept_saliency(model, images))
    explained = explorer_data(trace)  # before the rest: raises where numbers are not finite
    with torch.no_grad():
        output = model(images)
        lengths, capsules, _ = output
        longest = lengths[0].topk(min(TOPS, lengths.shape[1]))
    tops = [
        {"parent": j, "length": length, "capsule": capsules[0, j].tolist(), "picture": decode(model, j, capsules[0, j])}
        for length, j in zip(*(row.tolist() for row in longest), strict=True)
    ]
    return {"trace": explained, "tops": tops, "doubts": [each._asdict() for each in doubts(model, images, output)[0]]}


@torch.no_grad()
def decode(model: CapsNet, parent: int, capsule: torch.Tensor) -> dict:
    """What the decoder makes of one parent's capsule (D,): uint8 (C, H, W), packed."""
    capsules = torch.zeros(1, model.capsules.num_parents, len(capsule))
    capsules[0, parent] = capsule
    return packed(to_bytes(model.decoder(capsules, torch.tensor([parent])))[0])
