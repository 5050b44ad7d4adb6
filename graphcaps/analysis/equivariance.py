"""How a capsule's vector moves as its object turns and shifts: what capsules promise, measured.

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

import json
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ..data import Batches
from ..data.transforms import rotated, shifted
from ..errors import expect
from ..models import ImageNetwork
from .accuracy import evaluating

IMAGES = 1000
"""Images that are swept, the first ones of the set."""
FEWEST = 40
"""Images of a class that a read-out is made of."""
STILL = 1e-5
"""A vector that moves less, as a share of its length, has no R^2: what is left is rounding."""


@dataclass(frozen=True)
class Parameter:
    """What is swept: ``apply`` takes images (B, C, H, W) and a value. Shifts by whole pixels blur nothing."""

    apply: Callable[[Tensor, float], Tensor]
    values: tuple[float, ...]
    unit: str


PARAMETERS = {
    "rotation": Parameter(rotated, tuple(range(-30, 31, 5)), "degrees"),
    "shift x": Parameter(lambda images, pixels: shifted(images, pixels, 0), tuple(range(-3, 4)), "pixels"),
    "shift y": Parameter(lambda images, pixels: shifted(images, 0, pixels), tuple(range(-3, 4)), "pixels"),
}


@dataclass(frozen=True)
class Sweep:
    """What one parameter does to N images' capsules; NaN where there is nothing to measure."""

    vectors: np.ndarray
    """(N, T, D) float64, at each of the T values."""
    fit: np.ndarray
    """(N,) R^2 in [0, 1]; NaN for a vector that stays."""
    fit_permuted: np.ndarray
    moved: np.ndarray
    """(N,) in [0, 1]."""
    readout: np.ndarray
    """(J,) R^2 at most 1; NaN for classes of fewer than ``FEWEST`` images."""
    readout_permuted: np.ndarray


@dataclass(frozen=True)
class Equivariance:
    """The sweeps by parameter, and which class's capsule was looked at of each image, ``winners`` (N,)."""

    winners: np.ndarray
    num_classes: int
    sweeps: dict[str, Sweep]

    def examples(self, most: int = 4) -> list[int]:
        """Places of the first images of different winning classes."""
        return sorted(np.unique(self.winners, return_index=True)[1].tolist())[:most]

    def as_dict(self) -> dict:
        """All numbers, plain: what the picture is drawn from."""
        of_class = [self.winners == k for k in range(self.num_classes)]
        parameters = {}
        for name, sweep in self.sweeps.items():
            per_class = [
                {"images": int(mine.sum()), "fit": _spread(sweep.fit[mine]), "readout": _plain(sweep.readout[k])}
                for k, mine in enumerate(of_class)
            ]
            parameters[name] = {
                "unit": PARAMETERS[name].unit,
                "values": PARAMETERS[name].values,
                "fit": _spread(sweep.fit),
                "fit_permuted": _spread(sweep.fit_permuted),
                "moved": _spread(sweep.moved),
                "readout": _spread(sweep.readout),
                "readout_permuted": _spread(sweep.readout_permuted),
                "per_class": per_class,
            }
        turned = self.sweeps["rotation"]
        examples = [
            {
                "image": place,
                "class": int(self.winners[place]),
                "fit": _plain(turned.fit[place]),
                "vectors": turned.vectors[place].round(4).tolist(),
            }
            for place in self.examples()
        ]
        return {"images": len(self.winners), "parameters": parameters, "examples": examples}

    def to_json(self, **about: object) -> str:
        """``as_dict`` as JSON, with what the numbers are of."""
        return json.dumps({**about, **self.as_dict()}, indent=1) + "\n"


