"""The work of a comparison: each training in a run folder of its own, taken up where it was left.

    plan --> for each seed, each row: train (or resume, or skip) --> measure --> results.json, table.md, accuracy.png

The test images are read once per run, by its training; which of them were right stands in the run's answers.npz. How
the capsules are used is counted on validation images. Two processes may work on one plan: a run that another one
trains is passed over.
"""

from __future__ import annotations

import contextlib
import json
import shlex
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import filelock
import numpy as np

from ..analysis.accuracy import EVALUATION_BATCH, evaluate
from ..analysis.capsule_usage import capsule_usage_of_layers, relative_entropy
from ..atomic import write_text
from ..config import TrainConfig
from ..data import Batches, load_affnist, load_images, within
from ..errors import GraphcapsError
from ..progress import bar, said_left
from ..training.hardware import pick_device
from ..training.loop import Diverged, Interrupted
from ..training.run_folder import Busy, Run, load
from ..training.start import train
from .plan import Plan, same_settings
from .table import as_markdown, summary

MOST_VOTES = 2**20  # that counting builds at once, of a batch
MEASURED = "compared.json"  # in a run folder: what was measured there, beside its training


class Stopped(GraphcapsError):
    """The comparison was stopped by the signal ``signum``; the same command goes on with it."""

    def __init__(self, again: str, signum: int):
        super().__init__(f"stopped and saved. Go on with: {again}")
        self.signum = signum


def compare(
    plan: Plan,
    folder: Path,
    data: Path,
    device: str = "auto",
    say=print,
    progress: bool = True,
    seeds: int | None = None,
    after: Callable[[dict], object] = lambda results: None,
) -> dict:
    """Train what isn't trained yet, measure it, and write results.json, table.md and accuracy.png after each training.

    Args:
        plan: what to compare.
        folder: holds the run folders and the results.
        data: folder with the data sets.
        device: as in ``TrainConfig``.
        say: told, line by line, what is done.
        progress: as in ``train``.
        seeds: train that many of the plan's seeds, the first ones; default: all. Results are of all that is trained.
        after: told the results after each training.

    Returns:
        what results.json holds, see ``table.summary``.

    Raises:
        GraphcapsError: as ``train``; a run folder with other settings than the plan's; ``Stopped`` on Ctrl-C.
    """
    cells, failed = [cell for cell in plan.cells if cell.seed in plan.seeds[:seeds]], []
    configs = [plan.config(cell, folder, data, device) for cell in cells]
    done = [_finished(config) is not None for config in configs]  # of all, before anything is trained or written
    began, trained = time.monotonic(), 0
    for number, (cell, config) in enumerate(zip(cells, configs, strict=True), 1):
        if done[number - 1]:
            continue
        waiting = done[number - 1 :].count(False)
        left = f", {said_left((time.monotonic() - began) / trained * waiting)}" if trained else ""
        say(f"[{number}/{len(cells)}] {cell.row.name}, seed {cell.seed}{left}")
        try:
            with _claimed(config):
                _measured(_trained(config, progress), plan.on, data, device, progress)
            trained += 1
        except Busy:
            say("another process trains it")
            continue
        except Diverged as error:
            say(str(error))
            failed.append(cell.folder)
            continue
        except Interrupted as stopped:
            words = ["graphcaps", "compare", plan.source, "--data", str(data), "--device", device, "--to", str(folder)]
            raise Stopped(shlex.join(words), stopped.signum) from None
        after(_write(plan, folder, data, device))
    results = _write(plan, folder, data, device)
    missing = sum(_finished(config) is None for config in configs) - len(failed)
    if missing:
        say(f"{missing} of {len(cells)} are trained by another process; run this again when it is done")
    if failed:
        raise GraphcapsError(f"{folder}: expected {len(cells)} trainings, these diverged: {', '.join(failed)}")
    return results


@contextlib.contextmanager
def _claimed(config: TrainConfig) -> Iterator[None]:
    """One process at a time for a training, also before there is a run folder; raise ``Busy`` for the others."""
    config.out.mkdir(parents=True, exist_ok=True)
    try:
        with filelock.FileLock(config.out / f".{config.name}.lock").acquire(timeout=0):
            yield
    except filelock.Timeout:
        raise Busy(f"run: expected {config.out / config.name} to be free, but another process has it") from None


def _finished(config: TrainConfig) -> Run | None:
    """The run of a training, where it is trained and measured; raise ``GraphcapsError`` for one in other settings."""
    path = config.out / config.name
    if not (path / "config.json").exists():
        return None
    run = Run.open(path)
    same_settings(config, run.config, str(run))
    return run if (path / MEASURED).exists() and run.result() is not None else None


