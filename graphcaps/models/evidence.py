"""Doubtful answers: those to blank images, and those outside the limits that right answers keep to.

A network names a class for any image. Three numbers are compared with their values on validation images that it gets
right: the score of its answer, the next score, and the correlation of image and reconstruction. That reconstructions
reveal images of no class is from Frosst, Sabour & Hinton 2018, "DARCCC" (arXiv 1811.06969), who use their distance.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch.nn.functional import cosine_similarity

from .answers import overlaid

BLANK = 0.1  # least contrast of an image in [0, 1]; the grey of scanned paper has less
# Share of right answers that keep to the limits. With wrong ones, 1 % of MNIST's validation images are doubtful then.
SHARE, MOST = 0.993, "99.3 %"
MIN_ANSWERS = 20  # limits need as many right answers
BLANK_TEXT = f"the image is blank: its lightest and its darkest pixel are {{:.2f}} apart, less than {BLANK:.2f} of 1"


class Limits(NamedTuple):
    """The least score of an answer, the most of the next class, the least correlation; None: no limit."""

    answer: float | None = None
    other: float | None = None
    likeness: float | None = None


class Doubt(NamedTuple):
    """One reason to doubt an answer; ``text`` is a clause without a full stop."""

    kind: str  # "blank", "short", "several" or "unlike"
    text: str


def evidence_of(images: torch.Tensor, output: Any, objects: int | None) -> torch.Tensor:
    """(N, 3): the least of the answer's K scores, the next score, the correlation; NaN if there is no such number.

    There are no scores if images show any number of classes, and no correlation without a reconstruction.
    """
    answer = other = alike = torch.full_like(output.scores[:, 0], math.nan, dtype=torch.float32)
    if objects is not None:
        highest = output.scores.topk(min(objects + 1, output.scores.shape[1]), dim=1).values.float()
        answer = highest[:, objects - 1]
        if highest.shape[1] > objects:
            other = highest[:, objects]
    if (drawn := getattr(output, "reconstruction", None)) is not None:
        pixels = [each.flatten(1).float() for each in (images, overlaid(drawn))]  # (N, C * H * W)
        x, y = (each - each.mean(dim=1, keepdim=True) for each in pixels)
        alike = cosine_similarity(x, y, eps=1e-3)  # 0 if one of them is of one tone
    return torch.stack([answer, other, alike], dim=1)


def limits_of(evidence: torch.Tensor, right: torch.Tensor) -> Limits:
    """The limits that 99.3 % of the answers that are ``right`` (N,) keep to; none if fewer than 20 are right.

    As many answers are beyond each limit as beyond the others: the most that leave 99.3 % within all.
    """
    count = int(right.sum())
    if count < MIN_ANSWERS:
        return Limits()
    limits, allowed = Limits(), int((1 - SHARE) * count + 1e-9)
    answer, other, alike = evidence[right].double().unbind(1)
    ordered = answer.sort().values, other.sort(descending=True).values, alike.sort().values
    for beyond in range(allowed, -1, -1):
        numbers = (float(values[beyond]) for values in ordered)
        limits = Limits(*(None if math.isnan(each) else each for each in numbers))
        if int(outside(evidence[right].double(), limits).any(dim=1).sum()) <= allowed:
            break
    return limits


def outside(evidence: torch.Tensor, limits: Limits) -> torch.Tensor:
    """(N, 3) bool: whether too few capsules are long, whether too many are, whether the reconstruction is unlike."""
    answer, other, alike = (math.nan if each is None else each for each in limits)  # nothing is beyond NaN
    short = evidence[:, 0] < answer
    return torch.stack([short, (evidence[:, 1] > other) & ~short, evidence[:, 2] < alike], dim=1)


@torch.no_grad()
def doubts(model: Any, images: torch.Tensor, output: Any = None) -> list[tuple[Doubt, ...]]:
    """The doubts about each answer of a network in eval mode; a blank image has no other doubts.

    ``graphcaps.load`` gives the network its ``limits``; without them only answers to blank images are doubtful.
    """
    output = model(images) if output is None else output
    planes, evidence, K = images.flatten(2), evidence_of(images, output, model.objects), model.objects or 1
    contrast = (planes.amax(dim=2) - planes.amin(dim=2)).amax(dim=1)  # (N,)
    long, rank = ("long", "longest capsule") if hasattr(output, "lengths") else ("high", "highest score")
    ordinal = {1: "", 2: "second ", 3: "third "}
    ranks = [f"the {ordinal.get(n, f'{n}th ')}{rank} has" for n in (K, K + 1)]
    few, many = ("nothing is", "two are") if K == 1 else (f"fewer than {K} are", f"more than {K} are")
    unlike = "the reconstruction is unlike the image: their correlation is"
    begins, ends = (f"{few} {long}: {ranks[0]}", f"{many} {long}: {ranks[1]}", unlike), ("more", "less", "more")
    doubtful = [[Doubt("blank", BLANK_TEXT.format(each))] if each < BLANK else [] for each in contrast.tolist()]
    for n, k in outside(evidence, model.limits).nonzero().tolist():
        if contrast[n] >= BLANK:
            text = f"{begins[k]} {float(evidence[n, k]):.2f}, {MOST} of right answers have {model.limits[k]:.2f} or "
            doubtful[n].append(Doubt(("short", "several", "unlike")[k], text + ends[k]))
    return [tuple(each) for each in doubtful]