@torch.no_grad()
def equivariance(
    model: ImageNetwork, batches: Batches, on_progress: Callable[[float], object] = lambda share: None
) -> Equivariance:
    """Sweep the first ``IMAGES`` images of a set through every parameter.

    Args:
        model: a network with capsules whose images show one object, on the device of the batches; its mode is put back.
        batches: the images, taken in order; labels are not looked at.
        on_progress: called after each batch with the share of images done.

    Raises:
        InputError: a network without capsules, or one whose images show several objects.
    """
    check_capsules(model)
    total = min(IMAGES, batches.num_images)
    winners: list[Tensor] = []
    vectors: dict[str, list[Tensor]] = {name: [] for name in PARAMETERS}
    seen = 0
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
    of_images = torch.cat(winners).numpy()
    swept = {
        name: measured(torch.cat(vectors[name]).numpy(), np.array(parameter.values, float), of_images, clean.shape[1])
        for name, parameter in PARAMETERS.items()
    }
    return Equivariance(of_images, clean.shape[1], swept)


def example_images(found: Equivariance, batches: Batches) -> np.ndarray:
    """The images of ``found.examples()`` at the first, the middle and the last angle, (n, 3, C, H, W) uint8."""
    images, _ = batches.at(torch.tensor(found.examples()))
    apply, values = PARAMETERS["rotation"].apply, PARAMETERS["rotation"].values
    turned = [apply(images, angle) for angle in (values[0], values[len(values) // 2], values[-1])]
    return torch.stack(turned, dim=1).mul(255).round().byte().cpu().numpy()


def check_capsules(model: ImageNetwork) -> None:
    """Raise ``InputError`` where a network has no capsules to follow, or its images show several objects."""
    expect(getattr(model, "routes", False), "model", "a network with capsules", type(model).__name__, "CNNs have none")
    expect(model.objects == 1, "model", "a network whose images show one object", model.objects or "any number")


def measured(vectors: np.ndarray, values: np.ndarray, winners: np.ndarray, num_classes: int, seed: int = 0) -> Sweep:
    """All numbers of one parameter.

    Args:
        vectors: (N, T, D).
        values: (T,), the parameter's.
        winners: (N,), the class of each vector.
        num_classes: J.
        seed: of the permutations.
    """
    random = np.random.RandomState(seed)
    taken = np.tile(values, (len(vectors), 1))
    permuted = np.stack([random.permutation(values) for _ in vectors])
    readouts = np.full((2, num_classes), np.nan)
    for k in range(num_classes):
        mine = winners == k
        if mine.sum() >= FEWEST:
            readouts[:, k] = [readout(vectors[mine], p[mine]) for p in (taken, permuted)]
    return Sweep(
        vectors,
        fit=line_fit(vectors, taken),
        fit_permuted=line_fit(vectors, permuted),
        moved=_moved(vectors),
        readout=readouts[0],
        readout_permuted=readouts[1],
    )


def line_fit(vectors: np.ndarray, values: np.ndarray) -> np.ndarray:
    """R^2 of v(p) by a + b p, for each image by itself.

    Args:
        vectors: (N, T, D).
        values: (N, T), the parameter's at each step.

    Returns:
        (N,) in [0, 1], NaN where a vector moves by less than ``STILL`` of its length.
    """
    p = values - values.mean(axis=1, keepdims=True)
    centred = vectors - vectors.mean(axis=1, keepdims=True)
    slope = np.einsum("nt,ntd->nd", p, centred) / (p**2).sum(axis=1, keepdims=True)  # (N, D)
    explained, whole = (slope**2).sum(axis=1) * (p**2).sum(axis=1), (centred**2).sum(axis=(1, 2))
    moves = _moved(vectors) > STILL
    return np.divide(explained, whole, out=np.full(len(vectors), np.nan), where=moves)


def readout(vectors: np.ndarray, values: np.ndarray) -> float:
    """R^2 of p by w.v + w0, fitted on every other image, of the images between, held out.

    Args:
        vectors: (N, T, D) of one class, N >= 2. An image is in one half with all of its steps.
        values: (N, T), the parameter's at each step.
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


def _plain(value: float) -> float | None:
    return None if np.isnan(value) else float(value)


def _spread(values: np.ndarray) -> dict:
    """Mean and standard deviation of what is there, and of how many."""
    there = values[~np.isnan(values)]
    mean, sd = (float(there.mean()), float(there.std())) if len(there) else (None, None)
    return {"mean": mean, "sd": sd, "of": len(there)}
