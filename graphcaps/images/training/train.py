"""``train`` checks the settings and the run folder before it imports torch, then trains."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Collection
from pathlib import Path

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
    expect((images is None) == (labels is None), "images and labels", "both", "one of them")
    if images is not None and labels is not None:
        expect(resume is None, "resume", "no images with it", "some", "A resumed run loads its own images")
        from ..data.array_files import write_arrays

        config = dataclasses.replace(config, dataset=write_arrays(images, labels, config.data))
    if resume is not None:
        run = Run.open(resume)
        check_allowed(run.config.routing)
        old, epochs = run.config.epochs, config.epochs if "epochs" in (*config.changed(), *overrides) else 0
        more = f"To train longer, add --epochs and a number above {old}"
        if run.result() or epochs > old:
            run.newest_checkpoint()  # name a setting that was changed
        expect("epochs" not in overrides or epochs >= old, "epochs", f"more than {old}", epochs, more)
        if run.result() and epochs <= old:
            raise GraphcapsError(f"resume: expected an unfinished run, {run} has finished its {old} epochs. {more}")
        stored = json.loads((run.path / "config.json").read_text(encoding="utf-8"))["settings"]
        if weight := stored.get("coupling_weight", 0):
            got = f"{weight} in {run}. The loss that it weighted was removed: train another run"
            raise GraphcapsError(f"resume: expected a run with coupling_weight 0, got {got}")
        taken = {key: getattr(config, key) for key in MACHINE_SETTINGS if key in (*config.changed(), *overrides)}
        config = dataclasses.replace(run.config, **taken, epochs=max(old, epochs))
    if run is None and config.from_run is not None:
        config = _like(config, Run.open(config.from_run).config)
    config.check()
    if run is None:
        Run.check_place(config)
    from ...routing import engine
    from .hardware import determinism
    from .loop import fit

    with determinism(config.deterministic), engine(config.engine):
        return fit(config, run, progress)


def _like(config: TrainConfig, other: TrainConfig) -> TrainConfig:
    """Take the settings of another run's network, unless they were changed from their defaults."""
    given = {key: getattr(other, key) for key in ("model", "routing", "iterations", "prior")}
    if config.of_images and other.dataset in DATASETS:
        given["channels"], given["size"], _ = DATASETS[other.dataset].image_shape
    elif config.of_images:
        given |= {"channels": other.channels, "size": other.size}
    return dataclasses.replace(config, **{key: v for key, v in given.items() if key not in config.changed()})
