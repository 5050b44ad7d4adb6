"""The steps that a picture moves through: iterations of one image's routing, or epochs, each after its iterations.

A trace may have more iterations than training had. Pictures end on the network's answer.
"""

import math
from typing import NamedTuple

import numpy as np

from graphcaps.errors import GraphcapsError, check_name, expect
from graphcaps.viz.routing_trace import RoutingTrace

OVER = ("iterations", "epochs")

_EASED_FRAMES = 4  # between two steps
_MAX_FRAMES = 200
_MOVE, _HOLD, _END = 0.06, 1.1, 2.5  # seconds that a frame lasts between steps, on a step, on the answer


class Frame(NamedTuple):
    """A moment of a timeline. ``position`` counts steps from 0; fractions lie between two steps."""

    position: float
    seconds: float


class Timeline:
    """S steps of one image's routing: the last epoch's iterations, as many as in training, or each epoch's last state.

    Attributes:
        over: iterations or epochs.
        steps: (S,) numbers of the steps: 1 to the number of iterations in training, or the epochs of the trace.
        c, lengths: (S, E) and (S, J) float64, the couplings and the lengths of the parents.

    Raises:
        InputError: no such timeline or image, ``over`` is epochs but there is only one, or a broken trace.
        GraphcapsError: couplings or lengths of this image are not finite.
    """

    def __init__(self, trace: RoutingTrace, over: str, image: int):
        check_drawable(trace, image)
        check_name("over", over, OVER)
        iterations, last = over == "iterations", trace.answer_at
        several = iterations or len(trace.epochs) > 1
        expect(several, "over", "iterations for a trace with one epoch", repr(over), "Epochs need a training run")
        self.over, self._trained = over, last + 1
        self.steps = np.arange(1, last + 2) if iterations else np.asarray(trace.epochs)
        index = (-1, slice(last + 1), image) if iterations else (slice(None), last, image)
        self.c, self.lengths = (values[index].astype(np.float64) for values in (trace.c, trace.lengths))
        for name, values in (("c", self.c), ("lengths", self.lengths)):
            broken = ~np.isfinite(values).all(axis=1)
            if broken.any():
                raise not_finite(name, image, f"{over[:-1]} {self.steps[broken.argmax()]}")

    def __len__(self) -> int:
        return len(self.steps)

    @property
    def end(self) -> float:
        """Position of the last step, which is the network's answer."""
        return float(len(self) - 1)

    def at(self, position: float) -> tuple[np.ndarray, np.ndarray]:
        """Couplings (E,) and lengths (J,) at ``position``, interpolated linearly between steps."""
        return between(self.c, position), between(self.lengths, position)

    def title(self, position: float) -> str:
        """``iteration 2 of 3``, ``iteration 2 → 3 of 3`` between steps, ``epoch 4 of 10 - after 3 iterations``."""
        low, high = self.steps[math.floor(position)], self.steps[math.ceil(position)]
        name = f"{self.over[:-1]} {low}" if low == high else f"{self.over[:-1]} {low} → {high}"
        after = f" - after {count(self._trained, 'iteration')}" if self.over == "epochs" and self._trained > 1 else ""
        return f"{name} of {self.steps[-1]}{after}"

    def frames(self) -> list[Frame]:
        """The answer, then each step, held for a while, with eased frames in between, up to the answer again."""
        number = max(0, min(_EASED_FRAMES, _MAX_FRAMES // len(self) - 1))
        eased = [(1 - math.cos(math.pi * k / (number + 1))) / 2 for k in range(1, number + 1)]
        frames = [Frame(self.end, _HOLD)] * (len(self) > 1)
        for step in range(len(self) - 1):
            frames += [Frame(float(step), _HOLD), *(Frame(step + part, _MOVE) for part in eased)]
        return [*frames, Frame(self.end, _END)]


def check_drawable(trace: RoutingTrace, image: int) -> None:
    """Raise ``InputError`` if the trace doesn't fit together, has no edges, or lacks this image."""
    trace.check(image)
    expect(trace.num_edges > 0, "trace", "edges to draw", "none")


def not_finite(name: str, image: int, at: str) -> GraphcapsError:
    """The error to raise if an array of the trace has NaN or inf for an image."""
    advice = "Its votes were not finite: draw another image, or train with a lower rate"
    if name == "b":
        advice += ". If your own routing masks logits with -inf, call observe with the logits before the mask"
    return GraphcapsError(f"trace: {name} of image {image}: expected finite numbers, got NaN or inf at {at}. {advice}")


def between(values: np.ndarray, position: float) -> np.ndarray:
    """``values[position]`` along the first axis of ``values`` (S, ...), interpolated linearly between positions."""
    low, high = math.floor(position), math.ceil(position)
    part = position - low
    return values[low] * (1 - part) + values[high] * part if part else values[low]


def caption(trace: RoutingTrace, over: str, image: int) -> str:
    """The source of the numbers: data set, model, layer, image, epochs of training."""
    parts = [str(trace.about[name]) for name in ("dataset", "model", "layer") if name in trace.about]
    if trace.num_images > 1 or trace.images is not None:
        parts.append(str(trace.about.get("file", f"{trace.about.get('image', 'image')} {image}")))
    if over == "iterations" and trace.epochs[-1] > 0:
        parts.append(f"after {count(int(trace.epochs[-1]), 'epoch')}")
    return ", ".join(parts)


def count(number: int, one: str, many: str | None = None) -> str:
    """``1 epoch``, ``2 epochs``, ``1,152 children``."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def size_in_words(trace: RoutingTrace) -> str:
    """``200 edges, 3 iterations, 2 images``."""
    counts = {"edge": trace.num_edges, "iteration": trace.num_iterations}
    image = str(trace.about.get("image", "image"))
    counts[image.replace(", ", "-")] = trace.num_images  # of several dims, such as image-head
    if len(trace.epochs) > 1:
        counts["epoch"] = len(trace.epochs)
    return ", ".join(count(number, name) for name, number in counts.items())
