"""``train`` checks the settings before it imports torch, then trains."""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path

from numpy.typing import ArrayLike

from ...errors import expect
from ...typed import typed
from ..config import TrainConfig
from .run_folder import Run
from .settings import of_new_run, of_resumed_run


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
    world = os.environ.get("WORLD_SIZE", "1")
    expect(world == "1", "WORLD_SIZE", "1: a network trains in one process", world, "Start it without torchrun")
    expect((images is None) == (labels is None), "images and labels", "both", "one of them")
    if resume is None:
        run, config = None, of_new_run(config, images, labels)
    else:
        expect(images is None, "resume", "no images with it", "some", "A resumed run loads its own images")
        run = Run.open(resume)
        run.config = config = of_resumed_run(run, config, overrides)
    config.check()
    from ...routing import engine
    from .hardware import determinism, usual_torch
    from .loop import fit

    with usual_torch(), determinism(config.deterministic), engine(config.engine):
        return fit(config, run, progress)
