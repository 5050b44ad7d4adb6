"""Accuracy of a trained network on test images that are turned, shifted, noisy, scrambled, or in the style of affNIST.

Each version of the images is classified once, in order, without labels. If accuracy falls but the mean score of the
answers doesn't, wrong answers have high scores. The random numbers of a change depend only on an image's place in
its data set, so a changed image is the same in any batch and on any device.
"""

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import fold, unfold

from experiments import table
from experiments.data.affnist import load_affnist, parts
from experiments.run import Place, chosen
from graphcaps.errors import expect
from graphcaps.images.analysis.accuracy import EVALUATION_BATCH, Evaluation, in_eval_mode
from graphcaps.images.data import Batches, Images, load_images
from graphcaps.images.data.augment import warped
from graphcaps.images.models import ImageNetwork
from graphcaps.images.models.answers import longest, overlaid
from graphcaps.images.models.evidence import evidence_of
from graphcaps.images.training.hardware import pick_device
from graphcaps.images.training.run_folder import Run, load
from graphcaps.progress import bar

SEED, STYLE = 0, "affNIST-style"
DIRECTIONS = ((1, 0), (-1, 0), (0, 1), (0, -1))  # (right, down)


def rotated(degrees: float, images: Tensor, places: Tensor) -> Tensor:
    """Turn images (B, C, H, W) counter-clockwise about their centre."""
    angle = torch.deg2rad(torch.full((len(images),), float(degrees)))
    inverse = torch.stack([angle.cos(), -angle.sin(), angle.sin(), angle.cos()], -1).view(-1, 2, 2)
    return warped(images, inverse)


def shifted(pixels: float, images: Tensor, places: Tensor) -> Tensor:
    """Shift images (B, C, H, W) right, left, down or up."""
    drawn = [DIRECTIONS[_random(place).randint(len(DIRECTIONS))] for place in places.tolist()]
    return warped(images, torch.eye(2).expand(len(images), 2, 2), pixels * torch.tensor(drawn).float().T)


def noisy(sd: float, images: Tensor, places: Tensor) -> Tensor:
    """Add Gaussian noise with standard deviation ``sd``, and clip to [0, 1]."""
    noise = np.stack([_random(place).standard_normal(images.shape[1:]) for place in places.tolist()])
    return (images + sd * torch.from_numpy(noise).to(images)).clamp(0, 1)


def scrambled(side: float, images: Tensor, places: Tensor) -> Tensor:
    """Cut images (B, C, H, W) into side x side patches and move every patch, so that only local content survives.

    Pixels at the border that fill no patch stay.

    >>> scrambled(2, torch.arange(4.0).view(1, 1, 2, 2), torch.tensor([0])).flatten().eq(torch.arange(4)).any()
    tensor(False)
    """
    side, (height, width) = int(side), images.shape[2:]
    patch = height // side, width // side
    top, left = (height - side * patch[0]) // 2, (width - side * patch[1]) // 2
    result = images.clone()
    inner = result[:, :, top : top + side * patch[0], left : left + side * patch[1]]
    patches = unfold(inner, patch, stride=patch)  # (B, C * patch, side * side)
    order = np.stack([_derangement(_random(place), side * side) for place in places.tolist()])
    patches = patches.gather(2, torch.from_numpy(order).to(images.device)[:, None].expand_as(patches))
    inner.copy_(fold(patches, inner.shape[2:], patch, stride=patch))
    return result


def _random(place: int) -> np.random.RandomState:
    """The generator of one place; ``RandomState`` has the same stream in all versions and on all platforms."""
    return np.random.RandomState([SEED, place])


def _derangement(random: np.random.RandomState, count: int) -> np.ndarray:
    """Draw a random permutation of ``count`` >= 2 numbers that leaves none in its place; all are equally likely."""
    while True:
        order = random.permutation(count)
        if (order != np.arange(count)).all():
            return order


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


@torch.no_grad()
def answers(model: ImageNetwork, batches: Batches, title: str, change: Callable | None = None) -> Evaluation:
    """Classify all images, changed by ``change(images, places)``. There is no loss, because images aren't compared."""
    batch_answers, count = [], 0
    with bar(title) as on_progress:
        for layers, labels in in_eval_mode(model, batches, on_progress):
            images, places = overlaid(layers), torch.arange(count, count + len(labels))
            images = change(images, places) if change else images
            output = model(images)
            predicted = longest(output.scores, model.objects)
            batch_answers.append((predicted, labels, evidence_of(images, output, model.objects)))
            count += len(labels)
    predicted, labels, evidence = (torch.cat(part).cpu() for part in zip(*batch_answers, strict=True))
    return Evaluation(predicted, labels, math.nan, evidence)


