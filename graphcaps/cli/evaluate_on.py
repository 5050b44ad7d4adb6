"""graphcaps evaluate --on: transformed test images, another image set, and how capsules move."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import check_name, expect

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from ..data import Batches
    from ..models import CapsNet
    from ..training.run_folder import Run

NAMES = ("rotated", "shifted", "noisy", "scrambled", "affnist", "equivariance")
AFFNIST_FROM = "mnist40"
"""What a network must be trained on to be shown affNIST."""


def names_of(words: str) -> tuple[str, ...]:
    """The names between the commas, each once; raise ``InputError`` where one isn't of ``NAMES``."""
    names = tuple(dict.fromkeys(words.split(",")))
    for name in names:
        check_name("on", name, NAMES)
    return names


def check_run(run: Run, names: tuple[str, ...]) -> None:
    """Raise ``InputError`` where affNIST is asked of a run that was trained on images of another size."""
    dataset = run.config.dataset
    then = f"Train one: graphcaps train --dataset {AFFNIST_FROM}"
    expect("affnist" not in names or dataset == AFFNIST_FROM, "run", f"one trained on {AFFNIST_FROM}", dataset, then)


def evaluate_on(
    run: Run, names: tuple[str, ...], model: CapsNet, batches: Batches, class_names: tuple[str, ...], root: Path
) -> None:
    """Measure, print, and write each name's JSON and picture into the run's folder evaluate.

    Args:
        run: whose network it is.
        names: of ``NAMES``.
        model: on the device of the batches.
        batches: the test images of what it was trained on.
        class_names: J names.
        root: folder with the data sets.

    Raises:
        InputError: equivariance of a network without capsules, or whose images show several objects.
    """
    from ..analysis.equivariance import check_capsules
    from ..atomic import write_text
    from ..viz import save

    if "equivariance" in names:
        check_capsules(model)
    about: dict = {"model": run.config.model, "dataset": run.config.dataset_name, "class_names": class_names}
    for name in names:
        folder, about["command"] = run.path / "evaluate", f"graphcaps evaluate --on {name}"
        measure = _equivariance if name == "equivariance" else _robustness
        table, found, figure = measure(name, model, batches, root, about)
        write_text(folder / f"{name}.json", json.dumps(found, indent=1) + "\n")
        save(figure, folder / f"{name}.png")
        print("", table, folder / f"{name}.json", folder / f"{name}.png", sep="\n")


def _robustness(name: str, model: CapsNet, batches: Batches, root: Path, about: dict) -> tuple[str, dict, Figure]:
    """Table, numbers and picture of one transform, or of affNIST and its parts, beside the run's own test images."""
    from ..analysis.robustness import evaluate_sets, evaluate_transform
    from ..progress import bar
    from ..viz import robustness
    from .tables import robustness_table

    with bar(f"test images, {name}") as on_progress:
        if name == "affnist":
            from ..analysis.accuracy import EVALUATION_BATCH
            from ..data import Batches, load_affnist, within

            other, title = load_affnist(root, split="test")
            device, inside = next(model.parameters()).device, within(other)
            sets = {about["dataset"]: batches, title: Batches(other, EVALUATION_BATCH, device=device)}
            parts = {title: {f"{title} (within)": inside, f"{title} (beyond)": ~inside}}
            found = evaluate_sets(model, name, sets, parts, on_progress)
        else:
            found = evaluate_transform(model, batches, name, on_progress)
    found = {**about, **found}
    return robustness_table(found, about["class_names"]), found, robustness(found)


def _equivariance(name: str, model: CapsNet, batches: Batches, root: Path, about: dict) -> tuple[str, dict, Figure]:
    """Table, numbers and picture of how capsules move."""
    from ..analysis.equivariance import equivariance, example_images
    from ..progress import bar
    from ..viz import equivariance as picture_of
    from .tables import equivariance_table

    with bar("turned and shifted test images") as on_progress:
        found = {**about, **equivariance(model, batches, on_progress)}
    return equivariance_table(found, about["class_names"]), found, picture_of(found, example_images(found, batches))
