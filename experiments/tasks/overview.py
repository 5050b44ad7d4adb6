"""Where routing changes accuracy: one table of all tasks by routings, each beside equal couplings and no capsules.

The rows and columns say which plan or graphs each task is, and which of its networks stands where. The table is of all
that is in the cache, and grows as trainings end.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch

from experiments import table
from experiments.plan import read_plan
from experiments.run import Missing, Place
from experiments.statistics import paired
from experiments.tasks import cora, factors, images, molecules, motifs
from graphcaps import __version__
from graphcaps.errors import GraphcapsError, check_name

COLUMNS = ("uniform", "dynamic", "nobody", "spherical", "attention", "EM", "no capsules")
FOLDS_OVERLAP = 1 / 9  # test graphs by other graphs, of ten folds


@dataclass(frozen=True)
class Task:
    """Something to be learned, by several networks.

    Args:
        name: as ``--only`` takes it; of images also the name of a plan.
        rows: of the table, each with the images that it is about: a name among those of ``images.summary``. Of graphs:
            one row, about nothing more.
        columns: which of the task's networks stand in each column; a column that isn't here doesn't exist for it.
        train: of graphs: from a place and ``networks`` to their rows, see ``table.row``.
        unit, count: what the test accuracies of a whole row are of, and how many there are.
        measure: what they are.
    """

    name: str
    rows: dict[str, str]
    columns: dict[str, tuple[str, ...]]
    train: Callable[..., dict[str, dict]] | None = None
    unit: str = "seeds"
    count: int = 3
    measure: str = "accuracy"


_ROUTINGS: dict[str, tuple[str, ...]] = {name: (name,) for name in COLUMNS[:-1]}
_IMAGES = {**_ROUTINGS, "no capsules": ("CNN",)}


def _on_graphs(*without: str) -> dict[str, tuple[str, ...]]:
    return {"uniform": ("uniform",), "dynamic": ("dynamic",), "spherical": ("capsules",), "no capsules": without}


def _folds(name: str) -> Task:
    train = partial(molecules.rows, name=name)
    return Task(name, {name.upper(): ""}, _on_graphs("mean", "attention"), train, "folds", 10)


def _factors(number: int) -> Task:
    columns = _on_graphs("GCN", "GAT") | {"spherical": ("capsules", "mutual")}
    train = partial(factors.rows, factors=number)
    name, title = f"factors-{number}", f"{number} latent factors"
    return Task(name, {title: ""}, columns, train, "graphs", factors.SEEDS, "micro-F1")


def _motifs(number: int) -> Task:
    name, title = f"motifs-{number}", f"which of {number} motifs"
    return Task(name, {title: ""}, _on_graphs("GCN", "GAT"), partial(motifs.rows, motifs=number), "sets", motifs.SEEDS)


TASKS = {
    task.name: task
    for task in (
        Task("mnist", {"MNIST": "test"}, _IMAGES),
        Task("pairs", {"two digits": "test"}, _ROUTINGS),
        Task(
            "places",
            {
                "digits in 40 x 40, moved as far as in training": "affnist within",
                "the same digits, moved further than in training": "affnist beyond",
            },
            _IMAGES,
        ),
        Task("anywhere", {"all of them, trained on digits at all places": "affnist"}, _IMAGES),
        Task("cora", {"Cora": ""}, _on_graphs("GCN", "GAT"), cora.rows, "seeds", cora.SEEDS),
        _folds("mutag"),
        _folds("proteins"),
        *map(_factors, factors.NUMBERS),
        *map(_motifs, motifs.NUMBERS),
    )
}


def results(
    place: Place, only: Sequence[str] = (), after: Callable[[dict], object] = lambda found: None, say=print
) -> dict:
    """Train what isn't trained yet of some tasks, or of all; ``after`` is called with the table as it grows.

    Returns:
        ``columns`` and ``rows`` of ``table.overview``, of all that is in the cache.

    Raises:
        InputError: no such task.
        GraphcapsError: a task that can't be trained, after all others.
    """
    for name in only:
        check_name("only", name, list(TASKS))
    cache = replace(place, processes=0)
    found, failed = {name: so_far(task, cache) for name, task in TASKS.items()}, {}

    def take(task: Task) -> None:
        found[task.name] = so_far(task, cache)
        after(_table(found))

    for task in (TASKS[name] for name in (only or TASKS)):
        say(task.name)
        try:
            if task.train is None:
                images.results(read_plan(task.name), place, lambda each, task=task: take(task))
            for network in (name for names in task.columns.values() for name in names) if task.train else ():
                task.train(place, networks=[network])
                take(task)
        except GraphcapsError as error:
            if hasattr(error, "signum"):
                raise
            say(f"{task.name}: {error}")
            failed[task.name] = str(error)
        take(task)
    if failed:
        raise GraphcapsError("; ".join(f"{name}: {error}" for name, error in failed.items()))
    return _table(found)


def _table(found: dict[str, list[dict]]) -> dict:
    return {
        "format_version": 1,
        "command": "python -m experiments overview",
        "columns": [*COLUMNS],
        "rows": [row for rows in found.values() for row in rows],
        "system": f"{platform.system()} {platform.machine()}",
        "versions": {"graphcaps": __version__, "torch": torch.__version__},
    }


def so_far(task: Task, place: Place) -> list[dict]:
    """The task's rows, of what is in the cache."""
    if task.train is None:
        plan = read_plan(task.name)
        try:
            results = images.so_far(plan, place)
        except Missing:
            results = None
        return of_images(task, results, len(plan.seeds))
    rows: dict[str, dict] = {}
    for network in (name for names in task.columns.values() for name in names):
        try:
            rows |= task.train(place, networks=[network])
        except GraphcapsError:  # nothing in the cache, or no data to compare it with
            continue
    return of_graphs(task, rows)