def row(name: str, result: Evaluation, model: ImageNetwork) -> dict:
    """The numbers of one version of the images.

    ``winning_score`` is the mean of the lowest scores (None if images may show any number of classes). ``recall`` is,
    for each class, the share of its images whose answer contains the class (None for a class without images).
    """
    shown, hits, _ = (counts.tolist() for counts in result.per_class(len(model.class_names)))
    return {
        "name": name,
        "correct": result.correct,
        "images": len(result.labels),
        "accuracy": result.accuracy,
        "interval_95": list(result.interval),
        "winning_score": None if model.objects is None else float(result.evidence[:, 0].double().mean()),
        "recall": [hit / total if total else None for hit, total in zip(hits, shown, strict=True)],
    }


def on_transform(model: ImageNetwork, batches: Batches, name: str) -> dict:
    """Evaluate a network on all images, transformed with each severity of ``TRANSFORMS[name]``."""
    transform, rows = TRANSFORMS[name], []
    for severity in transform.severities:
        change = None if severity == transform.clean else partial(transform.apply, severity)
        rows.append(row(f"{severity:g}", answers(model, batches, f"{name}, {severity:g}", change), model))
    clean = transform.severities.index(transform.clean)
    return {"on": name, "says": transform.says, "clean": clean, "seed": SEED, "rows": rows}


def on_affnist(model: ImageNetwork, batches: Batches, affnist: Images) -> dict:
    """Evaluate a network on the test images of ``mnist40``, and on all ``parts`` of affNIST-style images."""
    result = answers(model, Batches(affnist, EVALUATION_BATCH, device=next(model.parameters()).device), STYLE)
    rows = [row("mnist40", answers(model, batches, "mnist40"), model)]
    for name, part in parts(affnist).items():
        of_part = Evaluation(result.predicted[part], result.labels[part], math.nan, result.evidence[part])
        rows.append(row(STYLE + f" ({name})" * bool(name), of_part, model))
    return {"on": "affnist", "says": "image set", "clean": 0, "seed": SEED, "rows": rows}


def of_run(run: Run, place: Place, only: Sequence[str] = ()) -> dict[str, dict]:
    """Evaluate a run's network on each kind of test images: on those in ``only``, or on all that fit its data set."""
    config, device = run.config, pick_device("auto")
    fitting = [*TRANSFORMS, *["affnist"] * (config.dataset == "mnist40")]
    model, splits = load(run, device=device), load_images(config.dataset, place.data, **config.of_images)
    expect(splits.class_names == model.class_names, str(run), "the classes of its training", splits.class_names)
    batches, results = Batches(splits.test, EVALUATION_BATCH, device=device), {}
    for name in chosen(only, fitting):
        if name == "affnist":
            measured = on_affnist(model, batches, load_affnist(place.data))
        else:
            measured = on_transform(model, batches, name)
        about = {"model": config.model, "dataset": config.dataset_name, "class_names": model.class_names}
        results[name] = about | {"command": f"python -m experiments robustness RUN --only {name}"} | measured
    return results


def markdown(result: dict) -> str:
    """For each version of the test images: accuracy, mean winning score, and the class that loses the most recall."""
    rows, clean = [], result["rows"][result["clean"]]
    for row in result["rows"]:
        lost = np.array(clean["recall"], float) - np.array(row["recall"], float)  # NaN for classes without images
        worst, score = np.nanargmax(lost), row["winning_score"]
        hurt = f"{result['class_names'][worst]} ({100 * lost[worst]:.1f} points)"
        rows.append(
            {
                f"{result['on']}: {result['says']}": row["name"] + ", as they are" * (row is clean),
                "accuracy": f"{row['accuracy']:.2%}",
                "95 % interval": "{:.2%} to {:.2%}".format(*row["interval_95"]),
                "wrong": f"{row['images'] - row['correct']:,} of {row['images']:,}",
                "winning score": "-" if score is None else f"{score:.3f}",
                "most recall lost": hurt if lost[worst] > 0 else "-",
            }
        )
    return table.table(rows)
