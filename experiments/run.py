"""Trainings: each is done once, by whichever process comes to it, and its result lies in a file of its own.

    cache/<hash of the settings>.json     what a training gave, and its settings
    cache/<hash of the settings>.lock     held by the process that trains it

A trial is a function of a ``Place`` and of settings that are plain values. Nothing but its settings names it: after a
change of the code, delete the cache.
"""

from __future__ import annotations

import copy
import hashlib
import json
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice, product
from math import isfinite
from multiprocessing import get_context
from pathlib import Path
from statistics import fmean

import filelock
import joblib
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from experiments import table
from graphcaps.atomic import write_text
from graphcaps.errors import GraphcapsError
from graphcaps.progress import bar
from graphcaps.training.loop import Interrupted


@dataclass(frozen=True)
class Place:
    """Where trials run, which their results don't depend on.

    Args:
        data: folder with the data sets.
        cache: folder of finished trials, and of the run folders of networks for images.
        device: where networks for images are trained; those for graphs are on the CPU.
        processes: for trials of one thread; default: one per core; 0 trains nothing.
    """

    data: Path
    cache: Path
    device: str = "auto"
    processes: int | None = None


class Missing(GraphcapsError):
    """A trial is not in the cache, and none was to be run."""


def key(function: Callable[..., dict], settings: dict) -> str:
    """Name of a trial in the cache."""
    named = {"function": f"{function.__module__}.{function.__qualname__}", "settings": settings}
    return hashlib.sha256(json.dumps(named, sort_keys=True).encode()).hexdigest()[:16]


def cached(function: Callable[..., dict], settings: dict, place: Place) -> dict | None:
    """A trial's result, or None where there is none that can be read."""
    try:
        return json.loads((place.cache / f"{key(function, settings)}.json").read_text(encoding="utf-8"))["result"]
    except (OSError, ValueError, KeyError, TypeError):
        return None


def trial(function: Callable[..., dict], settings: dict, place: Place, wait: bool = True) -> dict | None:
    """A trial's result, from the cache or made now; None where another process is making it and ``wait`` is False."""
    if (found := cached(function, settings, place)) is not None:
        return found
    place.cache.mkdir(parents=True, exist_ok=True)
    name = place.cache / key(function, settings)
    try:
        with filelock.FileLock(f"{name}.lock").acquire(timeout=-1 if wait else 0):
            if cached(function, settings, place) is None:
                result = function(place, **settings)
                write_text(f"{name}.json", json.dumps({"settings": settings, "result": result}) + "\n")
    except filelock.Timeout:
        return None
    return cached(function, settings, place)


def run(
    function: Callable[..., dict],
    trials: Sequence[dict],
    place: Place,
    title: str,
    parallel: bool = True,
    after: Callable[[], object] = lambda: None,
) -> list[dict]:
    """The results of all trials, in order. What another process is at comes last, and is waited for.

    Args:
        function: importable by name; from a ``Place`` and a trial's settings to plain values.
        trials: settings, plain.
        title: what the progress is of.
        parallel: on one thread each, side by side, so that numbers don't depend on how many cores there are. Else one
            after the other, with all threads.
        after: called after each trial.

    Raises:
        Missing: trials aren't in the cache, and ``place.processes`` is 0.
        GraphcapsError: what trials raised, after all others have ended; ``Interrupted`` at once.
    """
    found = {k: result for k, settings in enumerate(trials) if (result := cached(function, settings, place))}
    left = [k for k in range(len(trials)) if k not in found]
    if left and place.processes == 0:
        raise Missing(f"{place.cache}: expected {len(trials)} trials of {title}, got {len(found)}")
    failed: dict[int, GraphcapsError] = {}
    with bar(title, show=parallel and bool(left)) as on_progress:
        for wait in (False, True):
            jobs = {k: (function, trials[k], place, wait) for k in left}
            processes = place.processes or joblib.cpu_count(only_physical_cores=True)
            for k, result in _results(jobs, processes) if parallel else _in_turn(jobs):
                if isinstance(result, GraphcapsError):
                    failed[k] = result
                elif result is not None:
                    found[k] = result
                    on_progress(len(found) / len(trials))
                    after()
            left = [k for k in left if k not in found and k not in failed]
    if failed:
        raise GraphcapsError("; ".join(f"{title}, {trials[k]}: {error}" for k, error in failed.items()))
    return [found[k] for k in range(len(trials))]


def _in_turn(jobs: dict[int, tuple]) -> Iterator[tuple[int, dict | GraphcapsError | None]]:
    for k, job in jobs.items():
        try:
            yield k, trial(*job)
        except Interrupted:
            raise
        except GraphcapsError as error:
            yield k, error


def _results(jobs: dict[int, tuple], processes: int) -> Iterator[tuple[int, dict | GraphcapsError | None]]:
    """Of trials on one thread each, as they end."""
    if min(processes, len(jobs)) <= 1:
        with _one_thread():
            yield from _in_turn(jobs)
        return
    pool = ProcessPoolExecutor(min(processes, len(jobs)), mp_context=get_context("spawn"), initializer=_start_process)
    with pool:
        futures = {pool.submit(trial, *job): k for k, job in jobs.items()}
        try:
            for future in as_completed(futures):
                try:
                    yield futures[future], future.result()
                except GraphcapsError as error:
                    yield futures[future], error
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _start_process() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C ends it at once; the process that started it reports
    torch.set_num_threads(1)


