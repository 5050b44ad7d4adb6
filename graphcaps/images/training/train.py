"""``train`` makes the settings of a training, and checks them before it imports torch."""

from __future__ import annotations

import dataclasses
import logging
import os
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numpy.typing import ArrayLike

from ...errors import GraphcapsError, expect
from ...names import check_allowed
from ...typed import typed
from ..config import MACHINE_SETTINGS, TrainConfig
from .run_folder import Run, load

if TYPE_CHECKING:
    from ..data import ImageSplits

log = logging.getLogger(__name__)


@typed
def train(
    config: TrainConfig,
    *,
    images: ArrayLike | None = None,
    labels: ArrayLike | None = None,
    resume: str | Path | None = None,
    progress: bool = True,
    overrides: Collection[str] = (),
) -> dict:
    """Train a network and return its results (the content of the run's result.json).

    Args:
        config: the settings. A resumed run keeps its own settings, but it takes ``data``, ``device`` and ``capture``
            from ``config`` if they were changed from their defaults, and larger ``epochs``.
        images: images to train on instead of ``config.dataset``: uint8 or fractions in [0, 1], (N, H, W), (N, H, W, C)
            or (N, C, H, W), C = 1 or 3. A copy is written to ``config.data``, so that the run can be resumed.
        labels: (N,), one integer or text per image; or (N, J) of 0 and 1 if an image may show any number of classes
            (multi-label).
        resume: path of the run folder to resume.
        progress: show a progress bar on a terminal; elsewhere, print a line per epoch, and at least every 30 seconds.
        overrides: settings of ``config`` that count as changed even if they are defaults.

    Raises:
        GraphcapsError: settings, data or folders are invalid, the loss isn't finite, or Ctrl-C was pressed
            (``Interrupted``).
    """
    world = os.environ.get("WORLD_SIZE", "1")
    expect(world == "1", "WORLD_SIZE", "1: a network trains in one process", world, "Start it without torchrun")
    expect((images is None) == (labels is None), "images and labels", "both", "one of them")
    if resume is None:
        run, config = None, _of_new_run(config, images, labels, overrides)
        Run.check_name(config)
    else:
        expect(images is None, "resume", "no images with it", "some", "A resumed run loads its own images")
        run = Run.open(resume)
        run.config = config = _of_resumed_run(run, config, overrides)
    config.check()
    from ...routing import engine
    from ..data import load_images
    from .hardware import find_hardware, usual_torch
    from .loop import fit

    with usual_torch(config.deterministic), engine(config.engine):
        hardware = find_hardware(config.device, config.precision, config.deterministic)
        splits = load_images(config.dataset, config.data, **config.of_images).for_augment(config.augment)
        if config.train_images is not None:
            splits = splits.with_train(config.train_images)
        if run is None:
            config = _with_images(config, splits, overrides)
        return fit(config, splits, hardware, run, progress)


def _of_new_run(
    config: TrainConfig, images: ArrayLike | None, labels: ArrayLike | None, overrides: Collection[str]
) -> TrainConfig:
    """``config``, with what follows from the given images and from ``from_run``.

    Settings of the other run's network are taken unless they were changed from their defaults.
    """
    settings: dict[str, Any] = {}
    if images is not None and labels is not None:
        from ..data.array_files import write_arrays

        settings["dataset"] = write_arrays(images, labels, config.data)
    if config.from_run is not None:
        other, given = Run.open(config.from_run, config.out), {*config.changed(), *overrides}
        network = {key: getattr(other.config, key) for key in ("model", "routing", "iterations", "prior")}
        if settings or config.of_images:
            channels, *sides = load(other).image_shape
            network |= {"channels": channels, "size": max(sides)}
        settings |= {key: value for key, value in network.items() if key not in given}
    return dataclasses.replace(config, **settings)


def _with_images(config: TrainConfig, splits: ImageSplits, overrides: Collection[str]) -> TrainConfig:
    """The settings of a new run with what follows from its images: place and size of your own, and the batch size."""
    settings: dict[str, Any] = {}
    if config.of_images:  # stored, so that a resumed run finds the folder, and keeps the size even if images change
        channels, *sides = splits.image_shape
        kind, path = config.dataset.split(":", 1)
        settings = {"dataset": f"{kind}:{Path(path).absolute()}", "size": max(sides), "channels": channels}
    if len(splits.train) < config.batch_size and "batch_size" not in {*config.changed(), *overrides}:
        settings["batch_size"] = size = max(1, len(splits.train) // 4)
        log.info("%d images per step, a quarter of the training images: --batch-size changes it", size)
    return dataclasses.replace(config, **settings)


def _of_resumed_run(run: Run, config: TrainConfig, overrides: Collection[str]) -> TrainConfig:
    """The settings of the run, with those that ``train`` takes from ``config``.

    Raises:
        GraphcapsError: the run has finished its epochs, or its checkpoints don't have the settings of its config.json.
    """
    check_allowed(run.config.routing)
    run.newest_checkpoint()
    taken = {*config.changed(), *overrides}
    old, epochs = run.config.epochs, config.epochs if "epochs" in taken else 0
    more = f"To train longer, add --epochs and a number above {old}"
    expect("epochs" not in overrides or epochs >= old, "epochs", f"more than {old}", epochs, more)
    if run.result() and epochs <= old:
        raise GraphcapsError(f"resume: expected an unfinished run, {run} has finished its {old} epochs. {more}")
    settings = {key: getattr(config, key) for key in MACHINE_SETTINGS if key in taken}
    return dataclasses.replace(run.config, **settings, epochs=max(old, epochs))
