"""Equivariance: how a capsule's vector changes while its object is rotated and shifted.

Each image is transformed with all values of one parameter p. v(p) is the vector, of D numbers, of the class that wins
on the clean image, so no labels are used. Three numbers are measured:

    fit       how linear the vector's path is: R^2 of the fit of v(p) by a + b p, for each image
    read-out  how well v predicts p: R^2 of the fit of p by w.v + w0, for each class. The fit is made on half of the
              images, and R^2 is measured on the other half; below 0 is worse than predicting the mean of p
    moved     how far the vector moves: sqrt(sum |v(p) - mean v|^2 / sum |v(p)|^2), 0 if p doesn't affect the vector

Fits are by least squares; R^2 is 1 - (sum of squared errors) / (sum of squared distances from the mean). As a control,
fit and read-out are repeated with the parameter's values permuted within each image. By chance, a fit of T steps then
explains 1 / (T - 1), and a read-out explains nothing.
"""

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from ..data import Batches
from ..data.transforms import rotated, shifted
from ..models import ImageNetwork
from .accuracy import EVALUATION_BATCH, OnProgress, evaluating, no_progress

MAX_IMAGES = 1000  # only the first images of the set are used
MIN_IMAGES = 40  # least number of images of a class for a read-out
MIN_MOVED = 1e-5  # a vector with a smaller ``moved`` has no fit, because its change is only rounding
MAX_EXAMPLES = 4

PARAMETERS: dict[str, tuple[Callable[[Tensor, float], Tensor], tuple[float, ...], str]] = {
    "rotation": (rotated, tuple(range(-30, 31, 5)), "degrees"),
    "shift x": (lambda images, pixels: shifted(images, pixels, 0), tuple(range(-3, 4)), "pixels"),
    "shift y": (lambda images, pixels: shifted(images, 0, pixels), tuple(range(-3, 4)), "pixels"),
}
"""For each parameter: its transform of images (B, C, H, W), its values and their unit. Shifts are by whole pixels,
because fractions would blur the image."""


