"""Equivariance: how a capsule's vector moves while its object turns and shifts.

A capsule should keep its length and change its vector in step with the object's pose. Each image is taken through a
sweep of one parameter p; v(p), of D numbers, is the capsule of the class that wins on the clean image, so that no label
is used. Two numbers between a parameter and the vectors answer different questions:

    fit       from p to v, each image by itself: v(p) is fitted by a + b p, least squares;
              R^2 = 1 - sum |v(p) - a - b p|^2 / sum |v(p) - mean v|^2,
              the share of the vector's change over the sweep that a straight line explains
    read-out  from v to p, over the images of one class: p is fitted by w.v + w0, least squares, on half of the images;
              R^2 = 1 - sum (p - w.v - w0)^2 / sum (p - mean p)^2
              of the other half, held out: how well the parameter can be read off; below 0 is worse than the mean of p

Beside each, as a control, the same with the parameter's values permuted within each image. A fit of T steps then
explains 1 / (T - 1) by chance, and a read-out nothing. R^2 doesn't say how far the vector moves; beside it stands

    moved     sqrt(sum |v(p) - mean v|^2 / sum |v(p)|^2), 0 for a capsule that doesn't see the parameter
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..data import Batches
from ..data.transforms import rotated, shifted
from ..errors import expect
from ..models import ImageNetwork
from .accuracy import OnProgress, evaluating, no_progress

MAX_IMAGES = 1000  # the first ones of the set are swept
MIN_IMAGES = 40  # a read-out needs this many images of a class
MIN_MOVED = 1e-5  # a vector that moves by less of its length has no fit: that is rounding
MAX_EXAMPLES = 4


class Parameter(NamedTuple):
    """A parameter to sweep; ``apply`` takes images (B, C, H, W) and a value."""

    apply: Callable[[Tensor, float], Tensor]
    values: tuple[float, ...]
    unit: str


PARAMETERS = {
    "rotation": Parameter(rotated, tuple(range(-30, 31, 5)), "degrees"),
    "shift x": Parameter(lambda images, pixels: shifted(images, pixels, 0), tuple(range(-3, 4)), "pixels"),
    "shift y": Parameter(lambda images, pixels: shifted(images, 0, pixels), tuple(range(-3, 4)), "pixels"),
}  # whole pixels, because others would blur the image


class Sweep(NamedTuple):
    """Measures of one parameter's sweep; NaN if there is nothing to measure."""

    fit: np.ndarray  # (N,) R^2 in [0, 1]; NaN for a vector that stays
    fit_permuted: np.ndarray
    moved: np.ndarray  # (N,) in [0, 1]
    readout: np.ndarray  # (J,) R^2 at most 1; NaN for classes of fewer than MIN_IMAGES images
    readout_permuted: np.ndarray


@torch.no_grad()
def equivariance(model: ImageNetwork, batches: Batches, on_progress: OnProgress = no_progress) -> dict:
    """Sweep the first ``MAX_IMAGES`` images of a set through every parameter.

    Args:
        model: a network with capsules whose images show one object; its mode is put back.
        batches: the images on the model's device; labels are not looked at.

    Returns:
        Plain numbers, ready for JSON and for ``viz.equivariance``: ``images``; ``parameters`` with ``unit``,
        ``values``, mean and standard deviation of each measure of ``Sweep``, and fit and read-out ``per_class``;
        ``examples``, the first images of different winning classes, with their vectors over the angles.

    Raises:
        InputError: a network without capsules, or one whose images show several objects.
    """
    check_capsules(model)
    total, seen = min(MAX_IMAGES, batches.num_images), 0
    winners: list[Tensor] = []
    vectors: dict[str, list[Tensor]] = {name: [] for name in PARAMETERS}
    with evaluating(model):
        for images, _ in batches.in_order():
            images = images[: total - seen]
            clean = model(images).scores  # (B, J)
            winner, rows = clean.argmax(dim=1), torch.arange(len(images), device=images.device)
            for name, parameter in PARAMETERS.items():
                steps = [model(parameter.apply(images, value)).capsules[rows, winner] for value in parameter.values]
                vectors[name].append(torch.stack(steps, dim=1).cpu().double())  # (B, T, D)
            winners.append(winner.cpu())
            seen += len(images)
            on_progress(seen / total)
            if seen == total:
                break
    by_parameter = {name: torch.cat(parts).numpy() for name, parts in vectors.items()}
    return summary(by_parameter, torch.cat(winners).numpy(), clean.shape[1])


