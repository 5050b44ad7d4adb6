"""The command ``graphcaps evaluate --on``: transformed test images, affNIST, and equivariance."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import check_name, expect

if TYPE_CHECKING:
    from ..data import Batches
    from ..models import CapsNet
    from ..training.run_folder import Run

NAMES = ("rotated", "shifted", "noisy", "scrambled", "affnist", "equivariance")


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
        InputError: ``affnist`` is given for a network that wasn't trained on ``mnist40``; or ``equivariance`` for a
            network without capsules, or for images that don't show exactly one object.
    """
    from .. import viz
    from ..analysis.equivariance import equivariance
    from ..analysis.robustness import evaluate_affnist, evaluate_transform
    from ..atomic import write_text
    from ..data import load_affnist
    from ..progress import bar
    from .tables import equivariance_table, robustness_table

    config, folder = run.config, run.results / "evaluate"
    fits = "affnist" not in names or config.dataset == "mnist40"
    expect(fits, "run", "one trained on mnist40", config.dataset, "Train one: graphcaps train --dataset mnist40")
    if "equivariance" in names:
        kind, objects = type(model).__name__, model.objects
        expect(getattr(model, "routes", False), "model", "a network with capsules", kind, "CNNs have none")
        expect(objects == 1, "model", "a network whose images show one object", objects or "any number")
    about = {"model": config.model, "dataset": config.dataset_name, "class_names": model.class_names}
    for name in names:
        about["command"] = f"graphcaps evaluate --on {name}"
        with bar(f"test images, {name}") as on_progress:
            if name == "equivariance":
                result, examples = equivariance(model, batches, on_progress)
                measured = about | result
                table, figure = equivariance_table(measured), viz.equivariance(measured, examples)
            else:
                if name == "affnist":
                    measured = about | evaluate_affnist(model, batches, *load_affnist(root), on_progress)
                else:
                    measured = about | evaluate_transform(model, batches, name, on_progress)
                table, figure = robustness_table(measured), viz.robustness(measured)
        write_text(folder / f"{name}.json", json.dumps(measured, indent=1) + "\n")
        viz.save(figure, folder / f"{name}.png")
        print("", table, folder / f"{name}.json", folder / f"{name}.png", sep="\n")
