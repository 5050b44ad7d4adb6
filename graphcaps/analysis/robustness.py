"""Robustness of a trained network: accuracy and recall per class on transformed test images.

Each version of an image set is classified like the set itself in ``graphcaps evaluate``: each image once, in order,
without labels. Results include the mean score of the answers. If accuracy falls but this score doesn't, the network is
wrong but confident.

Results are plain data for JSON and for ``viz.robustness``::

    on       name of the transform, or of the comparison of sets     says    heading of the rows' names
    clean    index of the row of unchanged images                    seed    random seed of the transforms
    rows     {"name", "correct", "images", "accuracy", "interval_95", "winning_score", "recall"} for each version:
             interval_95 is the Wilson score interval, winning_score the mean score of the answers, and recall, for
             each class, the share of its images whose answer contains the class (None if it has no images)
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from ..data import Batches
from ..data.transforms import SEED, TRANSFORMS, Transform
from ..models import ImageNetwork
from ..models.answers import longest, overlaid, present
from .accuracy import OnProgress, in_eval_mode, no_progress, wilson_interval


def evaluate_transform(model: ImageNetwork, batches: Batches, name: str, on_progress: OnProgress = no_progress) -> dict:
    """Evaluate a network on all images, transformed with each severity of ``TRANSFORMS[name]``."""
    transform, rows = TRANSFORMS[name], []
    for n, severity in enumerate(transform.severities):
        answers = _answered(model, batches, _part(on_progress, n, len(transform.severities)), transform, severity)
        rows.append(_row(f"{severity:g}", *answers))
    clean = transform.severities.index(transform.clean)
    return {"on": name, "says": transform.says, "clean": clean, "seed": SEED, "rows": rows}


def evaluate_sets(
    model: ImageNetwork,
    on: str,
    sets: Mapping[str, Batches],
    parts: Mapping[str, Mapping[str, Tensor]],
    on_progress: OnProgress = no_progress,
) -> dict:
    """Evaluate a network on several image sets, given by name. The first is the clean one.

    Args:
        on: name of the comparison, stored in the result.
        parts: named parts of each set, as ``parts[set][part]``, a bool mask (N,) over the set's images. Each part that
            isn't empty gets a row below the set's row.
    """
    rows = []
    for n, (name, batches) in enumerate(sets.items()):
        answers = _answered(model, batches, _part(on_progress, n, len(sets)))
        rows.append(_row(name, *answers))
        for part, among in parts.get(name, {}).items():
            if among.any():
                rows.append(_row(part, *(each[among.to(each.device)] for each in answers)))
    return {"on": on, "says": "image set", "clean": 0, "seed": SEED, "rows": rows}


def _part(on_progress: OnProgress, n: int, parts: int) -> OnProgress:
    return lambda share: on_progress((n + share) / parts)


@torch.no_grad()
def _answered(
    model: ImageNetwork,
    batches: Batches,
    on_progress: OnProgress,
    transform: Transform | None = None,
    severity: float = 0.0,
) -> tuple[Tensor, ...]:
    """Classify a set of images, transformed unless ``severity`` leaves them unchanged.

    Returns the classes in the answers (N, J) bool, the classes in the images (N, J) bool, and each answer's mean score
    (N,).
    """
    answers, seen = [], 0
    for layers, labels in in_eval_mode(model, batches, on_progress):
        images = overlaid(layers)
        if transform is not None and severity != transform.clean:
            images = transform.apply(images, severity, torch.arange(seen, seen + len(labels)))
        scores = model(images).scores  # (B, J)
        named, shown = (present(each, scores.shape[1]) for each in (longest(scores, model.objects), labels))
        answers.append((named, shown, (scores * named).sum(dim=1) / named.sum(dim=1).clamp_min(1)))
        seen += len(labels)
    return tuple(map(torch.cat, zip(*answers, strict=True)))


def _row(name: str, named: Tensor, shown: Tensor, score: Tensor) -> dict:
    correct, images = int((named == shown).all(dim=1).sum()), len(score)
    counts = zip((shown & named).sum(dim=0).tolist(), shown.sum(dim=0).tolist(), strict=True)
    return {
        "name": name,
        "correct": correct,
        "images": images,
        "accuracy": correct / images,
        "interval_95": wilson_interval(correct, images),
        "winning_score": float(score.cpu().double().mean()),
        "recall": [hits / total if total else None for hits, total in counts],
    }
