"""``train``: settings and the run folder are checked here, once, and before torch is imported."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection
from pathlib import Path

from ..config import OF_THE_MACHINE, TrainConfig
from ..errors import GraphcapsError
from .run_folder import Run


def train(
    config: TrainConfig,
    *,
    resume: str | Path | None = None,
    progress: bool = True,
    overrides: Collection[str] = (),
) -> dict:
    """Train a network and return what it reached (the run's result.json).

    Args:
        config: the settings; of these, a resumed run takes only ``data`` and ``device``, where they aren't defaults or
            are ``overrides``.
        resume: path of a run folder to go on with, in its own settings.
        progress: show a bar on a terminal; elsewhere a line per epoch, and one where 30 seconds went by without.
        overrides: those of ``data`` and ``device`` that a resumed run takes as they are in ``config``.

    Raises:
        GraphcapsError: settings, data or folders that don't work; a loss that is not finite; ``Interrupted`` on Ctrl-C.
    """
    run = None
    if resume is not None:
        run = Run.open(resume)
        if run.result():
            epochs = run.config.epochs
            raise GraphcapsError(f"resume: expected an unfinished run, {run} has finished its {epochs} epochs")
        taken = {key: getattr(config, key) for key in OF_THE_MACHINE if key in (*config.changed(), *overrides)}
        config = dataclasses.replace(run.config, **taken)
    config.check()
    from ..routing import engine
    from .hardware import determinism
    from .loop import fit

    with determinism(config.deterministic), engine(config.engine):
        return fit(config, run, progress)
