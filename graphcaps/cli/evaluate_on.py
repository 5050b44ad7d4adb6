"""The command ``graphcaps evaluate --on``: transformed test images and affNIST."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import check_name, expect

if TYPE_CHECKING:
    from ..data import Batches
    from ..models import CapsNet
    from ..training.run_folder import Run

NAMES = ("rotated", "shifted", "noisy", "scrambled", "affnist")


def names_of(words: str) -> tuple[str, ...]:
    """Split a list at its commas, and drop duplicates. Raise ``InputError`` if a name isn't in ``NAMES``."""
    names = tuple(dict.fromkeys(words.split(",")))
    for name in names:
        check_name("on", name, NAMES)
    return names


def evaluate_on(run: Run, names: tuple[str, ...], model: CapsNet, batches: Batches, root: Path) -> None:
    """For each name, run the evaluation, print a table, and write JSON and a picture to the run's folder evaluate.

    ``batches`` are the test images of the run's data set, on the network's device. ``root`` contains the data sets.

    Raises:
        InputError: ``affnist`` is given for a network that wasn't trained on ``mnist40``.
    """
    from .. import viz
    from ..analysis.robustness import evaluate_affnist, evaluate_transform
    from ..atomic import write_text
    from ..data import load_affnist
    from ..progress import bar
    from .tables import robustness_table

    config, folder = run.config, run.results / "evaluate"
    fits = "affnist" not in names or config.dataset == "mnist40"
    expect(fits, "run", "one trained on mnist40", config.dataset, "Train one: graphcaps train --dataset mnist40")
    about = {"model": config.model, "dataset": config.dataset_name, "class_names": model.class_names}
    for name in names:
        about["command"] = f"graphcaps evaluate --on {name}"
        with bar(f"test images, {name}") as on_progress:
            if name == "affnist":
                measured = about | evaluate_affnist(model, batches, *load_affnist(root), on_progress)
            else:
                measured = about | evaluate_transform(model, batches, name, on_progress)
        write_text(folder / f"{name}.json", json.dumps(measured, indent=1) + "\n")
        viz.save(viz.robustness(measured), folder / f"{name}.png")
        print("", robustness_table(measured), folder / f"{name}.json", folder / f"{name}.png", sep="\n")
