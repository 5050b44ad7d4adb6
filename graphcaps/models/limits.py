"""When an answer is doubtful: the image is blank, nothing is long, more is long than was taught, or it looks unlike.

A network names a class for any image. Three numbers of its output are held against what they are on validation images
that it gets right: the score of its answer, the score of the next class, and how much the reconstruction is like the
image. That a reconstruction tells images of no class was found by Frosst, Sabour & Hinton 2018, "DARCCC: Detecting
Adversaries by Reconstruction from Class Conditional Capsules" (arXiv 1811.06969).

Differs:
    The paper takes the distance between image and reconstruction. Here it is their correlation, in which a blank image
    isn't near to a thin digit.
"""

from __future__ import annotations

import dataclasses
import json
from typing import Any, Literal, NamedTuple

import torch

from ..errors import InputError
from .network import ImageNetwork
from .objects import overlaid

BLANK = 0.1  # of the range [0, 1] from the darkest to the lightest pixel; the grey of scanned paper stays below
SELDOM = 0.01  # share of right answers on each side of a limit
MOST = f"{100 * (1 - SELDOM):.0f} %"
FEWEST = 20  # right answers that limits are chosen on


class Evidence(NamedTuple):
    """The numbers of an output that its limits are about, for N images.

    ``highest`` (N, K + 1): the scores of the answer's K classes and of the next one, descending; (N, K) where there is
    no other class. ``likeness`` (N,) in [-1, 1]: correlation of the pixels of image and reconstruction, None where the
    network doesn't reconstruct.
    """

    highest: torch.Tensor
    likeness: torch.Tensor | None

    @classmethod
    def of(cls, images: torch.Tensor, output: Any, objects: int) -> Evidence:
        """The evidence in a network's output in eval mode, of images (B, C, H, W) that show K objects."""
        count = min(objects + 1, output.scores.shape[1])
        drawn = getattr(output, "reconstruction", None)
        return cls(
            output.scores.topk(count, dim=1).values, None if drawn is None else likeness(images, overlaid(drawn))
        )


def likeness(images: torch.Tensor, others: torch.Tensor) -> torch.Tensor:
    """Correlation (B,) in [-1, 1] of the pixels of two images (B, C, H, W) each; 0 where one of them is of one tone.

    >>> image = torch.tensor([[[[0.0, 0.5, 1.0]]]])
    >>> [round(float(likeness(image, other)), 3) for other in (image, 1 - image, image / 2, torch.ones_like(image))]
    [1.0, -1.0, 1.0, 0.0]
    """
    x, y = (each.flatten(1).float() for each in (images, others))
    x, y = (each - each.mean(dim=1, keepdim=True) for each in (x, y))  # (B, C * H * W)
    sizes = torch.linalg.vector_norm(x, dim=1) * torch.linalg.vector_norm(y, dim=1)
    return (x * y).sum(dim=1) / sizes.clamp_min(1e-6)


@dataclasses.dataclass(frozen=True)
class Limits:
    """What 99 % of a network's right answers keep to, each taken by itself, on validation images.

    Args:
        epoch: epochs of training that made the weights.
        right: how many right answers these are; with fewer than ``FEWEST`` the others are None.
        answer: the least of the K scores of the answer is seldom below.
        other: the next score is seldom above; None where there is no other class.
        likeness: seldom below; None where the network doesn't reconstruct.
    """

    epoch: int
    right: int
    answer: float | None = None
    other: float | None = None
    likeness: float | None = None

    @classmethod
    def of(cls, seen: Evidence, right: torch.Tensor, objects: int, epoch: int) -> Limits:
        """Choose limits on the images that are ``right`` (N,), of validation images' evidence."""
        count = int(right.sum())
        if count < FEWEST:
            return cls(epoch, count)
        highest = seen.highest[right].double()  # (count, K + 1)
        answer = highest[:, objects - 1].quantile(SELDOM, interpolation="lower")
        other = alike = None
        if highest.shape[1] > objects:
            other = float(highest[:, objects].quantile(1 - SELDOM, interpolation="higher"))
        if seen.likeness is not None:
            alike = float(seen.likeness[right].double().quantile(SELDOM, interpolation="lower"))
        return cls(epoch, count, float(answer), other, alike)

    @classmethod
    def from_json(cls, text: str, source: str) -> Limits:
        """Read what ``to_json`` wrote; raise ``InputError``, naming ``source``, for anything else."""
        try:
            found = json.loads(text)
            numbers = {field.name: found[field.name] for field in dataclasses.fields(cls)}
            if not all(isinstance(numbers[name], int) for name in ("epoch", "right")):
                raise ValueError("epoch and right are not integers")
            thresholds = [numbers[name] for name in ("answer", "other", "likeness")]
            if not all(value is None or isinstance(value, (int, float)) for value in thresholds):
                raise ValueError(f"{thresholds} are not numbers")
            return cls(**numbers)
        except (ValueError, KeyError, TypeError) as error:
            raise InputError(f"{source}: expected limits as JSON, got: {error!r}. Delete it") from None

    def to_json(self) -> str:
        """The limits, and beside them what they are."""
        says = f"what {MOST} of right answers to validation images keep to: graphcaps/models/limits.py"
        return json.dumps({"limits": says, **dataclasses.asdict(self)}, indent=2) + "\n"

    def doubted(self, seen: Evidence, objects: int) -> Doubted:
        """Which answers are outside the limits."""
        none = torch.zeros(len(seen.highest), dtype=torch.bool, device=seen.highest.device)
        short, several, unlike = none, none, none
        if self.answer is not None:
            short = seen.highest[:, objects - 1] < self.answer
        if self.other is not None and seen.highest.shape[1] > objects:
            several = (seen.highest[:, objects] > self.other) & ~short
        if self.likeness is not None and seen.likeness is not None:
            unlike = seen.likeness < self.likeness
        return Doubted(short, several, unlike)


