"""Drawings on all grounds: each kind can be drawn and read, and the table has a line for each."""

from __future__ import annotations

import numpy as np
import torch

from experiments.tasks import drawings
from graphcaps.models import CapsNetOutput, Limits

SEVEN = np.zeros((28, 28), np.uint8)
SEVEN[4:8, 6:22] = SEVEN[4:24, 18:22] = 255


class Seen:
    """A network of two classes that remembers what it is shown, and always answers the second."""

    image_shape, objects, limits = (1, 28, 28), 1, Limits()

    def __init__(self):
        self.images = []

    def __call__(self, pixels):
        self.images.append(pixels)
        return CapsNetOutput(torch.tensor([[0.4, 0.6]]), torch.zeros(1, 2, 2), pixels)


def test_each_kind_of_drawing_is_read_as_the_clean_one_but_for_its_shape():
    seen = Seen()
    draws = [(kind, np.random.default_rng(k)) for k, kind in enumerate(drawings.DRAWINGS.values())]
    made = [kind(drawings.on_sheet(SEVEN, draw), draw) for kind, draw in draws]
    answers, doubted = drawings.answers_to(seen, 20 / 28, made)
    assert answers == [1] * len(made) and not doubted.any()
    for name, image in zip(drawings.DRAWINGS, seen.images, strict=True):
        far = float((image - seen.images[0]).abs().mean())
        assert far < (0.15 if name.startswith(("tilted", "photo: tilted", "thin")) else 0.05), (name, far)
