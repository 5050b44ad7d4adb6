"""Robustness of a trained network: accuracy and recall per class on transformed test images.

Each version of the images is classified as in ``graphcaps evaluate``: each image once, in order, without labels. If
accuracy falls but the mean score of the answers doesn't, the network is wrong but confident.

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

from torch import Tensor

from ..data import Batches, Images, within
from ..data.transforms import SEED, TRANSFORMS, Transform
from ..models import ImageNetwork
from .accuracy import EVALUATION_BATCH, Evaluation, OnProgress, evaluate, no_progress

AFFNIST = "affNIST-style"


def evaluate_transform(model: ImageNetwork, batches: Batches, name: str, on_progress: OnProgress = no_progress) -> dict:
    """Evaluate a network on all images, transformed with each severity of ``TRANSFORMS[name]``."""
    transform, rows = TRANSFORMS[name], []
    for n, severity in enumerate(transform.severities):
        progress, change = _part(on_progress, n, len(transform.severities)), _change(transform, severity)
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


def _change(transform: Transform, severity: float) -> Callable[[Tensor, Tensor], Tensor] | None:
    if severity == transform.clean:
        return None
    return lambda images, places: transform.apply(images, severity, places)


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