@contextmanager
def _one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def best_setting(fits: Sequence[Sequence[dict]]) -> int:
    """Index of the setting whose trainings did best on validation: by mean accuracy, then by mean loss."""
    scores = [(fmean(fit["val_accuracy"] for fit in row), -fmean(fit["val_loss"] for fit in row)) for row in fits]
    return max(range(len(scores)), key=scores.__getitem__)


def choose_and_test(
    function: Callable[..., dict],
    settings: dict[str, list[dict]],
    trial_seeds: Sequence[int],
    seeds: int,
    place: Place,
    **common,
) -> dict[str, tuple[dict, list[dict]]]:
    """Of each network the settings that do best on validation, and its trainings with them.

    Args:
        function: a trial of ``network``, ``settings``, ``seed`` and what is ``common`` to all.
        settings: of each network those that are tried.
        trial_seeds: each setting is trained from each of them.
        seeds: what was chosen is trained from 0 to seeds - 1.
    """

    def trials(network: str, tried: Sequence[dict], of: Iterable[int]) -> list[dict]:
        return [common | {"network": network, "settings": each, "seed": seed} for each, seed in product(tried, of)]

    jobs = [job for network, tried in settings.items() for job in trials(network, tried, trial_seeds)]
    fits, chosen, size = iter(run(function, jobs, place, f"{', '.join(settings)}: settings")), {}, len(trial_seeds)
    for network, tried in settings.items():
        chosen[network] = tried[best_setting([[*islice(fits, size)] for _ in tried])]
    jobs = [job for network, best in chosen.items() for job in trials(network, [best], range(seeds))]
    fits = iter(run(function, jobs, place, f"{', '.join(settings)}: seeds"))
    return {network: (best, [*islice(fits, seeds)]) for network, best in chosen.items()}


def rows(
    function: Callable[..., dict],
    settings: dict[str, list[dict]],
    trial_seeds: Sequence[int],
    seeds: int,
    place: Place,
    labels: Callable[[int], Tensor],
    **common,
) -> dict[str, dict]:
    """``choose_and_test``, and of each network a row, see ``table.row``, from the test labels of each seed.

    A ``picture`` in a result, of what is to be drawn, is in the row as the first seed has it.
    """
    made = {}
    for network, (chosen, fits) in choose_and_test(function, settings, trial_seeds, seeds, place, **common).items():
        right = [accuracy(each, labels(seed)) for seed, each in enumerate(fits)]
        made[network] = table.row(network, fits, right, [chosen])
        if "picture" in fits[0]:
            made[network]["picture"] = fits[0]["picture"]
    return made


def fit(
    model: nn.Module,
    losses: Callable[[], Iterable[Tensor]],
    validate: Callable[[], tuple[Tensor, Tensor]],
    predict: Callable[[], Tensor],
    *,
    lr: float,
    weight_decay: float = 0.0,
    epochs: int,
    patience: int,
    loss: Callable[[Tensor, Tensor], Tensor] = F.cross_entropy,
) -> dict:
    """Train with Adam; the lowest validation loss chooses the epoch, whose weights the model then has.

    Predictions meet the test labels only after everything was chosen.

    Args:
        losses: those of an epoch, each computed when it is asked for; a step is made after each.
        validate: scores (n, J, *) and labels (n, *) of the validation part.
        predict: scores of the test part.
        patience: epochs without a lower loss, after which training ends.
    """
    adam, start = torch.optim.Adam(model.parameters(), lr=lr, weight_decay=weight_decay), time.perf_counter()
    best, weights, lowest = {"epoch": 0}, {}, float("inf")
    for epoch in range(1, epochs + 1):
        model.train()
        for each in losses():
            adam.zero_grad()
            each.backward()
            adam.step()
        model.eval()
        with torch.no_grad():
            scores, labels = validate()
            value = loss(scores, labels).item()
        if not isfinite(value):
            raise GraphcapsError(f"epoch {epoch}: expected a finite validation loss, got {value}")
        if value < lowest:
            accuracy = (scores.argmax(dim=1) == labels).double().mean().item()
            lowest, weights = value, copy.deepcopy(model.state_dict())
            best = {"val_accuracy": accuracy, "val_loss": value, "epoch": epoch}
        if epoch - best["epoch"] >= patience:
            break
    model.load_state_dict(weights)
    with torch.no_grad():
        predicted = predict().argmax(dim=1).tolist()
    parameters, seconds = sum(weight.numel() for weight in model.parameters()), time.perf_counter() - start
    return best | {"parameters": parameters, "seconds": seconds, "predicted": predicted}


def accuracy(result: dict, labels: Tensor) -> float:
    """Share of the test items whose predicted class is their label."""
    return (torch.tensor(result["predicted"]) == labels).double().mean().item()
