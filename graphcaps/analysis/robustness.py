"""Which transforms of the test images hurt which class, without training again.

Every version of an image set is classified as ``graphcaps evaluate`` does the set itself: each image once, in order,
and no label reaches the network. Beside right answers stands how sure the network is, the mean score of its answer:
where accuracy falls and the score doesn't, it is wrong and sure.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import torch
from torch import Tensor

from ..data import Batches
from ..data.transforms import SEED, TRANSFORMS
from ..errors import check_name
from ..models import ImageNetwork
from ..models.answers import is_correct, longest, overlaid, present
from .accuracy import evaluating, wilson_interval

Version = Callable[[Tensor, Tensor], Tensor]
"""Images (B, C, H, W) in [0, 1] and their places (B,) in the set -> what the network sees of them."""


@dataclass(frozen=True)
class Row:
    """Answers on one version of the test images.

    Args:
        name: the severity as printed, or the name of the image set.
        correct: images whose classes are all found.
        images: N.
        hits: of each class, how many of its images have it in the answer.
        of_class: of each class, how many images show it.
        score: the mean over the images of the score of the answer, in [0, 1].
    """

    name: str
    correct: int
    images: int
    hits: tuple[int, ...]
    of_class: tuple[int, ...]
    score: float

    @property
    def accuracy(self) -> float:
        """Share of right answers, in [0, 1]."""
        return self.correct / self.images

    @property
    def interval(self) -> tuple[float, float]:
        """95 % Wilson score interval of the accuracy."""
        return wilson_interval(self.correct, self.images)

    @property
    def recall(self) -> tuple[float | None, ...]:
        """Share of each class's images that have it in the answer, None where there is no image."""
        return tuple(hit / of if of else None for hit, of in zip(self.hits, self.of_class, strict=True))


@dataclass(frozen=True)
class Robustness:
    """Rows in the order of tables and pictures; ``rows[clean]`` are the images as they are."""

    on: str
    says: str
    """What the rows' names are."""
    rows: tuple[Row, ...]
    clean: int

    def hurt_most(self, row: Row) -> tuple[int, float]:
        """The class that loses most of its recall against the clean images, and how much (below 0: none loses any)."""
        pairs = enumerate(zip(self.rows[self.clean].recall, row.recall, strict=True))
        lost = [(before - after, -k) for k, (before, after) in pairs if before is not None and after is not None]
        most, place = max(lost)
        return -place, most

    def as_dict(self) -> dict:
        """All numbers, plain: what the picture is drawn from."""
        rows = [
            {
                "name": row.name,
                "correct": row.correct,
                "images": row.images,
                "accuracy": row.accuracy,
                "interval_95": row.interval,
                "winning_score": row.score,
                "recall": row.recall,
            }
            for row in self.rows
        ]
        return {"on": self.on, "says": self.says, "clean": self.clean, "seed": SEED, "rows": rows}

    def to_json(self, **about: object) -> str:
        """``as_dict`` as JSON, with what the numbers are of."""
        return json.dumps({**about, **self.as_dict()}, indent=1) + "\n"


def evaluate_transform(
    model: ImageNetwork, batches: Batches, name: str, on_progress: Callable[[float], object] = lambda share: None
) -> Robustness:
    """Evaluate a network on all images under each severity of a transform.

    Args:
        model: on the device of the batches; its mode is put back afterwards.
        batches: the images, taken in order.
        name: one of ``TRANSFORMS``.
        on_progress: called after each batch with the share of images done.

    Raises:
        InputError: an unknown name.
    """
    check_name("transform", name, list(TRANSFORMS))
    transform = TRANSFORMS[name]

    def version(severity: float) -> Version:
        if severity == transform.clean:
            return _as_they_are
        return lambda images, places: transform.apply(images, severity, places)

    versions = [version(severity) for severity in transform.severities]
    rows = _answer(model, batches, versions, [f"{severity:g}" for severity in transform.severities], on_progress)
    return Robustness(name, transform.says, rows, transform.severities.index(transform.clean))


def evaluate_sets(
    model: ImageNetwork,
    on: str,
    batches: dict[str, Batches],
    on_progress: Callable[[float], object] = lambda share: None,
    parts: Mapping[str, Mapping[str, Tensor]] = MappingProxyType({}),
) -> Robustness:
    """Evaluate a network on image sets by name; the first is the clean one.

    Args:
        model: on the device of the batches; its mode is put back afterwards.
        on: what the result is called.
        batches: the sets, each taken in order.
        on_progress: called after each batch with the share of images done.
        parts: of a set by its name, parts of it by theirs, each a bool (N,) of its images; those with images get a row
            below the set's.
    """
    rows: list[Row] = []
    done, total = 0, sum(part.num_images for part in batches.values())
    for name, part in batches.items():

        def share(of_part: float, done: int = done, part: Batches = part) -> object:
            return on_progress((done + of_part * part.num_images) / total)

        rows += _answer(model, part, [_as_they_are], [name], share, parts.get(name, {}))
        done += part.num_images
    return Robustness(on, "image set", tuple(rows), 0)


def _as_they_are(images: Tensor, places: Tensor) -> Tensor:
    return images


@torch.no_grad()
def _answer(
    model: ImageNetwork,
    batches: Batches,
    versions: Sequence[Version],
    names: Sequence[str],
    on_progress: Callable[[float], object],
    parts: Mapping[str, Tensor] = MappingProxyType({}),
) -> tuple[Row, ...]:
    """A row for each version of the images, and below it one for each part; all of them in one pass over the set."""
    answers: list[list[Tensor]] = [[] for _ in versions]
    sure: list[list[Tensor]] = [[] for _ in versions]
    truth, seen = [], 0
    with evaluating(model):
        for layers, labels in batches.in_order():
            images, places = overlaid(layers), torch.arange(seen, seen + len(labels))
            for n, version in enumerate(versions):
                of_classes = model(version(images, places)).scores  # (B, J)
                answer = longest(of_classes, model.objects)
                answers[n].append(answer)
                named = present(answer, of_classes.shape[1])
                sure[n].append((of_classes * named).sum(dim=1) / named.sum(dim=1).clamp_min(1))
            truth.append(labels)
            seen += len(labels)
            on_progress(seen / batches.num_images)
    labels, num_classes = torch.cat(truth), of_classes.shape[1]
    rows = []
    for name, answer, score in zip(names, map(torch.cat, answers), map(torch.cat, sure), strict=True):
        rows.append(_row(name, answer, score, labels, num_classes))
        for part, among in parts.items():
            if among.any():
                at = among.to(labels.device)
                rows.append(_row(part, answer[at], score[at], labels[at], num_classes))
    return tuple(rows)


def _row(name: str, answers: Tensor, score: Tensor, labels: Tensor, num_classes: int) -> Row:
    shown, found = present(labels, num_classes), present(answers, num_classes)  # (N, J)
    hits, of_class = (shown & found).sum(dim=0).tolist(), shown.sum(dim=0).tolist()
    correct = int(is_correct(answers, labels).sum())
    return Row(name, correct, len(labels), tuple(hits), tuple(of_class), float(score.cpu().double().mean()))
