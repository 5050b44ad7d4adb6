"""Ink assignment in images of overlapping objects: is each child coupled with the object at its field's centre?

A child counts in an image if the pixel at the centre of its field has ink of one object, with brightness >= ``INK``,
and no ink of the others. The child is right if its coupling with that object's class is larger than its couplings with
the other objects' classes. It is half right if they are equal, so equal couplings score 1/2 for two objects. Children
are weighted by their length. True layers and classes are used, so the network's answer doesn't matter.

For comparison, two other measures replace the couplings at the same pixels, with the same weights: the brightness of
each object's reconstruction, and the saliency, which is how much the length of each class capsule depends on the pixel.
"""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..data import Batches
from ..errors import expect
from ..models import CapsNet
from ..models.answers import overlaid
from .accuracy import Evaluation, OnProgress, in_eval_mode, no_progress
from .capsule_usage import routed_batch

INK = 0.5  # least brightness of a pixel with ink


class InkAssigned(NamedTuple):
    """The share in [0, 1] of right children, weighted by length, according to each of three measures."""

    couplings: float
    decoder: float
    saliency: float
    counted: int  # number of children that count, over all images


def ink_assigned(model: CapsNet, batches: Batches, on_progress: OnProgress = no_progress) -> InkAssigned:
    """Measure all images of ``batches``, which are layers of several objects; restore the network's mode at the end.

    Raises:
        InputError: no child counts in any image.
    """
    centres = model.centres()
    hits, total, counted = torch.zeros(3, dtype=torch.float64), 0.0, 0
    for layers, labels in in_eval_mode(model, batches, on_progress):
        ink = layers.mean(2)[(..., *centres)].permute(2, 1, 0)  # (I, K, B)
        most, owner = ink.max(dim=1)  # (I, B)
        alone = (most >= INK) & ((ink > 0).sum(dim=1) == 1)
        lengths, scores = _scores(model, overlaid(layers), labels, centres)
        weight = (lengths * alone).double()
        for n, score in enumerate(scores):
            own = score.gather(1, owner.unsqueeze(1)).squeeze(1)
            others = score.scatter(1, owner.unsqueeze(1), -torch.inf).amax(dim=1)
            hits[n] += float((weight * ((own > others).double() + 0.5 * (own == others))).sum())
        total, counted = total + float(weight.sum()), counted + int(alone.sum())
    expect(total > 0, "images", "ink of one object alone at the centre of a child's field", "none")
    couplings, decoder, saliency = (hits / total).tolist()
    return InkAssigned(couplings, decoder, saliency, counted)


def sees_parts(model: CapsNet) -> bool:
    """Whether children have different receptive fields."""
    return len(model.receptive_fields().unique(dim=0)) > 1


def _scores(model: CapsNet, images: Tensor, labels: Tensor, at: tuple[Tensor, Tensor]) -> tuple[Tensor, list[Tensor]]:
    """Lengths of the children (I, B); couplings, decoder and saliency for each child and true class, (I, K, B)."""
    with torch.no_grad():
        activation, c, v = _routed(model, images, labels)
        drawn = model.decoder(v.transpose(0, 1), labels).mean(2)
    images = images.detach().requires_grad_()
    lengths = torch.linalg.vector_norm(model.capsules(model.children_of(images)), dim=-1)  # (J, B)
    sums = [lengths.gather(0, label.unsqueeze(0)).sum() for label in labels.unbind(dim=1)]
    slopes = [torch.autograd.grad(each, images, retain_graph=True)[0] for each in sums]
    saliency = torch.stack([slope.abs().amax(dim=1) for slope in slopes], dim=1)  # (B, K, H, W)
    return activation, [c, *(maps[(..., *at)].permute(2, 1, 0) for maps in (drawn, saliency))]


def _routed(model: CapsNet, images: Tensor, classes: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Lengths of the children (I, B), couplings (I, K, B) with the classes (B, K), and parent capsules (J, B, D)."""
    lengths, couplings, v = routed_batch(model.capsules, model.children_of(images))
    c = couplings.unflatten(0, (model.capsules.num_children, -1))  # (I, J, B)
    return lengths, c.gather(1, classes.t().unsqueeze(0).expand(len(c), -1, -1)), v


@torch.no_grad()
def owners(model: CapsNet, images: Tensor, classes: Tensor) -> Tensor:
    """Share of each class in each pixel: the couplings of the nearest children, weighted by the children's length.

    Images are (N, C, H, W) in [0, 1] and classes (N, K). Shares (N, K, H, W) are in [0, 1] and sum to 1 over classes.
    """
    lengths, c, _ = _routed(model, images, classes)
    rows, columns = (each.unique() for each in model.centres())  # ascending, (h,) and (w,)
    given = (lengths.unsqueeze(1) * c).unflatten(0, (-1, len(rows), len(columns)))  # (types, h, w, K, N)
    given = given.sum(dim=0).permute(3, 2, 0, 1)  # (N, K, h, w)
    shares = given / given.sum(dim=1, keepdim=True).clamp_min(1e-12)
    down, across = (
        (torch.arange(size).unsqueeze(1) - at).abs().argmin(dim=1)
        for size, at in zip(images.shape[2:], (rows, columns), strict=True)
    )
    return shares[:, :, down][:, :, :, across]


@torch.no_grad()
def examples(model: CapsNet, batches: Batches, result: Evaluation, most: int = 5) -> dict[str, np.ndarray]:
    """Arguments of ``viz.segmentation`` for the first ``most`` images with right and with wrong answers.

    The model is in eval mode. ``result`` is its evaluation on the same batches, whose images are layers.
    """
    places = torch.cat([chosen.nonzero().flatten()[:most] for chosen in (result.right, ~result.right)])
    layers, labels = batches.at(places)
    images = overlaid(layers)
    shown = {"images": images, "reconstructions": model(images).reconstruction}
    if sees_parts(model):
        shown["owners"] = owners(model, images, result.predicted[places].to(images.device))
    pictures = {name: (values * 255).round().byte().cpu().numpy() for name, values in shown.items()}
    return {**pictures, "labels": labels.cpu().numpy(), "predicted": result.predicted[places].numpy()}
