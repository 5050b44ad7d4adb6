"""Trials: function calls whose results are cached in files, so that a stopped experiment continues where it was.

    cache/<hash of the settings>.json     a trial's settings and its result
    cache/<hash of the settings>.lock     a lock that the process holds while it runs the trial

A trial is a call of a function with a ``Place`` and settings, which are plain values. Its name in the cache depends
only on the function's name and the settings, so delete the cache after you change the code.
"""

import copy
import hashlib
import json
import platform
import random
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from itertools import islice, product
from math import isfinite
from multiprocessing import get_context
from pathlib import Path
from statistics import fmean
from typing import Any

import filelock
import joblib
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from graphcaps import __version__, dgl
from graphcaps.atomic import write_text
from graphcaps.errors import GraphcapsError, check_name
from graphcaps.images.training.loop import Interrupted
from graphcaps.progress import bar


@dataclass(frozen=True)
class Place:
    """Folders and hardware of trials. Results don't depend on them."""

    data: Path  # folder of the data sets
    cache: Path  # folder of finished trials, and of the run folders of image networks
    device: str = "auto"  # device of image networks; graph networks are trained on the CPU
    processes: int | None = None  # number of processes for trials of one thread; default: one per core


def made_with() -> dict:
    """The system and the versions of the libraries, for results."""
    versions = {"graphcaps": __version__, "torch": torch.__version__, "dgl": dgl.__version__}
    return {"system": f"{platform.system()} {platform.machine()}", "versions": versions}


def key(function: Callable[..., dict], settings: dict) -> str:
    """The name of a trial in the cache."""
    named = {"function": f"{function.__module__}.{function.__qualname__}", "settings": settings}
    return hashlib.sha256(json.dumps(named, sort_keys=True).encode()).hexdigest()[:16]


def cached(function: Callable[..., dict], settings: dict, place: Place) -> dict | None:
    """A trial's result, or None if the cache has no readable result."""
    try:
        return json.loads((place.cache / f"{key(function, settings)}.json").read_text(encoding="utf-8"))["result"]
    except (OSError, ValueError, KeyError, TypeError):
        return None


def trial(function: Callable[..., dict], settings: dict, place: Place) -> None:
    """Run a trial if its result isn't in the cache. If another process is running it, wait."""
    place.cache.mkdir(parents=True, exist_ok=True)
    name = place.cache / key(function, settings)
    with filelock.FileLock(f"{name}.lock"):
        if cached(function, settings, place) is None:
            result = function(place, **settings)
            write_text(f"{name}.json", json.dumps({"settings": settings, "result": result}) + "\n")


def run(
    function: Callable[..., dict], trials: Sequence[dict], place: Place, title: str, parallel: bool = True
) -> list[dict]:
    """Return the results of all trials, in order.

    Trials that aren't in the cache run in random order, so that two commands share the work. Parallel trials have one
    thread each, so that numbers don't depend on the number of cores. Other trials run one after the other, with all
    threads. ``Interrupted`` is raised at once, other errors after all trials have ended.
    """
    left = [settings for settings in trials if cached(function, settings, place) is None]
    jobs = [(function, settings, place, parallel) for settings in random.sample(left, len(left))]
    errors = []
    with bar(title, show=parallel and bool(left)) as on_progress:
        workers = min(place.processes or joblib.cpu_count(only_physical_cores=True), len(jobs)) if parallel else 1
        for n, error in enumerate(_attempts(jobs, workers), 1):
            errors += [f"{title}, {error}"] if error else []
            on_progress(n / len(jobs))
    if errors:
        raise GraphcapsError("; ".join(errors))
    return [result for settings in trials if (result := cached(function, settings, place)) is not None]


def _attempts(jobs: list[tuple], processes: int) -> Iterator[str]:
    """Run the trials. When a trial ends, yield its error, or "" if it had none."""
    if processes <= 1:
        yield from (_attempt(*job) for job in jobs)
        return
    # After Ctrl-C, only the parent process prints a message.
    pool = ProcessPoolExecutor(processes, get_context("spawn"), signal.signal, (signal.SIGINT, signal.SIG_DFL))
    try:
        yield from (future.result() for future in as_completed([pool.submit(_attempt, *job) for job in jobs]))
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _attempt(function: Callable[..., dict], settings: dict, place: Place, one_thread: bool) -> str:
    threads = torch.get_num_threads()
    torch.set_num_threads(1 if one_thread else threads)
    try:
        trial(function, settings, place)
        return ""
    except GraphcapsError as error:
        if isinstance(error, Interrupted):
            raise
        return f"{settings}: {error}"
    finally:
        torch.set_num_threads(threads)