def _trained(config: TrainConfig, progress: bool) -> Run:
    path = config.out / config.name
    if not (path / "config.json").exists():
        train(config, progress=progress)
        return Run.open(path)
    run = Run.open(path)
    if run.result() is None:
        train(TrainConfig(data=config.data, device=config.device), resume=path, progress=progress)
    return run


def _measured(run: Run, on: tuple[str, ...], data: Path, device: str, progress: bool = False) -> dict:
    """What a finished run reached, and which images were right; kept in its folder, and measured once."""
    path = run.path / MEASURED
    kept = _kept(path)
    predicted, labels = run.answers()
    right = {"test": (predicted == labels).reshape(len(labels), -1).all(axis=1)}
    if "validation" not in kept or not set(on) <= kept["on"].keys():
        device = pick_device(device)
        model = load(run, device=device)
        if "validation" not in kept:
            kept["validation"] = _usage(model, run, data, device, progress) if model.routes else None
        for name in on:
            kept["on"].setdefault(name, _answers(model, data, device, progress))
        write_text(path, json.dumps(kept) + "\n")
    named = {}
    for name in on:
        found = kept["on"][name]
        right[name], inside = (np.asarray(found[key], dtype=bool) for key in ("right", "within"))
        named[name] = found["name"]
        for part, among in (("within", inside), ("beyond", ~inside)):
            if among.any():
                right[f"{name} {part}"], named[f"{name} {part}"] = right[name][among], f"{found['name']} ({part})"
    speeds = [row["images_per_second"] for row in run.metrics()]
    if not speeds:
        then = "Delete the folder to train it again"
        raise GraphcapsError(f"{run.path / 'metrics.csv'}: expected a row per epoch, got none. {then}")
    about = {"images_per_second": statistics.median(speeds), "capsules": kept["validation"]}
    return {"result": run.result(), "right": right, "named": named, **about}


def _kept(path: Path) -> dict:
    """What was measured before; nothing where it can't be read, since it can be measured again."""
    try:
        kept = json.loads(path.read_text(encoding="utf-8"))
        on, usage = {name: dict(found) for name, found in kept["on"].items()}, kept["validation"]
        on = {name: found for name, found in on.items() if {"name", "right", "within"} <= found.keys()}
        if isinstance(usage, dict):  # of the last layer alone, as it was written before
            return {"on": on}
        return {"on": on, "validation": usage if usage is None else [dict(layer) for layer in usage]}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {"on": {}}


def _usage(model, run: Run, data: Path, device: str, progress: bool) -> list[dict]:
    """How the capsules are used, of each routed layer from below."""
    images = load_images(run.config.dataset, data).for_augment(run.config.augment).val
    widest = max(layer.graph().num_edges() for layer in (*model.between, model.capsules))
    batch = min(EVALUATION_BATCH, max(1, MOST_VOTES // widest))
    with bar("capsules used on validation images", progress) as on_share:
        layers = capsule_usage_of_layers(model, Batches(images, batch, device=device), on_share)
    return [
        {
            "dead": int(found.dead_children.sum() + found.dead_parents.sum()),
            "starved": int(found.starved_children.sum() + found.starved_parents.sum()),
            "capsules": len(found.entropy) + len(found.parent_length),
            "entropy": relative_entropy(found.entropy, found.undecided),
            "away": found.away,
        }
        for found in layers
    ]


def _answers(model, data: Path, device: str, progress: bool) -> dict:
    images, said = load_affnist(data)
    with bar(said, progress) as on_share:
        found = evaluate(model, Batches(images, EVALUATION_BATCH, device=device), on_share)
    answers = (found.predicted == found.labels).int().tolist()
    return {"name": said, "right": answers, "within": within(images).int().tolist()}


def so_far(plan: Plan, folder: Path, data: Path, device: str = "auto") -> dict | None:
    """What results.json holds, see ``table.summary``, of all runs that are measured, also by another process.

    Returns:
        None where there is no such run.
    """
    found = {}
    for cell in plan.cells:
        run = _finished(plan.config(cell, folder, data, device))
        if run is not None:
            found[cell.row.name, cell.seed] = _measured(run, plan.on, data, device)
    return summary(plan, found) if found else None


def _write(plan: Plan, folder: Path, data: Path, device: str) -> dict:
    results = so_far(plan, folder, data, device)
    if results is None:
        raise GraphcapsError(f"{folder}: expected a run to measure, all are trained by another process")
    write_text(folder / "results.json", json.dumps(results, indent=1) + "\n")
    write_text(folder / "table.md", as_markdown(results) + "\n")
    from ..viz import compared, save

    save(compared(results), folder / "accuracy.png")
    return results
