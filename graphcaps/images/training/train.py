"""``train`` checks the settings and the run folder before it imports torch, then trains."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Collection
from pathlib import Path
from typing import Any

from numpy.typing import ArrayLike

from ...errors import GraphcapsError, expect
from ...names import DATASETS, check_allowed
from ...typed import typed
from ..config import MACHINE_SETTINGS, TrainConfig
from .run_folder import Run


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
            from ``config`` if they differ from the defaults or are named in ``overrides``, and larger ``epochs``.
        images: images to train on instead of ``config.dataset``: uint8 or fractions in [0, 1], (N, H, W), (N, H, W, C)
            or (N, C, H, W), C = 1 or 3. A copy is written to ``config.data``, so that the run can be resumed.
        labels: (N,), one integer or text per image; or (N, J) of 0 and 1 if an image may show any number of classes
            (multi-label).
        resume: path of the run folder to resume.
        progress: show a progress bar on a terminal; elsewhere, print a line per epoch, and at least every 30 seconds.
        overrides: which of these four a resumed run takes from ``config`` even if they are defaults.

    Raises:
        GraphcapsError: settings, data or folders are invalid, the loss isn't finite, or Ctrl-C was pressed
            (``Interrupted``).
    """
    run = None
    world = os.environ.get("WORLD_SIZE", "1")
    expect(world == "1", "WORLD_SIZE", "1: a network trains in one process", world, "Start it without torchrun")
    expect((images is None) == (labels is None), "images and labels", "both", "one of them")
    if resume is None:
        config = _settled(config, images, labels)
        config.check()
        Run.check_place(config)
    else:
        expect(images is None, "resume", "no images with it", "some", "A resumed run loads its own images")
        run = Run.open(resume)
        run.config = config = _resumed(run, config, overrides)
        config.check()
    from ...routing import engine
    from .hardware import determinism, usual_torch
    from .loop import fit

    with usual_torch(), determinism(config.deterministic), engine(config.engine):
        return fit(config, run, progress)


def _settled(config: TrainConfig, images: ArrayLike | None, labels: ArrayLike | None) -> TrainConfig:
    """The settings of a new run: ``config``, with what follows from the given images and from ``from_run``.

    Settings of the other run's network are taken unless they were changed from their defaults.
    """
    settings: dict[str, Any] = {}
    if images is not None and labels is not None:
        from ..data.array_files import write_arrays

        settings["dataset"] = write_arrays(images, labels, config.data)
    if config.from_run is not None:
        other = Run.open(config.from_run).config
        network = {key: getattr(other, key) for key in ("model", "routing", "iterations", "prior")}
        if (settings or config.of_images) and other.dataset in DATASETS:
            network["channels"], network["size"], _ = DATASETS[other.dataset].image_shape
        elif settings or config.of_images:
            network |= {"channels": other.channels, "size": other.size}
        settings |= {key: value for key, value in network.items() if key not in config.changed()}
    return dataclasses.replace(config, **settings)


def _resumed(run: Run, config: TrainConfig, overrides: Collection[str]) -> TrainConfig:
    """The settings of a resumed run: its own, with those that ``train`` takes from ``config``."""
    check_allowed(run.config.routing)
    taken = {*config.changed(), *overrides}
    old, epochs = run.config.epochs, config.epochs if "epochs" in taken else 0
    more = f"To train longer, add --epochs and a number above {old}"
    if run.result() or epochs > old:
        run.newest_checkpoint()  # name a setting that was changed
    expect("epochs" not in overrides or epochs >= old, "epochs", f"more than {old}", epochs, more)
    if run.result() and epochs <= old:
        raise GraphcapsError(f"resume: expected an unfinished run, {run} has finished its {old} epochs. {more}")
    settings = {key: getattr(config, key) for key in MACHINE_SETTINGS if key in taken}
    return dataclasses.replace(run.config, **settings, epochs=max(old, epochs))
