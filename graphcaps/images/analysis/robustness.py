"""Robustness of a trained network: accuracy and recall per class on transformed test images.

Each version of the images is classified as in ``graphcaps evaluate``: each image once, in order, without labels. If
accuracy falls but the mean score of the answers doesn't, the network is wrong but confident.

Random numbers of the changes depend only on ``SEED`` and on an image's place in its data set, so a changed image is the
same in any batch and on any device.

Results are plain data for JSON::

    on       name of the transform, or "affnist"      says    heading of the rows' names
    clean    index of the row of unchanged images     seed    random seed of the transforms
    rows     {"name", "correct", "images", "accuracy", "interval_95", "winning_score", "recall"} for each version:
             interval_95 is the Wilson score interval, winning_score the mean of the lowest score in each answer (None
             if images may show any number of classes), and recall, for each class, the share of its images whose
             answer contains the class (None if it has no images)
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import fold, unfold

from ..data import Batches, Images, within
from ..data.augment import affine_maps, warp
from ..models import ImageNetwork
from .accuracy import EVALUATION_BATCH, Evaluation, OnProgress, evaluate, no_progress

AFFNIST = "affNIST-style"
SEED = 0
DIRECTIONS = ((1, 0), (-1, 0), (0, 1), (0, -1))  # (right, down)


def rotated(degrees: float, images: Tensor, places: Tensor) -> Tensor:
    """Turn images (B, C, H, W) counter-clockwise about their centre."""
    return moved(images, torch.full((len(images),), float(degrees)), torch.zeros(2, len(images)))


def shifted(pixels: float, images: Tensor, places: Tensor) -> Tensor:
    """Shift images (B, C, H, W) right, left, down or up. An image's place determines the direction."""
    drawn = [DIRECTIONS[_random(place).randint(len(DIRECTIONS))] for place in places.tolist()]
    return moved(images, torch.zeros(len(images)), pixels * torch.tensor(drawn, dtype=torch.float32).T)


def moved(images: Tensor, degrees: Tensor, shift: Tensor) -> Tensor:
    """Turn images (B, C, H, W) by degrees (B,), then shift them by pixels (2, B) to the right and down.

    Values are interpolated linearly, with zeros outside.
    """
    size = (images.shape[2], images.shape[3])
    maps = affine_maps(torch.deg2rad(degrees), torch.ones(len(images)), shift, size)
    return warp(images, maps.to(images))


def noisy(sd: float, images: Tensor, places: Tensor) -> Tensor:
    """Add Gaussian noise with standard deviation ``sd``, and clip to [0, 1]. An image's place determines its noise."""
    noise = np.stack([_random(place).standard_normal(images.shape[1:]) for place in places.tolist()])
    return (images + sd * torch.from_numpy(noise).to(images.dtype).to(images.device)).clamp(0, 1)


def scrambled(side: float, images: Tensor, places: Tensor) -> Tensor:
    """Cut images (B, C, H, W) into side x side patches and rearrange the patches, so that only local content survives.

    An image's place determines a permutation that moves every patch. Pixels at the border that fill no patch stay.

    >>> scrambled(2, torch.arange(4.0).view(1, 1, 2, 2), torch.tensor([0])).flatten().eq(torch.arange(4)).any()
    tensor(False)
    """
    side, (height, width) = int(side), images.shape[2:]
    high, wide = height // side, width // side
    top, left = (height - side * high) // 2, (width - side * wide) // 2
    result = images.clone()
    inner, patch = result[:, :, top : top + side * high, left : left + side * wide], (high, wide)
    patches = unfold(inner, patch, stride=patch)  # (B, C * high * wide, side * side)
    order = np.stack([_derangement(_random(place), side * side) for place in places.tolist()])
    patches = patches.gather(2, torch.from_numpy(order).to(images.device)[:, None].expand_as(patches))
    inner.copy_(fold(patches, inner.shape[2:], patch, stride=patch))
    return result


class Transform(NamedTuple):
    """A change of test images at several severities."""

    apply: Callable[[float, Tensor, Tensor], Tensor]
    """Maps a severity, images (B, C, H, W) in [0, 1] and places (B,) to images of the same shape."""
    severities: tuple[float, ...]
    clean: float  # the severity that leaves images unchanged
    says: str  # label of the severity's axis


TRANSFORMS = {
    "rotated": Transform(rotated, tuple(range(-60, 61, 15)), 0, "turned counter-clockwise, degrees"),
    "shifted": Transform(shifted, tuple(range(9)), 0, "shifted right, left, down or up, pixels"),
    "noisy": Transform(noisy, (0, 0.1, 0.2, 0.3, 0.4, 0.5), 0, "noise, standard deviation"),
    "scrambled": Transform(scrambled, (1, 2, 4), 1, "patches per side, none in its place"),
}


def evaluate_transform(model: ImageNetwork, batches: Batches, name: str, on_progress: OnProgress = no_progress) -> dict:
    """Evaluate a network on all images, transformed with each severity of ``TRANSFORMS[name]``."""
    transform, rows = TRANSFORMS[name], []
    for n, severity in enumerate(transform.severities):
        change = None if severity == transform.clean else partial(transform.apply, severity)
        progress = _part(on_progress, n, len(transform.severities))
        rows.append(_row(f"{severity:g}", evaluate(model, batches, progress, change), model))
    clean = transform.severities.index(transform.clean)
    return {"on": name, "says": transform.says, "clean": clean, "seed": SEED, "rows": rows}


def evaluate_affnist(
    model: ImageNetwork, batches: Batches, affnist: Images, on_progress: OnProgress = no_progress
) -> dict:
    """Evaluate a network on the test images of ``mnist40``, and on those of ``load_affnist``.

    Digits ``within`` the shifts of ``mnist40`` and digits beyond them also get a row each, unless there are none.
    """
    others = Batches(affnist, EVALUATION_BATCH, device=next(model.parameters()).device)
    known = evaluate(model, batches, _part(on_progress, 0, 2))
    result, inside = evaluate(model, others, _part(on_progress, 1, 2)), within(affnist)
    rows = [_row("mnist40", known, model), _row(AFFNIST, result, model)]
    for part, among in (("within", inside), ("beyond", ~inside)):
        if among.any():
            taken = {key: getattr(result, key)[among] for key in ("predicted", "labels", "evidence")}
            rows.append(_row(f"{AFFNIST} ({part})", replace(result, **taken), model))
    return {"on": "affnist", "says": "image set", "clean": 0, "seed": SEED, "rows": rows}


def _part(on_progress: OnProgress, n: int, parts: int) -> OnProgress:
    return lambda share: on_progress((n + share) / parts)


def _row(name: str, result: Evaluation, model: ImageNetwork) -> dict:
    shown, hits, _ = (counts.tolist() for counts in result.per_class(len(model.class_names)))
    return {
        "name": name,
        "correct": result.correct,
        "images": len(result.labels),
        "accuracy": result.accuracy,
        "interval_95": result.interval,
        "winning_score": None if model.objects is None else float(result.evidence[:, 0].double().mean()),
        "recall": [hit / total if total else None for hit, total in zip(hits, shown, strict=True)],
    }


def _random(place: int) -> np.random.RandomState:
    """The generator of one place; ``RandomState`` has the same stream in all versions and on all platforms."""
    return np.random.RandomState([SEED, place])


def _derangement(random: np.random.RandomState, count: int) -> np.ndarray:
    """Draw a random permutation of ``count`` >= 2 numbers that leaves none in its place; all are equally likely."""
    while True:
        order = random.permutation(count)
        if (order != np.arange(count)).all():
            return order
