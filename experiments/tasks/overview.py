"""Where does routing matter? A table with a row per task and a column per routing."""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from experiments import run, table
from experiments.plan import read_plan
from experiments.propagation import CORRECTED, SPREAD
from experiments.run import Place
from experiments.statistics import paired
from experiments.task import Task
from experiments.tasks import cora, factors, images, molecules

COLUMNS = ("uniform", "dynamic", "spherical", "attention", "EM", "others")


class Entry(NamedTuple):
    """A task with several networks. For a task on images, these are the networks of the plan with its name."""

    titles: dict[str, str]  # the title of each row, and the name of its set of images in images.results
    columns: dict[str, tuple[str, ...]]  # the networks of each column
    task: Task | None = None
    case: tuple[str, ...] = ()  # the task's case
    unit: str = "seeds"  # there is a test score for each of several seeds, folds or graphs


_ROUTINGS: dict[str, tuple[str, ...]] = {name: (name,) for name in COLUMNS[:-1]}
_IMAGES = _ROUTINGS | {"others": ("CNN",)}
_GRAPHS = {"uniform": ("uniform",), "dynamic": ("dynamic",), "spherical": ("capsules",)}
_NODES = _GRAPHS | {"others": ("GCN", "GAT", SPREAD, CORRECTED)}
_POOLED = _GRAPHS | {"others": ("mean", "attention")}
_FACTORS = _NODES | {"spherical": ("capsules", "mutual"), "others": ("GCN", "GAT", SPREAD, "BeliefConv")}
_MOVED = {
    "digits in 40 x 40, moved as far as in training": "affnist within",
    "the same digits, moved further than in training": "affnist beyond",
}
TASKS = {
    "mnist": Entry({"MNIST": "test"}, _IMAGES),
    "pairs": Entry({"two digits": "test"}, _ROUTINGS),
    "places": Entry(_MOVED, _IMAGES),
    "anywhere": Entry({"all of them, trained on digits at all places": "affnist"}, _IMAGES),
    "cora": Entry({"Cora": ""}, _NODES, cora.TASK),
    "mutag": Entry({"MUTAG": ""}, _POOLED, molecules.TASKS["mutag"], unit="folds"),
    "proteins": Entry({"PROTEINS": ""}, _POOLED, molecules.TASKS["proteins"], unit="folds"),
    "factors-4": Entry({"4 latent factors": ""}, _FACTORS, factors.TASK, ("4",), "graphs"),
    "factors-8": Entry({"8 latent factors": ""}, _FACTORS, factors.TASK, ("8",), "graphs"),
}


def results(place: Place, only: Sequence[str]) -> dict:
    """Train the networks of the tasks in ``only``, or of all tasks, unless they are trained already."""
    return {
        "command": "python -m experiments overview",
        "columns": [*COLUMNS],
        "rows": [row for name in run.chosen(only, TASKS) for row in _rows(name, place)],
        **run.made_with(),
    }


def _rows(name: str, place: Place) -> list[dict]:
    entry, rows = TASKS[name], []
    made = entry.task.rows(place, only=entry.case) if entry.task else images.results(read_plan(name), place)["rows"]
    trained = {row["name"]: row for row in made}

    def cell(network: str, part: str) -> dict:
        row, uniform, difference = trained[network], trained["uniform"], {}
        if not entry.task:  # images
            test, compared = [seed["accuracy"][part] for seed in row["seeds"]], row["images"][part]
            difference = {key: compared[key] for key in ("difference", "interval") if key in compared}
        else:
            test, overlap = row["test"], molecules.OVERLAP if entry.unit == "folds" else 0.0
            if row is not uniform and (gap := paired(test, uniform["test"], overlap)):
                difference = {"difference": gap[0], "interval": [*gap[1:]]}
        size = {"parameters": row["parameters"]} if "parameters" in row else {}
        return {"name": network, **table.spread(test), **size, **difference}

    for title, part in entry.titles.items():
        cells = {column: [cell(network, part) for network in names] for column, names in entry.columns.items()}
        measure = entry.task.score if entry.task else "accuracy"
        about = {"task": name, "title": title, "measure": measure, "unit": entry.unit}
        about["of"] = len(cells["uniform"][0]["each"])
        rows.append(about | {"cells": {column: cells.get(column) for column in COLUMNS}})  # None: no such network
    return rows


def cells(rows: Iterable[dict]) -> Iterator[dict[str, object]]:
    """The cells of rows.

    A cell has the mean and standard deviation in %, and the difference to uniform in points with its 95 % interval. The
    difference is bold if 0 is outside the interval. "-" means that there is no such network.
    """
    for row in rows:
        title = row["title"] + (f", {row['measure']}" if row["measure"] != "accuracy" else "")
        texts = {"task": title, "of": f"{row['of']} {row['unit']}"}
        for column, networks in row["cells"].items():
            # Name the second network of a column, and every network of others.
            named = [n > 0 or column == "others" for n in range(len(networks or []))]
            texts[column] = "<br>".join(map(_text, networks or [], named)) or "-"
        yield texts


def _text(network: dict, named: bool) -> str:
    text = f"{network['name']}: " * named + table.percent(network["mean"], network["sd"])
    if "difference" not in network:
        return text
    low, high = network["interval"]
    gap = table.interval(network["difference"], low, high)
    return f"{text}, {gap}" if low <= 0 <= high else f"{text}, **{gap}**"


def markdown(result: dict) -> str:
    return table.table(cells(result["rows"]), ("task", "of", *COLUMNS))