class Doubted(NamedTuple):
    """For each of N answers, bool: whether too little is long, whether too much is, whether the image looks unlike."""

    short: torch.Tensor
    several: torch.Tensor
    unlike: torch.Tensor

    @property
    def any(self) -> torch.Tensor:
        """(N,) bool."""
        return self.short | self.several | self.unlike


class Doubt(NamedTuple):
    """One reason not to believe an answer; ``text`` is a clause without a full stop."""

    kind: Literal["blank", "short", "several", "unlike"]
    text: str


def contrast(images: torch.Tensor) -> torch.Tensor:
    """(B,) in [0, 1]: the lightest less the darkest pixel of images (B, C, H, W), the most of all channels."""
    pixels = images.flatten(2)  # (B, C, H * W)
    return (pixels.amax(dim=2) - pixels.amin(dim=2)).amax(dim=1)


@torch.no_grad()
def doubts(model: ImageNetwork, images: torch.Tensor, output: Any = None) -> list[tuple[Doubt, ...]]:
    """The reasons to doubt each of the network's answers; an empty tuple where there is none.

    A blank image has no other doubts. A network without ``limits`` doubts nothing but blank images:
    ``graphcaps.load`` gives them to the networks of runs that have them.

    Args:
        model: in eval mode.
        images: (B, C, H, W) in [0, 1].
        output: the network's output for the images; computed where it isn't given.

    >>> from graphcaps import CapsNet
    >>> doubts(CapsNet.from_preset("compact").eval(), torch.zeros(1, 1, 28, 28))[0][0].kind
    'blank'
    """
    output = model(images) if output is None else output
    contrasts, seen = contrast(images).tolist(), Evidence.of(images, output, model.objects)
    found = [[_blank(value)] if value < BLANK else [] for value in contrasts]
    limits = model.limits
    if limits is not None:
        outside = limits.doubted(seen, model.objects)
        for n, flags in enumerate(zip(*(flag.tolist() for flag in outside), strict=True)):
            if any(flags) and not found[n]:
                found[n] = _outside(limits, flags, n, seen, model.objects, hasattr(output, "lengths"))
    return [tuple(each) for each in found]


def _blank(contrast: float) -> Doubt:
    pixels = f"its lightest and its darkest pixel are {contrast:.2f} apart, less than {BLANK:.2f} of 1"
    return Doubt("blank", f"the image is blank: {pixels}")


def _outside(
    limits: Limits, flags: tuple[bool, ...], n: int, seen: Evidence, objects: int, lengths: bool
) -> list[Doubt]:
    most, found = f"{MOST} of right answers have", []
    long, rank = ("long", "the {}longest capsule") if lengths else ("high", "the {}highest score")
    last, beyond = rank.format(_ordinal(objects)), rank.format(_ordinal(objects + 1))
    short, several, unlike = flags
    if short:
        what = "nothing is" if objects == 1 else f"fewer than {objects} are"
        value = float(seen.highest[n, objects - 1])
        found.append(Doubt("short", f"{what} {long}: {last} has {value:.2f}, {most} {limits.answer:.2f} or more"))
    if several:
        what = "two are" if objects == 1 else f"more than {objects} are"
        value = float(seen.highest[n, objects])
        found.append(Doubt("several", f"{what} {long}: {beyond} has {value:.2f}, {most} {limits.other:.2f} or less"))
    if unlike:
        assert seen.likeness is not None
        what = f"the reconstruction is unlike the image: their correlation is {float(seen.likeness[n]):.2f}"
        found.append(Doubt("unlike", f"{what}, {most} {limits.likeness:.2f} or more"))
    return found


def _ordinal(rank: int) -> str:
    """To stand before a superlative: "", "second ", "third ", "4th "."""
    return {1: "", 2: "second ", 3: "third "}.get(rank, f"{rank}th ")
