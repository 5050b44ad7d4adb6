"""Where routing changes accuracy: one table of all tasks by routings, each beside equal couplings and no capsules.

The table shows all that is in the cache, and grows as trainings end.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial

import torch

from experiments import run, table
from experiments.plan import read_plan
from experiments.run import Missing, Place
from experiments.statistics import paired
from experiments.tasks import cora, factors, images, molecules, motifs
from graphcaps import __version__
from graphcaps.errors import GraphcapsError

COLUMNS = ("uniform", "dynamic", "spherical", "attention", "EM", "no capsules")
FOLDS_OVERLAP = 1 / 9  # test graphs by other graphs, with ten folds


@dataclass(frozen=True)
class Task:
    """A task of several networks.

    Args:
        rows: titles of its rows of the table; for images each with its set of images, a name among those of
            ``images.summary``.
        columns: the task's networks in each column; a column that isn't here doesn't exist for it.
        train: for graphs, a function from a place and ``networks`` to their rows, see ``table.row``; None for images,
            whose networks are those of the plan of the task's name.
        unit, count: what the test accuracies of a whole row belong to, and how many there are.
        measure: what they are.
    """

    rows: dict[str, str]
    columns: dict[str, tuple[str, ...]]
    train: Callable[..., dict[str, dict]] | None = None
    unit: str = "seeds"
    count: int = 3
    measure: str = "accuracy"

    @property
    def networks(self) -> Iterator[str]:
        return (name for names in self.columns.values() for name in names)


_ROUTINGS: dict[str, tuple[str, ...]] = {name: (name,) for name in COLUMNS[:-1]}
_IMAGES = {**_ROUTINGS, "no capsules": ("CNN",)}
_ON_GRAPHS = {
    "uniform": ("uniform",),
    "dynamic": ("dynamic",),
    "spherical": ("capsules",),
    "no capsules": ("GCN", "GAT"),
}
_MOLECULES = _ON_GRAPHS | {"no capsules": ("mean", "attention")}
_FACTORS = _ON_GRAPHS | {"spherical": ("capsules", "mutual")}
_MOVED = {
    "digits in 40 x 40, moved as far as in training": "affnist within",
    "the same digits, moved further than in training": "affnist beyond",
}
TASKS = {
    "mnist": Task({"MNIST": "test"}, _IMAGES),
    "pairs": Task({"two digits": "test"}, _ROUTINGS),
    "places": Task(_MOVED, _IMAGES),
    "anywhere": Task({"all of them, trained on digits at all places": "affnist"}, _IMAGES),
    "cora": Task({"Cora": ""}, _ON_GRAPHS, cora.rows, "seeds", cora.SEEDS),
    **{
        name: Task({name.upper(): ""}, _MOLECULES, partial(molecules.rows, name=name), "folds", 10)
        for name in ("mutag", "proteins")
    },
    **{
        f"factors-{k}": Task(
            {f"{k} latent factors": ""}, _FACTORS, partial(factors.rows, factors=k), "graphs", factors.SEEDS, "micro-F1"
        )
        for k in factors.NUMBERS
    },
    **{
        f"motifs-{k}": Task(
            {f"which of {k} motifs": ""}, _ON_GRAPHS, partial(motifs.rows, motifs=k), "sets", motifs.SEEDS
        )
        for k in motifs.NUMBERS
    },
}


def results(place: Place, only: Sequence[str] = (), after: Callable[[dict], object] = lambda result: None) -> dict:
    """Train what isn't trained yet of some tasks, or of all; ``after`` is called with the table as it grows.

    Returns:
        ``columns`` and ``rows`` of ``table.overview``, of all that is in the cache.

    Raises:
        InputError: no such task.
        GraphcapsError: a task that can't be trained, after all others.
    """
    names, cache, failed = run.chosen(only, TASKS), replace(place, processes=0), {}
    rows = {name: so_far(name, cache) for name in TASKS}

    def take(name: str) -> None:
        rows[name] = so_far(name, cache)
        after(_table(rows))

    for name in names:
        print(name)
        train = TASKS[name].train
        try:
            if train is None:
                images.results(read_plan(name), place, lambda partial, name=name: take(name))
            for network in TASKS[name].networks if train else ():
                train(place, networks=[network])
                take(name)
        except GraphcapsError as error:
            if hasattr(error, "signum"):
                raise
            print(f"{name}: {error}")
            failed[name] = str(error)
        take(name)
    if failed:
        raise GraphcapsError("; ".join(f"{name}: {error}" for name, error in failed.items()))
    return _table(rows)


def _table(rows: dict[str, list[dict]]) -> dict:
    return {
        "format_version": 1,
        "command": "python -m experiments overview",
        "columns": [*COLUMNS],
        "rows": [row for several in rows.values() for row in several],
        "system": f"{platform.system()} {platform.machine()}",
        "versions": {"graphcaps": __version__, "torch": torch.__version__},
    }


def so_far(name: str, place: Place) -> list[dict]:
    """The task's rows, of what is in the cache."""
    task, rows = TASKS[name], {}
    if task.train is None:
        plan = read_plan(name)
        with suppress(Missing):
            rows = {row["name"]: row for row in images.so_far(plan, place)["rows"]}
        return [_row(name, title, len(plan.seeds), _of_images(task, part, rows)) for title, part in task.rows.items()]
    for network in task.networks:
        try:
            rows |= task.train(place, networks=[network])
        except GraphcapsError:  # nothing in the cache, or no data to compare it with
            continue
    return [_row(name, title, task.count, _of_graphs(task, rows)) for title in task.rows]


def _row(name: str, title: str, count: int, cells: dict) -> dict:
    about = {"task": name, "title": title, "measure": TASKS[name].measure, "unit": TASKS[name].unit, "of": count}
    return about | {"cells": {column: cells.get(column) for column in COLUMNS}}  # None: there is no such network


def _of_images(task: Task, part: str, rows: dict[str, dict]) -> dict[str, list[dict]]:
    """The cells of a set of images, by column."""

    def cell(row: dict) -> dict:
        about, each = row["images"][part], [seed["accuracy"][part] for seed in row["seeds"]]
        difference = {key: about[key] for key in ("difference", "interval") if key in about}
        return {"name": row["name"], **table.spread(each), "parameters": row["parameters"], **difference}

    return {column: [cell(rows[name]) for name in names if name in rows] for column, names in task.columns.items()}


def _of_graphs(task: Task, rows: dict[str, dict]) -> dict[str, list[dict]]:
    """The cells of a task on graphs, by column."""
    uniform, overlap = rows.get("uniform"), FOLDS_OVERLAP if task.unit == "folds" else 0.0

    def cell(row: dict) -> dict:
        made = {"name": row["name"], **table.spread(row["test"]), "parameters": row["parameters"]}
        gap = paired(row["test"], uniform["test"], overlap) if uniform and row is not uniform else None
        return made if gap is None else made | {"difference": gap[0], "interval": [*gap[1:]]}

    return {column: [cell(rows[name]) for name in names if name in rows] for column, names in task.columns.items()}
