"""Trials: function calls whose results are cached in files, so that a stopped experiment continues where it was.

    cache/<hash of the settings>.json     a trial's settings and its result
    cache/<hash of the settings>.lock     a lock that the process holds while it runs the trial

A trial is a call of a function with a ``Place`` and settings, which are plain values. Its name in the cache depends on
the function's name, the settings, the version of graphcaps and the sources of a routing of the user's own. Delete the
cache after you change graphcaps or the experiments themselves.
"""

import contextlib
import copy
import fcntl
import hashlib
import json
import os
import platform
import random
import signal
import sys
import sysconfig
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from math import isfinite
from modulefinder import ModuleFinder
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from graphcaps import __version__, dgl
from graphcaps.errors import GraphcapsError, check_name
from graphcaps.files import write_text
from graphcaps.images.training.loop import Interrupted
from graphcaps.progress import bar


@dataclass(frozen=True)
class Place:
    """Folders of trials, and how many run at a time. Results don't depend on them."""

    data: Path  # folder of the data sets
    cache: Path  # folder of finished trials, and of the run folders of image networks
    processes: int = len(os.sched_getaffinity(0))  # number of parallel trials, which have one thread each


def made_with() -> dict:
    """The system and the versions of the libraries, for results."""
    versions = {"graphcaps": __version__, "torch": torch.__version__, "dgl": dgl.__version__}
    return {"system": f"{platform.system()} {platform.machine()}", "versions": versions}


def key(function: Callable[..., dict], settings: dict) -> str:
    """The name of a trial in the cache."""
    module, colon, _ = settings.get("settings", {}).get("routing", "").partition(":")
    call = {"function": f"{function.__module__}.{function.__qualname__}", "settings": settings, "version": __version__}
    call["sources"] = user_sources(module) if colon else {}
    return hashlib.sha256(json.dumps(call, sort_keys=True).encode()).hexdigest()[:16]


def user_sources(module: str) -> dict[str, str]:
    """The hash of a user's module and of each module that it imports. Installed modules are left out."""
    installed = {Path(sysconfig.get_path(kind)).resolve() for kind in ("stdlib", "purelib", "platlib")}
    folders = [folder for folder in sys.path if installed.isdisjoint([(path := Path(folder).resolve()), *path.parents])]
    finder = ModuleFinder(folders, excludes=["graphcaps", "experiments"])
    with contextlib.suppress(ImportError):
        finder.import_hook(module)
    files = {name: found.__file__ for name, found in finder.modules.items() if found.__file__}
    return {name: hashlib.sha256(Path(file).read_bytes()).hexdigest() for name, file in files.items()}


def cached(function: Callable[..., dict], settings: dict, place: Place) -> dict | None:
    """A trial's result, or None if the cache has no readable result."""
    try:
        return json.loads((place.cache / f"{key(function, settings)}.json").read_text(encoding="utf-8"))["result"]
    except (OSError, ValueError, KeyError, TypeError):
        return None


def run(
    function: Callable[..., dict], trials: Sequence[dict], place: Place, title: str, parallel: bool = True
) -> list[dict]:
    """Return the results of all trials, in order.

    Trials that aren't in the cache run in random order, so that two commands share the work. Parallel trials have one
    thread each, so that numbers don't depend on the number of cores. Other trials run one after the other, with all
    threads. ``Interrupted`` is raised at once, other errors after all trials have ended. A line on stderr reports how
    many results come from the cache, and when they were made.
    """
    missing = [settings for settings in trials if cached(function, settings, place) is None]
    paths = [place.cache / f"{key(function, settings)}.json" for settings in trials if settings not in missing]
    if paths:
        dates = sorted(time.strftime("%Y-%m-%d %H:%M", time.localtime(path.stat().st_mtime)) for path in paths)
        span = " to ".join(dict.fromkeys((dates[0], dates[-1])))
        text = f"{title}: {len(paths)} of {len(trials)} results are reused, of {span}"
        print(f"{text}. To repeat them, delete {place.cache}", file=sys.stderr)
    jobs = [(function, settings, place, parallel) for settings in random.sample(missing, len(missing))]
    with bar(title, show=parallel and bool(missing)) as on_progress:
        errors = []
        for error in _attempts(jobs, min(place.processes, len(jobs)) if parallel else 1):
            errors.append(error)
            on_progress(len(errors) / len(jobs))
    if any(errors):
        raise GraphcapsError("; ".join(f"{title}, {error}" for error in errors if error))
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
    """Run a trial if its result isn't in the cache. If another process is running it, wait."""
    place.cache.mkdir(parents=True, exist_ok=True)
    path, threads = place.cache / key(function, settings), torch.get_num_threads()
    torch.set_num_threads(1 if one_thread else threads)
    try:
        with open(f"{path}.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if cached(function, settings, place) is None:
                result = function(place, **settings)
                write_text(f"{path}.json", json.dumps({"settings": settings, "result": result}) + "\n")
        return ""
    except GraphcapsError as error:
        if isinstance(error, Interrupted):
            raise
        return f"{settings}: {error}"
    finally:
        torch.set_num_threads(threads)


def chosen(names: Sequence[str], choices: Iterable[str]) -> list[str]:
    """The given names, or all choices if none is given. Raise ``InputError`` for a name that is no choice."""
    choices = [*dict.fromkeys(choices)]
    for name in names:
        check_name("task", name, choices)
    return [*(names or choices)]


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
        for step_loss in losses():
            adam.zero_grad()
            step_loss.backward()
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
        val_score, test_score = score(*answers(val)), score(*answers(test))
    return {
        "val_accuracy": val_score,
        "val_loss": lowest,
        "epoch": best,
        "parameters": sum(weight.numel() for weight in model.parameters()),
        "seconds": time.perf_counter() - start,
        "test": test_score,
    }