def summary(vectors: dict[str, np.ndarray], winners: np.ndarray, num_classes: int) -> dict:
    """The result of ``equivariance`` for vectors (N, T, D) by parameter and winning classes (N,)."""
    sweeps = {
        name: measured(vectors[name], np.array(parameter.values, float), winners, num_classes)
        for name, parameter in PARAMETERS.items()
    }
    parameters = {}
    for name, sweep in sweeps.items():
        per_class = []
        for k in range(num_classes):
            mine = winners == k
            fit, readout = _mean_and_sd(sweep.fit[mine]), _number_or_none(sweep.readout[k])
            per_class.append({"images": int(mine.sum()), "fit": fit, "readout": readout})
        known = {"unit": PARAMETERS[name].unit, "values": PARAMETERS[name].values}
        measures = {measure: _mean_and_sd(values) for measure, values in sweep._asdict().items()}
        parameters[name] = {**known, **measures, "per_class": per_class}
    examples = [
        {
            "image": place,
            "class": int(winners[place]),
            "fit": _number_or_none(sweeps["rotation"].fit[place]),
            "vectors": vectors["rotation"][place].round(4).tolist(),
        }
        for place in sorted(np.unique(winners, return_index=True)[1].tolist())[:MAX_EXAMPLES]
    ]
    return {"images": len(winners), "parameters": parameters, "examples": examples}


def example_images(result: dict, batches: Batches) -> np.ndarray:
    """The images of a result's examples at the first, the middle and the last angle, (n, 3, C, H, W) uint8."""
    images, _ = batches.at(torch.tensor([example["image"] for example in result["examples"]]))
    apply, values, _ = PARAMETERS["rotation"]
    turned = [apply(images, angle) for angle in (values[0], values[len(values) // 2], values[-1])]
    return torch.stack(turned, dim=1).mul(255).round().byte().cpu().numpy()


def check_capsules(model: ImageNetwork) -> None:
    """Raise ``InputError`` if a network has no capsules to follow, or its images show several objects."""
    expect(getattr(model, "routes", False), "model", "a network with capsules", type(model).__name__, "CNNs have none")
    expect(model.objects == 1, "model", "a network whose images show one object", model.objects or "any number")


def measured(vectors: np.ndarray, values: np.ndarray, winners: np.ndarray, num_classes: int, seed: int = 0) -> Sweep:
    """All measures of one parameter's values (T,), for vectors (N, T, D) and their classes (N,)."""
    random = np.random.RandomState(seed)
    swept = np.tile(values, (len(vectors), 1))
    permuted = np.stack([random.permutation(values) for _ in vectors])
    readouts = np.full((2, num_classes), np.nan)
    for k in range(num_classes):
        mine = winners == k
        if mine.sum() >= MIN_IMAGES:
            readouts[:, k] = [readout(vectors[mine], p[mine]) for p in (swept, permuted)]
    return Sweep(line_fit(vectors, swept), line_fit(vectors, permuted), _moved(vectors), *readouts)


def line_fit(vectors: np.ndarray, values: np.ndarray) -> np.ndarray:
    """R^2 of v(p) by a + b p, for each image by itself, from vectors (N, T, D) and the parameter's values (N, T).

    The result (N,) is in [0, 1], and NaN for a vector that moves by less than ``MIN_MOVED`` of its length.
    """
    p = values - values.mean(axis=1, keepdims=True)
    centred = vectors - vectors.mean(axis=1, keepdims=True)
    slope = np.einsum("nt,ntd->nd", p, centred) / (p**2).sum(axis=1, keepdims=True)  # (N, D)
    explained, whole = (slope**2).sum(axis=1) * (p**2).sum(axis=1), (centred**2).sum(axis=(1, 2))
    moves = _moved(vectors) > MIN_MOVED
    return np.divide(explained, whole, out=np.full(len(vectors), np.nan), where=moves)


def readout(vectors: np.ndarray, values: np.ndarray) -> float:
    """R^2 of p by w.v + w0, fitted on every other image of a class, for the images between, held out.

    Vectors are (N, T, D), N >= 2, and the parameter's values (N, T). An image is in one half with all of its steps.
    """
    ones = np.ones((*vectors.shape[:2], 1))
    inputs = np.concatenate([vectors, ones], axis=2)
    weights, *_ = np.linalg.lstsq(inputs[::2].reshape(-1, inputs.shape[2]), values[::2].ravel(), rcond=None)
    p, error = values[1::2], values[1::2] - inputs[1::2] @ weights
    return float(1 - (error**2).sum() / ((p - p.mean()) ** 2).sum())


def _moved(vectors: np.ndarray) -> np.ndarray:
    centred = vectors - vectors.mean(axis=1, keepdims=True)
    whole = (vectors**2).sum(axis=(1, 2))
    return np.sqrt(np.divide((centred**2).sum(axis=(1, 2)), whole, out=np.zeros(len(vectors)), where=whole > 0))


def _number_or_none(value: float) -> float | None:
    return None if np.isnan(value) else float(value)


def _mean_and_sd(values: np.ndarray) -> dict:
    """Mean and standard deviation of the values that aren't NaN, and their number."""
    there = values[~np.isnan(values)]
    mean, sd = (float(there.mean()), float(there.std())) if len(there) else (None, None)
    return {"mean": mean, "sd": sd, "of": len(there)}
