"""Robustness of a trained network: accuracy and recall per class on transformed test images.

Each version of an image set is classified like the set itself in ``graphcaps evaluate``: each image once, in order,
without labels. Results also have the mean score of the answers. If accuracy falls and this score doesn't, the network
is wrong but confident.

Results are plain data for JSON and for ``viz.robustness``::

    on       name of the transform, or of the comparison of sets     says    heading of the rows' names
    clean    index of the row of unchanged images                    seed    of the transforms
    rows     {"name", "correct", "images", "accuracy", "interval_95", "winning_score", "recall"} for each version:
             interval_95 is the Wilson score interval, winning_score the mean score of the answers, and recall, for
             each class, the share of its images whose answer has the class, or None without images
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from ..data import Batches
from ..data.transforms import SEED, TRANSFORMS
from ..errors import check_name
from ..models import ImageNetwork
from ..models.answers import is_correct, longest, overlaid, present
from .accuracy import OnProgress, in_eval_mode, no_progress, wilson_interval

Version = Callable[[Tensor, Tensor], Tensor]
"""A transform of images (B, C, H, W) in [0, 1], given also their indices (B,) in the set."""


def evaluate_transform(model: ImageNetwork, batches: Batches, name: str, on_progress: OnProgress = no_progress) -> dict:
    """Evaluate a network on all images, transformed with each severity of a transform.

    Raises:
        InputError: the name isn't in ``TRANSFORMS``.
    """
    check_name("transform", name, list(TRANSFORMS))
    transform = TRANSFORMS[name]

    def version(severity: float) -> Version:
        if severity == transform.clean:
            return _unchanged
        return lambda images, places: transform.apply(images, severity, places)

    versions = {f"{severity:g}": version(severity) for severity in transform.severities}
    rows, clean = _rows(model, batches, versions, {}, on_progress), transform.severities.index(transform.clean)
    return {"on": name, "says": transform.says, "clean": clean, "seed": SEED, "rows": rows}


def evaluate_sets(
    model: ImageNetwork,
    on: str,
    batches: dict[str, Batches],
    parts: Mapping[str, Mapping[str, Tensor]],
    on_progress: OnProgress = no_progress,
) -> dict:
    """Evaluate a network on several image sets, given by name. The first is the clean one.

    Args:
        on: name of the comparison, stored in the result.
        parts: for the name of a set, its parts by name, each a bool mask (N,) over its images. Each part that isn't
            empty gets a row below the set's row.
    """
    rows: list[dict] = []
    done, total = 0, sum(images.num_images for images in batches.values())
    for name, images in batches.items():
        before, share = done / total, images.num_images / total

        def on_part(part: float, before: float = before, share: float = share) -> object:
            return on_progress(before + part * share)

        rows += _rows(model, images, {name: _unchanged}, parts.get(name, {}), on_part)
        done += images.num_images
    return {"on": on, "says": "image set", "clean": 0, "seed": SEED, "rows": rows}


def _unchanged(images: Tensor, places: Tensor) -> Tensor:
    return images


@torch.no_grad()
def _rows(
    model: ImageNetwork,
    batches: Batches,
    versions: Mapping[str, Version],
    parts: Mapping[str, Tensor],
    on_progress: OnProgress,
) -> list[dict]:
    """One row for each version of the images, each followed by rows for its parts, in one pass over the set."""
    answers: dict[str, list[Tensor]] = {name: [] for name in versions}
    scores: dict[str, list[Tensor]] = {name: [] for name in versions}
    truths, seen, num_classes = [], 0, 0
    for layers, labels in in_eval_mode(model, batches, on_progress):
        images, places = overlaid(layers), torch.arange(seen, seen + len(labels))
        for name, version in versions.items():
            by_class = model(version(images, places)).scores  # (B, J)
            answer, num_classes = longest(by_class, model.objects), by_class.shape[1]
            named = present(answer, num_classes)
            answers[name].append(answer)
            scores[name].append((by_class * named).sum(dim=1) / named.sum(dim=1).clamp_min(1))
        truths.append(labels)
        seen += len(labels)
    labels, rows = torch.cat(truths), []
    for name in versions:
        answer, score = torch.cat(answers[name]), torch.cat(scores[name])
        rows.append(_row(name, answer, score, labels, num_classes))
        for part, among in parts.items():
            if among.any():
                at = among.to(labels.device)
                rows.append(_row(part, answer[at], score[at], labels[at], num_classes))
    return rows


def _row(name: str, answers: Tensor, scores: Tensor, labels: Tensor, num_classes: int) -> dict:
    shown, answered = present(labels, num_classes), present(answers, num_classes)  # (N, J)
    counts = zip((shown & answered).sum(dim=0).tolist(), shown.sum(dim=0).tolist(), strict=True)
    correct = int(is_correct(answers, labels).sum())
    return {
        "name": name,
        "correct": correct,
        "images": len(labels),
        "accuracy": correct / len(labels),
        "interval_95": wilson_interval(correct, len(labels)),
        "winning_score": float(scores.cpu().double().mean()),
        "recall": [hits / images if images else None for hits, images in counts],
    }