def of_images(task: Task, results: dict | None, count: int) -> list[dict]:
    """The table's rows of a task whose ``results`` are those of its plan with ``count`` seeds, None without any."""
    known, found = {row["name"]: row for row in results["rows"]} if results else {}, []
    for title, name in task.rows.items():
        cells: dict[str, list[dict]] = {column: [] for column in task.columns}
        for column, networks in task.columns.items():
            for row in (known[network] for network in networks if network in known):
                about, each = row["images"][name], [seed["accuracy"][name] for seed in row["seeds"]]
                difference = (about["difference"], *about["interval"]) if "difference" in about else None
                cells[column].append(cell(row["name"], each, row["parameters"], difference))
        found.append(_row(task, title, count, cells))
    return found


def of_graphs(task: Task, rows: dict[str, dict]) -> list[dict]:
    """The table's row of a task whose networks have these ``rows``, see ``table.row``, so far."""
    cells: dict[str, list[dict]] = {column: [] for column in task.columns}
    (uniform,), overlap = task.columns["uniform"], FOLDS_OVERLAP if task.unit == "folds" else 0.0
    for column, networks in task.columns.items():
        for row in (rows[network] for network in networks if network in rows):
            held = column != "uniform" and uniform in rows
            difference = paired(row["test"], rows[uniform]["test"], overlap) if held else None
            cells[column].append(cell(row["name"], row["test"], row["parameters"], difference))
    (title,) = task.rows
    return [_row(task, title, task.count, cells)]


def _row(task: Task, title: str, count: int, cells: dict) -> dict:
    about = {"task": task.name, "title": title, "measure": task.measure, "unit": task.unit, "of": count}
    return about | {"cells": {column: cells.get(column) for column in COLUMNS}}  # None: there is no such network


def cell(network: str, accuracies: Sequence[float], parameters: int, difference: Sequence[float] | None) -> dict:
    """One network on one task: its accuracies in [0, 1], and its ``difference`` to uniform with a 95 % ``interval``.

    Args:
        network: its name.
        accuracies: one per seed, graph or fold.
        parameters: how many numbers it learns, without a decoder.
        difference: to uniform, low and high; None for uniform itself, or while nothing is known.
    """
    found = {"name": network, **table.spread(accuracies), "parameters": parameters}
    return found if difference is None else found | {"difference": difference[0], "interval": [*difference[1:]]}