def chosen(names: Sequence[str], known: Iterable[str]) -> list[str]:
    """The given names, or all known names if none is given. Raise ``InputError`` for an unknown name."""
    known = [*dict.fromkeys(known)]
    for name in names:
        check_name("task", name, known)
    return [*(names or known)]


def choose_and_test(
    function: Callable[..., dict],
    settings: dict[str, list[dict]],
    trial_seeds: Sequence[int],
    seeds: int,
    place: Place,
    common: dict,
) -> dict[str, tuple[dict, list[dict]]]:
    """Choose each network's settings on validation data, and train it with them from seeds 0 to ``seeds`` - 1.

    The settings with the highest mean validation score are chosen; if scores are equal, those with the lowest loss.

    Args:
        function: a trial of ``network``, ``settings``, ``seed`` and the arguments in ``common``.
        settings: for each network, the settings to try. Each is tried with all ``trial_seeds``.

    Returns:
        for each network, the chosen settings and the results of its trainings with them.
    """

    def fitted(tried: dict[str, list[dict]], starts: Iterable[int], what: str) -> Iterator[dict]:
        named = [(network, each) for network, several in tried.items() for each in several]
        jobs = [
            common | {"network": network, "settings": each, "seed": seed}
            for (network, each), seed in product(named, starts)
        ]
        return iter(run(function, jobs, place, f"{', '.join(settings)}: {what}"))

    def merit(trials: list[dict]) -> tuple[float, float]:
        return fmean(fit["val_accuracy"] for fit in trials), -fmean(fit["val_loss"] for fit in trials)

    fits, best = fitted(settings, trial_seeds, "settings"), {}
    for network, tried in settings.items():
        merits = [merit([*islice(fits, len(trial_seeds))]) for _ in tried]
        best[network] = [tried[merits.index(max(merits))]]
    fits = fitted(best, range(seeds), "seeds")
    return {network: (only, [*islice(fits, seeds)]) for network, (only,) in best.items()}


def accuracy(scores: Tensor, labels: Tensor) -> float:
    """The share of items (n, *) whose label has the highest of the scores (n, J, *)."""
    return (scores.argmax(dim=1) == labels).double().mean().item()


def fit(
    model: nn.Module,
    losses: Callable[[], Iterable[Tensor]],
    answers: Callable[[Any], tuple[Tensor, Tensor]],
    val: object,
    test: object,
    *,
    lr: float,
    weight_decay: float = 0.0,
    epochs: int,
    patience: int,
    loss: Callable[[Tensor, Tensor], Tensor] = F.cross_entropy,
    score: Callable[[Tensor, Tensor], float] = accuracy,
) -> dict:
    """Train with Adam, and then load the weights of the epoch with the lowest validation loss.

    The test part is read only after that.

    Args:
        losses: returns the losses of one epoch, as an iterable that computes each one after the previous step.
        answers: takes a part of the data and returns scores (n, J, *) and labels (n, *).
        val, test: parts of the data, for ``answers``.
        patience: training ends after this many epochs without a lower validation loss.
    """
    adam, start = torch.optim.Adam(model.parameters(), lr=lr, weight_decay=weight_decay), time.perf_counter()
    best, weights, lowest = 0, {}, float("inf")
    for epoch in range(1, epochs + 1):
        model.train()
        for each in losses():
            adam.zero_grad()
            each.backward()
            adam.step()
        model.eval()
        with torch.no_grad():
            value = loss(*answers(val)).item()
        if not isfinite(value):
            raise GraphcapsError(f"epoch {epoch}: expected a finite validation loss, got {value}")
        if value < lowest:
            best, lowest, weights = epoch, value, copy.deepcopy(model.state_dict())
        if epoch - best >= patience:
            break
    model.load_state_dict(weights)
    with torch.no_grad():
        reached, tested = score(*answers(val)), score(*answers(test))
    parameters, seconds = sum(weight.numel() for weight in model.parameters()), time.perf_counter() - start
    about = {"val_accuracy": reached, "val_loss": lowest, "epoch": best, "parameters": parameters, "seconds": seconds}
    return about | {"test": tested}
