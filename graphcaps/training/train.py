"""``train``: checks settings and the run folder once, before torch is imported, and trains."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING

from ..config import MACHINE_SETTINGS, TrainConfig
from ..errors import GraphcapsError, expect
from .run_folder import Run

if TYPE_CHECKING:
    from numpy.typing import ArrayLike


def train(
    config: TrainConfig,
    *,
    images: ArrayLike | None = None,
    labels: ArrayLike | None = None,
    resume: str | Path | None = None,
    progress: bool = True,
    overrides: Collection[str] = (),
) -> dict:
    """Train a network and return what it reached (the run's result.json).

    Args:
        config: the settings; of these, a resumed run takes only ``data`` and ``device``, if they aren't defaults or
            are ``overrides``.
        images: to train on instead of ``config.dataset``: uint8 or fractions in [0, 1], (N, H, W), (N, H, W, C) or
            (N, C, H, W), C = 1 or 3. They are also written into ``config.data``, where the run finds them later.
        labels: (N,), whole numbers or text, one per image; or (N, J) of 0 and 1, any number of classes in each.
        resume: path of a run folder to go on with, in its own settings.
        progress: show a bar on a terminal; elsewhere a line per epoch, and one after 30 seconds without.
        overrides: those of ``data`` and ``device`` that a resumed run takes from ``config`` even if they are defaults.

    Raises:
        GraphcapsError: settings, data or folders that don't work; a loss that is not finite; ``Interrupted`` on Ctrl-C.
    """
    run = None
    expect((images is None) == (labels is None), "images and labels", "both", "one of them")
    if images is not None and labels is not None:
        expect(resume is None, "resume", "no images beside it", "some", "A run finds its own images")
        from ..data.user_datasets import write_arrays

        config = dataclasses.replace(config, dataset=write_arrays(images, labels, config.data))
    if resume is not None:
        run = Run.open(resume)
        if run.result():
            epochs = run.config.epochs
            more = "For more of them, train another run with more --epochs"
            raise GraphcapsError(f"resume: expected an unfinished run, {run} has finished its {epochs} epochs. {more}")
        taken = {key: getattr(config, key) for key in MACHINE_SETTINGS if key in (*config.changed(), *overrides)}
        config = dataclasses.replace(run.config, **taken)
    config.check()
    if run is None:
        Run.check_place(config)
    from ..routing import engine
    from .hardware import determinism
    from .loop import fit

    with determinism(config.deterministic), engine(config.engine):
        return fit(config, run, progress)
