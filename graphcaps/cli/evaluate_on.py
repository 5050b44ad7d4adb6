"""graphcaps evaluate --on: transformed test images, another image set, and how capsules move."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import check_name, expect

if TYPE_CHECKING:
    from ..data import Batches
    from ..models import CapsNet
    from ..training.run_folder import Run

NAMES = ("rotated", "shifted", "noisy", "scrambled", "affnist", "equivariance")
AFFNIST_FROM = "mnist40"
"""The data set that a network must be trained on to be shown affNIST."""


def names_of(words: str) -> tuple[str, ...]:
    """The names between the commas, each once; raise ``InputError`` if one isn't in ``NAMES``."""
    names = tuple(dict.fromkeys(words.split(",")))
    for name in names:
        check_name("on", name, NAMES)
    return names


def check_run(run: Run, names: tuple[str, ...]) -> None:
    """Raise ``InputError`` if affNIST is asked for and the run was trained on images of another size."""
    dataset = run.config.dataset
    then = f"Train one: graphcaps train --dataset {AFFNIST_FROM}"
    expect("affnist" not in names or dataset == AFFNIST_FROM, "run", f"one trained on {AFFNIST_FROM}", dataset, then)


def evaluate_on(
    run: Run, names: tuple[str, ...], model: CapsNet, batches: Batches, class_names: tuple[str, ...], root: Path
) -> None:
    """Measure, print, and write each name's JSON and picture into the run's folder evaluate.

    Args:
        run: the run of the network.
        names: from ``names_of``.
        model: on the device of the batches.
        batches: the test images of the run's data set.
        class_names: J names.
        root: folder with the data sets.

    Raises:
        InputError: equivariance of a network without capsules, or whose images show several objects.
    """
    from .. import viz
    from ..analysis.equivariance import check_capsules, equivariance, example_images
    from ..analysis.robustness import evaluate_transform
    from ..atomic import write_text
    from ..progress import bar
    from .tables import equivariance_table, robustness_table

    if "equivariance" in names:
        check_capsules(model)
    for name in names:
        folder, command = run.results / "evaluate", f"graphcaps evaluate --on {name}"
        about: dict[str, Any] = {"model": run.config.model, "dataset": run.config.dataset_name}
        about |= {"class_names": class_names, "command": command}
        with bar(f"test images, {name}") as on_progress:
            if name == "equivariance":
                moved = equivariance(model, batches, on_progress)
                table, text = equivariance_table(moved, class_names), moved.to_json(**about)
                figure = viz.equivariance({**about, **moved.as_dict()}, example_images(moved, batches))
            else:
                if name == "affnist":
                    result = _evaluate_affnist(model, batches, about["dataset"], root, on_progress)
                else:
                    result = evaluate_transform(model, batches, name, on_progress)
                table, text = robustness_table(result, class_names), result.to_json(**about)
                figure = viz.robustness({**about, **result.as_dict()})
        write_text(folder / f"{name}.json", text)
        viz.save(figure, folder / f"{name}.png")
        print("", table, folder / f"{name}.json", folder / f"{name}.png", sep="\n")


def _evaluate_affnist(model: CapsNet, batches: Batches, dataset: str, root: Path, on_progress: Any) -> Any:
    """affNIST, whole and in two parts, beside the run's own test images."""
    from ..analysis.accuracy import EVALUATION_BATCH
    from ..analysis.robustness import evaluate_sets
    from ..data import Batches, load_affnist, within

    images, title = load_affnist(root)
    inside, device = within(images), next(model.parameters()).device
    sets = {dataset: batches, title: Batches(images, EVALUATION_BATCH, device=device)}
    parts = {title: {f"{title} (within)": inside, f"{title} (beyond)": ~inside}}
    return evaluate_sets(model, "affnist", sets, on_progress, parts)
