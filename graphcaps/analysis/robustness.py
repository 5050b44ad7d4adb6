"""Robustness of a trained network: accuracy and recall per class on transformed test images.

Each version of the images is classified as in ``graphcaps evaluate``: each image once, in order, without labels. If
accuracy falls but the mean score of the answers doesn't, the network is wrong but confident.

Results are plain data for JSON::

    on       name of the transform, or "affnist"      says    heading of the rows' names
    clean    index of the row of unchanged images     seed    random seed of the transforms
    rows     {"name", "correct", "images", "accuracy", "interval_95", "winning_score", "recall"} for each version:
             interval_95 is the Wilson score interval, winning_score the mean score of the answers, and recall, for
             each class, the share of its images whose answer contains the class (None if it has no images)
"""

import torch
from torch import Tensor

from ..data import Batches, Images, within
from ..data.transforms import SEED, TRANSFORMS
from ..models import ImageNetwork
from ..models.answers import longest, overlaid, present
from .accuracy import EVALUATION_BATCH, OnProgress, in_eval_mode, no_progress, wilson_interval


def evaluate_transform(model: ImageNetwork, batches: Batches, name: str, on_progress: OnProgress = no_progress) -> dict:
    """Evaluate a network on all images, transformed with each severity of ``TRANSFORMS[name]``."""
    transform, rows = TRANSFORMS[name], []
    for n, severity in enumerate(transform.severities):
        answers = _answered(model, batches, _part(on_progress, n, len(transform.severities)), name, severity)
        rows.append(_row(f"{severity:g}", *answers))
    clean = transform.severities.index(transform.clean)
    return {"on": name, "says": transform.says, "clean": clean, "seed": SEED, "rows": rows}


def evaluate_affnist(
    model: ImageNetwork, batches: Batches, affnist: Images, title: str, on_progress: OnProgress = no_progress
) -> dict:
    """Evaluate a network on the test images of ``mnist40``, and on the images and title that ``load_affnist`` returns.

    Digits ``within`` the shifts of ``mnist40`` and digits beyond them also get a row each, unless there are none.
    """
    known = _answered(model, batches, _part(on_progress, 0, 2))
    others = Batches(affnist, EVALUATION_BATCH, device=next(model.parameters()).device)
    answers, inside = _answered(model, others, _part(on_progress, 1, 2)), within(affnist)
    rows = [_row("mnist40", *known), _row(title, *answers)]
    for part, among in (("within", inside), ("beyond", ~inside)):
        if among.any():
            rows.append(_row(f"{title} ({part})", *(each[among] for each in answers)))
    return {"on": "affnist", "says": "image set", "clean": 0, "seed": SEED, "rows": rows}


def _part(on_progress: OnProgress, n: int, parts: int) -> OnProgress:
    return lambda share: on_progress((n + share) / parts)


@torch.no_grad()
def _answered(
    model: ImageNetwork, batches: Batches, on_progress: OnProgress, name: str = "", severity: float = 0
) -> tuple[Tensor, ...]:
    """Classify a set of images, transformed by ``TRANSFORMS[name]`` unless ``severity`` leaves them unchanged.

    Returns the classes in the answers (N, J) bool, the classes in the images (N, J) bool, and each answer's mean score
    (N,), all on the CPU.
    """
    answers, seen = [], 0
    for layers, labels in in_eval_mode(model, batches, on_progress):
        images = overlaid(layers)
        if name and severity != TRANSFORMS[name].clean:
            images = TRANSFORMS[name].apply(images, severity, torch.arange(seen, seen + len(labels)))
        scores = model(images).scores  # (B, J)
        named, shown = (present(each, scores.shape[1]) for each in (longest(scores, model.objects), labels))
        score = (scores * named).sum(dim=1) / named.sum(dim=1).clamp_min(1)
        answers.append([each.cpu() for each in (named, shown, score)])
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
        "winning_score": float(score.double().mean()),
        "recall": [hits / total if total else None for hits, total in counts],
    }
