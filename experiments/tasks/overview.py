"""The work of ``graphcaps matters``: what is trained is found, the rest is trained in rounds, the table grows.

    for each round, each task:  images -> compare, one more seed;  graphs -> choose settings, a third more of the seeds
    after each of it:           matters.json, matters.md

Trainings on images are run folders, as ``graphcaps compare`` makes them. Those on graphs are small files, known by
their settings and seed, as ``graphcaps example`` keeps them.
"""

from __future__ import annotations

import json
import platform
import shlex
import signal
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import torch

from .. import __version__
from ..atomic import write_text
from ..compare.plan import read_plan
from ..compare.work import Stopped, compare, so_far
from ..data.graphs.cora import load_cora
from ..data.graphs.tu import load_graphs
from ..errors import GraphcapsError, check_whole
from ..examples import cora, factors, molecules, motifs
from ..examples.run import EPOCHS, SEEDS
from ..examples.trials import NotKept
from ..progress import bar
from .table import as_markdown, of_graphs, of_images
from .tasks import COLUMNS, TASKS, Task, tasks

ROUNDS = 3
NAMES = ("matters.json", "matters.md")


def matters(
    folder: Path,
    data: Path,
    only: Sequence[str] = (),
    rounds: int = ROUNDS,
    device: str = "auto",
    say: Callable[[str], object] = print,
    progress: bool = True,
) -> dict:
    """Train what isn't trained yet, and write matters.json and matters.md as it comes.

    Args:
        folder: holds a folder per task, and the table.
        data: folder with the data sets.
        only: names of tasks to train; none: all. The table has all that is in ``folder``.
        rounds: stop after so many of ``ROUNDS``: one seed of each task on images in each, and a third of the seeds on
            graphs. Folds are all in the first.
        device: where networks for images are trained, as in ``TrainConfig``; those for graphs are on the CPU.
        say: told, line by line, what is done.
        progress: as in ``train``.

    Returns:
        what matters.json holds: ``columns``, and ``rows`` of ``table.of_images`` and ``table.of_graphs``.

    Raises:
        InputError: no such task.
        GraphcapsError: a task that can't be trained, after all others; ``Stopped`` on Ctrl-C.
    """
    asked = tasks(only)
    check_whole("rounds", rounds)
    found = {task.name: _so_far(task, folder / task.name, data, device) for task in TASKS}

    def take(task: Task, rows: list[dict]) -> dict:
        found[task.name] = rows
        return _write(folder, [row for each in found.values() for row in each])

    results, failed = take(asked[0], found[asked[0].name]), {}
    for number in range(1, min(rounds, ROUNDS) + 1):
        for task in asked:
            say(f"{task.name}, round {number} of {ROUNDS}")
            own, tell = folder / task.name, partial(take, task)
            try:
                if task.plan:
                    _on_images(task, own, data, device, number, say, progress, tell)
                else:
                    _on_graphs(task, own, data, number, tell)
            except (Stopped, KeyboardInterrupt) as stopped:
                words = ["graphcaps", "matters", "--data", str(data), "--device", device, "--to", str(folder)]
                words += ["--rounds", str(rounds)] * (rounds != ROUNDS) + ["--only", *only] * bool(only)
                raise Stopped(shlex.join(words), getattr(stopped, "signum", signal.SIGINT)) from None
            except GraphcapsError as error:
                say(f"{task.name}: {error}")
                failed[task.name] = str(error)
            results = take(task, _so_far(task, own, data, device))
    if failed:
        raise GraphcapsError("; ".join(f"{name}: {error}" for name, error in failed.items()))
    return results


def _on_images(task, folder, data, device, number, say, progress, tell) -> None:
    plan = read_plan(task.plan)
    seeds = len(plan.seeds)
    compare(plan, folder, data, device, say, progress, number, lambda each: tell(of_images(task, each, seeds)))


def _on_graphs(task: Task, folder: Path, data: Path, number: int, tell: Callable[[list[dict]], object]) -> None:
    train = _trainer(task, folder, data)
    for name in (name for names in task.columns.values() for name in names):
        with bar(f"{task.name}: {name}") as on_share:
            train(name, _seeds(task, number), on_share, None)
        tell(of_graphs(task, _kept(task, train), _of(task)))


def _so_far(task: Task, folder: Path, data: Path, device: str) -> list[dict]:
    """The task's rows, of what was trained before."""
    if task.plan:
        plan = read_plan(task.plan)
        return of_images(task, so_far(plan, folder, data, device), len(plan.seeds))
    rows = _kept(task, _trainer(task, folder, data)) if any(folder.glob("*.json")) else {}
    return of_graphs(task, rows, _of(task))


def _kept(task: Task, train: Callable[..., dict]) -> dict[str, dict]:
    """Of each network what the latest round that is whole has given."""
    found = {}
    for name in (name for names in task.columns.values() for name in names):
        for number in range(ROUNDS, 0, -1):
            try:
                found[name] = train(name, _seeds(task, number), _silent, 0)
                break
            except NotKept:
                continue
    return found


def _silent(share: float) -> None:
    pass


def _trainer(task: Task, keep: Path, data: Path) -> Callable[..., dict]:
    """From a network's name, seeds, who is told of the progress, and processes, to its row."""
    if task.example == "motifs":
        return lambda name, *how: _row(motifs.rows, name, keep, task.factors, *how)
    if task.example == "factors":
        return lambda name, *how: _row(factors.rows, name, keep, task.factors, *how)
    if task.example == "cora":
        papers = load_cora(data)
        return lambda name, *how: _row(cora.rows, name, keep, papers, *how)
    graphs, epochs = load_graphs(task.example.upper(), data), EPOCHS[task.example]

    def train(name: str, seeds: int, on_share: Callable[[float], None], processes: int | None) -> dict:
        return molecules.rows(graphs, [name], seeds, epochs, on_share, keep, processes)[name]

    return train


def _row(rows: Callable, name: str, keep: Path, about, seeds: int, on_share, processes: int | None) -> dict:
    found = rows(about, [name], seeds, on_share, keep, processes)[name]
    return {key: value for key, value in found.items() if key != "first"}  # a number for each node, for a picture


def _seeds(task: Task, number: int) -> int:
    """How many seeds there are after a round: all of them after the last.

    >>> [_seeds(task, number) for task in tasks(["cora", "mutag"]) for number in (1, 2, 3)]
    [7, 14, 20, 1, 1, 1]
    """
    return -(-SEEDS[task.example] * number // ROUNDS)


def _of(task: Task) -> int:
    return SEEDS[task.example] if task.example in ("cora", "factors", "motifs") else 10


def _write(folder: Path, rows: list[dict]) -> dict:
    results = {
        "format_version": 1,
        "command": "graphcaps matters",
        "columns": [*COLUMNS],
        "rows": rows,
        "system": f"{platform.system()} {platform.machine()}",
        "versions": {"graphcaps": __version__, "torch": torch.__version__},
    }
    write_text(folder / NAMES[0], json.dumps(results, indent=1) + "\n")
    write_text(folder / NAMES[1], as_markdown(results) + "\n")
    return results
