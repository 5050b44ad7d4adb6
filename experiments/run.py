"""What the examples share: many small trainings side by side, and choices that see no test label.

A training is given the labels it may see and returns a ``Fit``: how it did on the validation part, and what it predicts
for the test part. Predictions meet the test labels only after everything was chosen.
"""

from __future__ import annotations

import copy
import hashlib
import json
import signal
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from math import isfinite
from multiprocessing import get_context
from pathlib import Path
from statistics import fmean

import torch
from torch import Tensor, nn

from graphcaps.atomic import write_text
from graphcaps.errors import GraphcapsError
from graphcaps.threads import cores


@dataclass(frozen=True, eq=False)
class Fit:
    """A training, seen from outside.

    Args:
        val_accuracy: in [0, 1], of the epoch that was kept.
        val_loss: of the same epoch.
        epoch: which one, from 1.
        parameters: how many numbers were learned.
        seconds: how long it took.
        predicted: int64, the class of each test item, or its classes.
        beside: what else is to be kept of it, as plain numbers.
    """

    val_accuracy: float
    val_loss: float
    epoch: int
    parameters: int
    seconds: float
    predicted: Tensor
    beside: dict = field(default_factory=dict)


class BestEpoch:
    """Keeps a model's weights of the epoch with the lowest validation loss.

    Args:
        model: whose weights.
        patience: epochs without a better one until ``update`` says that it is enough.
    """

    def __init__(self, model: nn.Module, patience: int):
        self.model, self.patience, self.start = model, patience, time.perf_counter()
        self.loss, self.accuracy, self.epoch = float("inf"), 0.0, 0
        self.weights: dict[str, Tensor] | None = None

    def update(self, epoch: int, scores: Tensor, labels: Tensor, loss: Tensor) -> bool:
        """Judge an epoch by its validation scores (n, J, *), labels (n, *) and loss; return whether to go on."""
        if not isfinite(loss.item()):
            raise GraphcapsError(f"epoch {epoch}: expected a finite validation loss, got {loss.item()}")
        if loss.item() < self.loss:
            self.loss, self.accuracy = loss.item(), (scores.argmax(dim=1) == labels).double().mean().item()
            self.epoch, self.weights = epoch, copy.deepcopy(self.model.state_dict())
        return epoch - self.epoch < self.patience

    def restore(self) -> None:
        """Put the kept weights back into the model, which is then to be asked, not trained."""
        assert self.weights is not None, "no epoch was seen"
        self.model.load_state_dict(self.weights)
        self.model.eval()

    def fit(self, predict: Callable[[], Tensor]) -> Fit:
        """``restore``, and what ``predict`` then says of the test items."""
        self.restore()
        with torch.no_grad():
            predicted = predict()
        parameters = sum(weight.numel() for weight in self.model.parameters())
        seconds = time.perf_counter() - self.start
        return Fit(self.accuracy, self.loss, self.epoch, parameters, seconds, predicted)


def best_setting(fits: Sequence[Sequence[Fit]]) -> int:
    """Index of the setting whose trainings did best on validation: by mean accuracy, then by mean loss."""
    scores = [(fmean(fit.val_accuracy for fit in row), -fmean(fit.val_loss for fit in row)) for row in fits]
    return max(range(len(scores)), key=scores.__getitem__)


def accuracy(fit: Fit, labels: Tensor) -> float:
    """Share of the test items whose predicted class is their label."""
    return (fit.predicted == labels).double().mean().item()


class NotKept(GraphcapsError):
    """A training was asked for that no folder has, and none was to be made."""


