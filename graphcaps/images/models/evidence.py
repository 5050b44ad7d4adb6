"""Doubtful answers: answers to blank images, and answers that lie outside the range of nearly all right answers.

Three numbers are compared with limits, which were measured on right answers to validation images: the answer's score,
the next highest score, and the correlation of image and reconstruction. Frosst, Sabour & Hinton 2018, "DARCCC" (arXiv
1811.06969), use the distance between image and reconstruction for this.
"""

import math
from typing import Any, NamedTuple

import torch
from torch.nn.functional import cosine_similarity

from .answers import overlaid

BLANK = 0.1  # images with less contrast are blank; scanned blank paper has less
# Share of right answers within the limits. With it, 1 % of MNIST's validation images, right or wrong, are doubtful.
SHARE, MOST = 0.993, "99.3 %"
MIN_ANSWERS = 20  # right answers that are needed to measure limits
LOW = 0.2  # up to here, a digit of a pair is absent; 97 % of MNIST's test digits alone have no other one above
BLANK_TEXT = f"the image is blank: its lightest and darkest pixels differ by {{:.2f}}, less than {BLANK:.2f}"


class Limits(NamedTuple):
    """Limits of answers without a doubt: least score, largest next score, least correlation. None means no limit."""

    answer: float | None = None
    other: float | None = None
    likeness: float | None = None


class Doubt(NamedTuple):
    """A reason to doubt an answer; ``text`` is a clause without a full stop."""

    kind: str  # "blank", "short", "several" or "unlike"; "sheet" if a drawing may have been read wrongly
    text: str


def evidence_of(images: torch.Tensor, output: Any, objects: int | None) -> torch.Tensor:
    """(N, 3): the lowest of the answer's K scores, the next score, and the correlation.

    The scores are NaN if ``objects`` is None, and the correlation is NaN if there is no reconstruction.
    """
    answer = other = alike = torch.full_like(output.scores[:, 0], math.nan, dtype=torch.float32)
    if objects is not None:
        highest = output.scores.topk(min(objects + 1, output.scores.shape[1]), dim=1).values.float()
        answer = highest[:, objects - 1]
        if highest.shape[1] > objects:
            other = highest[:, objects]
    if (drawn := getattr(output, "reconstruction", None)) is not None:
        pixels = (images.flatten(1).float(), overlaid(drawn).flatten(1).float())  # (N, C * H * W)
        x, y = (rows - rows.mean(dim=1, keepdim=True) for rows in pixels)
        alike = cosine_similarity(x, y, eps=1e-3)  # 0 if an image is constant
    return torch.stack([answer, other, alike], dim=1)


def limits_of(evidence: torch.Tensor, right: torch.Tensor) -> Limits:
    """Limits that hold for 99.3 % of the ``right`` (N,) answers; no limits if fewer than 20 are right.

    Each limit excludes the same number of answers: the largest number that leaves 99.3 % within all three.
    """
    count = int(right.sum())
    if count < MIN_ANSWERS:
        return Limits()
    limits, allowed = Limits(), int((1 - SHARE) * count + 1e-9)
    answer, other, alike = evidence[right].double().unbind(1)
    ordered = answer.sort().values, other.sort(descending=True).values, alike.sort().values
    for beyond in range(allowed, -1, -1):
        numbers = (float(values[beyond]) for values in ordered)
        limits = Limits(*(None if math.isnan(number) else number for number in numbers))
        if int(outside(evidence[right].double(), limits).any(dim=1).sum()) <= allowed:
            break
    return limits


def outside(evidence: torch.Tensor, limits: Limits) -> torch.Tensor:
    """(N, 3) bool: the answer's score is too low; the next score is too high; the reconstruction is too different."""
    answer, other, alike = (math.nan if limit is None else limit for limit in limits)  # comparisons with NaN are False
    short = evidence[:, 0] < answer
    return torch.stack([short, (evidence[:, 1] > other) & ~short, evidence[:, 2] < alike], dim=1)


def _fewer(scores: torch.Tensor, limits: Limits) -> bool:
    """Whether an answer of K > 1 objects (K,) is one of fewer, as in training: no score is above LOW and too low."""
    assert limits.answer is not None
    return not ((scores > LOW) & (scores < limits.answer)).any()


@torch.no_grad()
def doubts(model: Any, images: torch.Tensor, output: Any = None) -> list[tuple[Doubt, ...]]:
    """The reasons to doubt each answer of a network in eval mode. For a blank image, that is the only reason.

    ``graphcaps.load`` sets the network's ``limits``. Without limits, only answers to blank images are doubtful.
    """
    output = model(images) if output is None else output
    planes, evidence, K = images.flatten(2), evidence_of(images, output, model.objects), model.objects or 1
    contrast = (planes.amax(dim=2) - planes.amin(dim=2)).amax(dim=1)  # (N,)
    long, rank = ("long", "longest capsule") if hasattr(output, "lengths") else ("high", "highest score")
    ordinal = {1: "", 2: "second ", 3: "third "}
    ranks = [f"the {ordinal.get(n, f'{n}th ')}{rank} has" for n in (K, K + 1)]
    few = "nothing is" if K == 1 else f"fewer than {K} are"
    many = "two are" if K == 1 else f"more than {K} are"
    unlike = "the reconstruction is unlike the image: their correlation is"
    begins = f"{few} as {long} as usual: {ranks[0]}", f"{many} {long}: {ranks[1]}", unlike
    ends = "more", "less", "more"
    doubtful = [[Doubt("blank", BLANK_TEXT.format(gap))] if gap < BLANK else [] for gap in contrast.tolist()]
    for n, k in outside(evidence, model.limits).nonzero().tolist():
        if contrast[n] >= BLANK and not (k == 0 and K > 1 and _fewer(output.scores[n].topk(K).values, model.limits)):
            text = f"{begins[k]} {float(evidence[n, k]):.2f}, {MOST} of right answers have {model.limits[k]:.2f} or "
            doubtful[n].append(Doubt(("short", "several", "unlike")[k], text + ends[k]))
    return [tuple(reasons) for reasons in doubtful]