@torch.no_grad()
def equivariance(
    model: ImageNetwork, batches: Batches, on_progress: OnProgress = no_progress
) -> tuple[dict, np.ndarray]:
    """Measure the first ``MAX_IMAGES`` images of a set with every parameter.

    Args:
        model: a network with capsules, for images of one object. Its mode is restored at the end.
        batches: the images, on the model's device. Their labels are ignored.

    Returns:
        plain data for JSON: ``images`` (their number); ``parameters``, each with ``unit``, ``values``, the mean and
        standard deviation of each number of ``measured``, and fit and read-out ``per_class``; ``examples``, the first
        images of different winning classes, with their vectors at each angle. Then the example images at the first,
        the middle and the last angle, (n, 3, C, H, W) uint8.
    """
    places = torch.arange(min(MAX_IMAGES, batches.num_images))
    paths: dict[str, list[Tensor]] = {name: [] for name in (*PARAMETERS, "winners")}
    with evaluating(model):
        for chunk in places.split(EVALUATION_BATCH):
            images, _ = batches.at(chunk)
            clean = model(images).scores  # (B, J)
            winner, rows = clean.argmax(dim=1), torch.arange(len(images), device=images.device)
            for name, (apply, values, _) in PARAMETERS.items():
                steps = [model(apply(images, value)).capsules[rows, winner] for value in values]
                paths[name].append(torch.stack(steps, dim=1).cpu().double())  # (B, T, D)
            paths["winners"].append(winner.cpu())
            on_progress((int(chunk[-1]) + 1) / len(places))
    result = _summary({name: torch.cat(parts).numpy() for name, parts in paths.items()}, clean.shape[1])
    images, _ = batches.at(torch.tensor([example["image"] for example in result["examples"]]))
    turn, angles, _ = PARAMETERS["rotation"]
    turned = [turn(images, angle) for angle in (angles[0], angles[len(angles) // 2], angles[-1])]
    return result, torch.stack(turned, dim=1).mul(255).round().byte().cpu().numpy()


def _summary(paths: dict[str, np.ndarray], num_classes: int) -> dict:
    """The data of ``equivariance``, from the vectors (N, T, D) of each parameter and the winning classes (N,)."""
    parameters, fits, winners = {}, {}, paths["winners"]
    classes = winners == np.arange(num_classes)[:, None]  # (J, N)
    for name, (_, values, unit) in PARAMETERS.items():
        measures = measured(paths[name], np.array(values, float), classes)
        fits[name] = measures["fit"]
        per_class = [
            {"images": int(mine.sum()), "fit": _mean_and_sd(fits[name][mine]), "readout": _number_or_none(number)}
            for mine, number in zip(classes, measures["readout"], strict=True)
        ]
        summaries = {measure: _mean_and_sd(numbers) for measure, numbers in measures.items()}
        parameters[name] = {"unit": unit, "values": values, **summaries, "per_class": per_class}
    examples = [
        {
            "image": place,
            "class": int(winners[place]),
            "fit": _number_or_none(fits["rotation"][place]),
            "vectors": paths["rotation"][place].round(4).tolist(),
        }
        for place in sorted(np.unique(winners, return_index=True)[1].tolist())[:MAX_EXAMPLES]
    ]
    return {"images": len(winners), "parameters": parameters, "examples": examples}


def measured(vectors: np.ndarray, values: np.ndarray, classes: np.ndarray) -> dict[str, np.ndarray]:
    """All measurements for one parameter's values (T,), vectors (N, T, D), and winning classes (J, N) bool.

    Returns ``fit``, ``fit_permuted`` and ``moved`` (N,), and ``readout`` and ``readout_permuted`` (J,).
    """
    random = np.random.RandomState(0)
    swept = np.tile(values, (len(vectors), 1))
    permuted = np.stack([random.permutation(values) for _ in vectors])
    return {
        "fit": line_fit(vectors, swept),
        "fit_permuted": line_fit(vectors, permuted),
        "moved": _moved(vectors),
        "readout": np.array([readout(vectors[mine], swept[mine]) for mine in classes]),
        "readout_permuted": np.array([readout(vectors[mine], permuted[mine]) for mine in classes]),
    }


def line_fit(vectors: np.ndarray, values: np.ndarray) -> np.ndarray:
    """R^2 (N,) in [0, 1] of the fit of v(p) by a + b p for each image; NaN if ``moved`` is at most ``MIN_MOVED``.

    Vectors are (N, T, D), values of the parameter (N, T).
    """
    p = values - values.mean(axis=1, keepdims=True)
    centred = vectors - vectors.mean(axis=1, keepdims=True)
    slope = np.einsum("nt,ntd->nd", p, centred) / (p**2).sum(axis=1, keepdims=True)  # (N, D)
    explained, whole = (slope**2).sum(axis=1) * (p**2).sum(axis=1), (centred**2).sum(axis=(1, 2))
    return np.divide(explained, whole, out=np.full(len(vectors), np.nan), where=_moved(vectors) > MIN_MOVED)


def readout(vectors: np.ndarray, values: np.ndarray) -> float:
    """R^2 of the fit of p by w.v + w0: fitted on images 0, 2, 4, ..., measured on images 1, 3, 5, ...

    Vectors are (N, T, D), values of the parameter (N, T). NaN for fewer than ``MIN_IMAGES`` images.
    """
    if len(vectors) < MIN_IMAGES:
        return np.nan
    inputs = np.pad(vectors, [(0, 0), (0, 0), (0, 1)], constant_values=1)
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
    """Mean, standard deviation and number of the values that aren't NaN."""
    known = values[~np.isnan(values)]
    mean, sd = (float(known.mean()), float(known.std())) if len(known) else (None, None)
    return {"mean": mean, "sd": sd, "of": len(known)}