def run_jobs(
    function: Callable[..., Fit],
    jobs: Sequence[tuple],
    on_share: Callable[[float], None],
    processes: int | None = None,
    keep: Path | None = None,
    about: dict | None = None,
) -> list[Fit]:
    """``function(*job)`` of every job, in order; each on one thread, in as many processes as there are cores.

    The numbers don't depend on how many processes there are.

    Args:
        function: importable by name, with what it is given small enough to be pickled for each job.
        jobs: arguments.
        on_share: told how much is done, from 0 to 1.
        processes: default: one per core; 1 works in this process; 0 trains nothing.
        keep: folder with a file for each training that has ended, so that the next run goes on from there; the
            function's keywords and the jobs' arguments are then plain values, by which a training is known again.
        about: what else it is known by, plain: which data, where the function's first arguments hold them.

    Raises:
        GraphcapsError: a file in ``keep`` isn't of this training; ``NotKept``, of no processes, where one is missing.
    """
    trainings = [] if keep is None else [_plain(function, job, about) for job in jobs]
    files = [keep / f"{_key(training)}.json" for training in trainings] if keep is not None else []
    fits = {k: _read(file, trainings[k]) for k, file in enumerate(files) if file.exists()}
    waiting = [k for k in range(len(jobs)) if k not in fits]
    if processes == 0 and waiting:
        raise NotKept(f"{keep}: expected {len(jobs)} trainings, got {len(fits)}")

    def take(k: int, fit: Fit) -> None:
        if files:
            numbers = {**asdict(fit), "predicted": fit.predicted.tolist()}
            write_text(files[k], json.dumps({"training": trainings[k], "fit": numbers}) + "\n")
        fits[k] = fit
        on_share(len(fits) / len(jobs))

    processes = min(processes or cores(), len(waiting))
    if processes <= 1:
        with _one_thread():
            for k in waiting:
                take(k, function(*jobs[k]))
        return [fits[k] for k in range(len(jobs))]
    pool = ProcessPoolExecutor(processes, mp_context=get_context("spawn"), initializer=_start_process)
    with pool:
        futures = {pool.submit(function, *jobs[k]): k for k in waiting}
        try:
            for future in as_completed(futures):
                take(futures[future], future.result())
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return [fits[k] for k in range(len(jobs))]


def choose_and_test(
    train: Callable[..., Fit],
    settings: dict[str, list[dict]],
    trial_seeds: Sequence[int],
    seeds: int,
    on_share: Callable[[float], None],
    processes: int | None = None,
    keep: Path | None = None,
    about: dict | None = None,
) -> dict[str, tuple[dict, list[Fit]]]:
    """Of each network the settings that do best on validation, and its trainings with them.

    Args:
        train: from (name, settings, seed) to a training.
        settings: of each network those that are tried.
        trial_seeds: what is tried is trained from each of them.
        seeds: what was chosen is trained from 0 to seeds - 1.
        on_share, processes, keep, about: as in ``run_jobs``.

    Returns:
        of each network what was chosen, and a training per seed.
    """
    tried = [(name, k, seed) for name, some in settings.items() for k in range(len(some)) for seed in trial_seeds]
    share = len(tried) / (len(tried) + len(settings) * seeds)
    how = (processes, keep, about)
    jobs: list[tuple] = [(name, settings[name][k], seed) for name, k, seed in tried]
    fits = dict(zip(tried, run_jobs(train, jobs, lambda done: on_share(done * share), *how), strict=True))
    chosen = {}
    for name, some in settings.items():
        by_setting = [[fits[name, k, seed] for seed in trial_seeds] for k in range(len(some))]
        chosen[name] = some[best_setting(by_setting)]
    jobs = [(name, chosen[name], seed) for name in settings for seed in range(seeds)]
    tested = run_jobs(train, jobs, lambda done: on_share(share + done * (1 - share)), *how)
    return {name: (chosen[name], tested[k * seeds : (k + 1) * seeds]) for k, name in enumerate(settings)}


def _plain(function: Callable, job: tuple, about: dict | None) -> dict:
    """What a training is, as JSON gives it back."""
    called, given = function, {}
    if isinstance(function, partial):
        assert about or not function.args, "what is kept is known by keywords and jobs, and by what is said about it"
        called, given = function.func, function.keywords
    training = {"function": f"{called.__module__}.{called.__qualname__}", "given": given, "job": job}
    return json.loads(json.dumps(training | ({"about": about} if about else {})))


def _key(training: dict) -> str:
    return hashlib.sha256(json.dumps(training, sort_keys=True).encode()).hexdigest()[:16]


def _read(file: Path, training: dict) -> Fit:
    """A training that was kept."""
    try:
        held = json.loads(file.read_text())
        if held["training"] == training:
            return Fit(**{**held["fit"], "predicted": torch.tensor(held["fit"]["predicted"])})
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise GraphcapsError(f"{file}: expected a kept training, got: {error!r}. Delete the file") from error
    raise GraphcapsError(f"{file}: expected the training {training}, got {held['training']}. Delete the file")


def _start_process() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C ends it at once; the process that started it does the talking
    torch.set_num_threads(1)


@contextmanager
def _one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
