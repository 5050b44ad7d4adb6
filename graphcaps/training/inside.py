"""The networks that come with graphcaps, where a command asks for a run."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..config import TrainConfig
from ..trace import RoutingTrace
from .run_folder import Run, find_runs

if TYPE_CHECKING:
    from ..models import ImageNetwork


class Inside(Run):
    """A network of ``graphcaps.models.pretrained`` as a run: its settings, its weights, its routing of ten test images.

    What commands write about it goes into the folder ``pretrained-NAME`` beside the runs.
    """

    def __init__(self, name: str, out: Path):
        from ..models.pretrained import read

        self.name, (self.head, self.tensors) = name, read(name)
        super().__init__(out / f"pretrained-{name}", TrainConfig(**self.head["settings"]))

    def __str__(self) -> str:
        return f"{self.name}, inside graphcaps"

    def checkpoint(self, which: str) -> Path:
        """The file of its weights, whichever are asked for."""
        from ..models.pretrained import path_of

        return path_of(self.name)

    def network(self, which: str = "best") -> ImageNetwork:
        """As ``CapsNet.from_pretrained`` gives it."""
        from ..models import CapsNet

        return CapsNet.from_pretrained(self.name)

    def result(self) -> dict:
        """What was measured of it."""
        return self.head["numbers"]

    def trace(self) -> RoutingTrace:
        """Its routing of the test images in its file, recorded now."""
        from ..data import to_float
        from ..models import CapsNet
        from ..trace.recording import pictures, routing_of

        model = CapsNet.from_pretrained(self.name)
        images, labels = (self.tensors[key][: len(model.class_names)] for key in ("images", "labels"))
        images = to_float(images)
        known: dict[str, Any] = {
            "epochs": np.array([self.head["state"]["epoch"]], np.int32),
            "labels": labels.numpy() if labels.dim() == 1 else None,  # a trace has one label per image or none
            "class_names": model.class_names,
            "about": {key: getattr(self.config, key) for key in ("dataset", "model", "routing", "epochs", "seed")},
            **pictures(model, images),
        }
        return dataclasses.replace(routing_of(model, images), **known)


def run_or_inside(run: Path | None, out: Path) -> tuple[Run, str]:
    """What a command is about, and a line that says so where its folder wasn't named.

    It is the run in the folder ``run``, or the network inside graphcaps of this name. Where none is named it is the run
    in ``out`` that was last written to, else the network ``mnist``.
    """
    if run is not None and run.exists():
        return Run.open(run), ""
    if run is None and (runs := find_runs(out)):
        return runs[0], f"network: {runs[0]}, the newest run"
    from ..models.pretrained import PRETRAINED

    name = "mnist" if run is None else str(run)
    if name not in PRETRAINED:
        return Run.open(name), ""
    found = Inside(name, out)
    right, own = f"{found.result()['test_accuracy']:.2%} of the test images", TrainConfig(dataset=name).command()
    return found, f"network: {found}, {right} right; train your own with: {own}"
