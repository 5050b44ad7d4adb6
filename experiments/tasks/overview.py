"""Where does routing matter? A table with a row per task and a column per routing."""

import json
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from experiments import run, table
from experiments.plan import read_plan
from experiments.run import Place
from experiments.statistics import paired
from experiments.tasks import cora, factors, images, molecules
from graphcaps.errors import GraphcapsError

COLUMNS = ("uniform", "dynamic", "spherical", "attention", "EM", "no capsules")
FOLDS_OVERLAP = 1 / 9  # for ten folds: number of test graphs / number of other graphs


class Task(NamedTuple):
    """A task with several networks. For a task on images, these are the networks of the plan with its name."""

    titles: dict[str, str]  # the title of each row, and the name of its set of images in images.summary
    columns: dict[str, tuple[str, ...]]  # the networks of each column
    rows: Callable[[Place], dict[str, dict]] | None = None  # for graphs: makes each network's table.row
    unit: str = "seeds"  # there is a test score for each of several seeds, folds or graphs
    measure: str = "accuracy"


_ROUTINGS: dict[str, tuple[str, ...]] = {name: (name,) for name in COLUMNS[:-1]}
_IMAGES = _ROUTINGS | {"no capsules": ("CNN",)}
_GRAPHS = {"uniform": ("uniform",), "dynamic": ("dynamic",), "spherical": ("capsules",), "no capsules": ("GCN", "GAT")}
_POOLED = _GRAPHS | {"no capsules": ("mean", "attention")}
_FACTORS = _GRAPHS | {"spherical": ("capsules", "mutual")}
_MOVED = {
    "digits in 40 x 40, moved as far as in training": "affnist within",
    "the same digits, moved further than in training": "affnist beyond",
}
TASKS = {
    "mnist": Task({"MNIST": "test"}, _IMAGES),
    "pairs": Task({"two digits": "test"}, _ROUTINGS),
    "places": Task(_MOVED, _IMAGES),
    "anywhere": Task({"all of them, trained on digits at all places": "affnist"}, _IMAGES),
    "cora": Task({"Cora": ""}, _GRAPHS, cora.rows),
    "mutag": Task({"MUTAG": ""}, _POOLED, partial(molecules.rows, name="mutag"), "folds"),
    "proteins": Task({"PROTEINS": ""}, _POOLED, partial(molecules.rows, name="proteins"), "folds"),
    "factors-4": Task({"4 latent factors": ""}, _FACTORS, partial(factors.rows, factors=4), "graphs", "micro-F1"),
    "factors-8": Task({"8 latent factors": ""}, _FACTORS, partial(factors.rows, factors=8), "graphs", "micro-F1"),
}


def results(place: Place, only: Sequence[str], save: Callable[[dict], object]) -> dict:
    """Train the networks of the tasks in ``only``, or of all tasks, unless they are trained already.

    After each task, ``save`` is called with the table, which also has the rows that an earlier call saved in the cache.
    If a task fails, the error is raised after the other tasks.
    """
    saved, failed = place.cache / "overview.json", {}
    rows = json.loads(saved.read_text(encoding="utf-8"))["rows"] if saved.is_file() else []
    for name in run.chosen(only, TASKS):
        print(name)
        try:
            rows = [row for row in rows if row["task"] != name] + _rows(name, place)
            save(_table(rows))
        except GraphcapsError as error:
            if hasattr(error, "signum"):
                raise
            failed[name] = str(error)
    if failed:
        raise GraphcapsError("; ".join(f"{name}: {error}" for name, error in failed.items()))
    return _table(rows)


def _table(rows: list[dict]) -> dict:
    return {
        "format_version": 1,
        "command": "python -m experiments overview",
        "columns": [*COLUMNS],
        "rows": sorted(rows, key=lambda row: [*TASKS].index(row["task"])),
        **run.made_with(),
    }


def _rows(name: str, place: Place) -> list[dict]:
    task = TASKS[name]
    if task.rows:
        trained = task.rows(place)
        overlap = FOLDS_OVERLAP if task.unit == "folds" else 0.0
        cell = partial(_of_graphs, uniform=trained["uniform"], overlap=overlap)
    else:
        trained = {row["name"]: row for row in images.results(read_plan(name), place)["rows"]}
        cell = _of_images
    rows = []
    for title, part in task.titles.items():
        cells = {column: [cell(trained[each], part) for each in names] for column, names in task.columns.items()}
        about = {"task": name, "title": title, "measure": task.measure, "unit": task.unit}
        about["of"] = len(cells["uniform"][0]["each"])
        rows.append(about | {"cells": {column: cells.get(column) for column in COLUMNS}})  # None: no such network
    return rows


def _of_images(row: dict, part: str) -> dict:
    """A network's part of a cell, for one set of images."""
    compared, each = row["images"][part], [seed["accuracy"][part] for seed in row["seeds"]]
    difference = {key: compared[key] for key in ("difference", "interval") if key in compared}
    return {"name": row["name"], **table.spread(each), "parameters": row["parameters"], **difference}


def _of_graphs(row: dict, part: str, uniform: dict, overlap: float) -> dict:
    """A network's part of a cell, for a task on graphs."""
    made = {"name": row["name"], **table.spread(row["test"]), "parameters": row["parameters"]}
    gap = paired(row["test"], uniform["test"], overlap) if row is not uniform else None
    return made if gap is None else made | {"difference": gap[0], "interval": [*gap[1:]]}
