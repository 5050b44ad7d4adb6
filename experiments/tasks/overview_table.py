"""The table of where routing matters, from plain numbers. Imports no torch."""

from __future__ import annotations

from collections.abc import Sequence

from ..compare.statistics import paired
from .tasks import COLUMNS, Task

FOLDS_OVERLAP = 1 / 9  # test graphs by other graphs, of ten folds


def cell(name: str, accuracies: Sequence[float], parameters: int, apart: Sequence[float] | None) -> dict:
    """One network on one task: ``mean`` and ``sd`` of the accuracies in [0, 1], ``sd`` None of one; and, where it is
    held against uniform, ``difference`` and its 95 % ``interval``.

    Args:
        name: of the network.
        accuracies: one per seed, graph or fold.
        parameters: how many numbers it learns, without a decoder.
        apart: difference to uniform, low and high; None for uniform itself, or while nothing is known.
    """
    count, mean = len(accuracies), sum(accuracies) / len(accuracies)
    sd = (sum((one - mean) ** 2 for one in accuracies) / (count - 1)) ** 0.5 if count > 1 else None
    found = {"name": name, "each": [*accuracies], "mean": mean, "sd": sd, "parameters": parameters}
    return found if apart is None else found | {"difference": apart[0], "interval": [*apart[1:]]}


def of_images(task: Task, results: dict | None, of: int) -> list[dict]:
    """The table's rows of a task whose ``results`` are those of its plan, None before the first training.

    Args:
        of: how many seeds the plan has.
    """
    known = {row["name"]: row for row in results["rows"]} if results else {}
    found = []
    for title, images in task.rows.items():
        cells: dict[str, list[dict]] = {column: [] for column in task.columns}
        for column, names in task.columns.items():
            for row in (known[name] for name in names if name in known):
                about = row["images"][images]
                each = [seed["accuracy"][images] for seed in row["seeds"]]
                apart = (about["difference"], *about["interval"]) if "difference" in about else None
                cells[column].append(cell(row["name"], each, row["parameters"], apart))
        found.append(_row(task, title, "accuracy", "seeds", of, cells))
    return found


def of_graphs(task: Task, rows: dict[str, dict], of: int) -> list[dict]:
    """The table's row of a task whose networks have these ``rows``, see ``examples.table.row``, so far.

    Args:
        of: how many seeds, graphs or folds a whole row has.
    """
    unit = {"cora": "seeds", "factors": "graphs", "motifs": "sets"}.get(task.example, "folds")
    cells: dict[str, list[dict]] = {column: [] for column in task.columns}
    (uniform,) = task.columns["uniform"]
    for column, names in task.columns.items():
        for name in (name for name in names if name in rows):
            apart = None
            if column != "uniform" and uniform in rows:
                overlap = FOLDS_OVERLAP if unit == "folds" else 0.0
                apart = paired(rows[name]["test"], rows[uniform]["test"], overlap)
            cells[column].append(cell(name, rows[name]["test"], rows[name]["parameters"], apart))
    (title,) = task.rows
    return [_row(task, title, "micro-F1" if task.example == "factors" else "accuracy", unit, of, cells)]


def _row(task: Task, title: str, measure: str, unit: str, of: int, cells: dict) -> dict:
    about = {"task": task.name, "title": title, "command": task.command, "measure": measure, "unit": unit, "of": of}
    return about | {"cells": {column: cells.get(column) for column in COLUMNS}}  # None: there is no such network


def as_markdown(results: dict, columns: Sequence[str] = ()) -> str:
    """The table: a row per task, a column per routing, or some ``columns`` of it.

    In a cell stand the mean and standard deviation in %, and the difference to uniform in points with its 95 %
    interval, bold where 0 is outside. "-": there is no such network. Empty: not trained yet.
    """
    columns = columns or results["columns"]
    lines = ["| task | of | " + " | ".join(columns) + " |", "|" + "---|" * (2 + len(columns))]
    for row in results["rows"]:
        cells = [row["cells"][column] for column in columns]
        said = ["-" if some is None else "<br>".join(_said(one, row) for one in some) for some in cells]
        title = row["title"] + (f", {row['measure']}" if row["measure"] != "accuracy" else "")
        lines.append("| " + " | ".join([title, f"{row['of']} {row['unit']}", *said]) + " |")
    return "\n".join(lines)


def _said(one: dict, row: dict) -> str:
    """
    >>> found = cell("GAT", [0.5, 0.75], 10, (0.125, -0.25, 0.5))
    >>> _said(found, {"cells": {"no capsules": [found]}, "of": 3})
    'GAT: 62.50 +- 17.68, +12.50 (-25.00 to +50.00), 2 of 3'
    """
    others = [each for column, cells in row["cells"].items() for each in (cells or [])[column != "no capsules" :]]
    named = f"{one['name']}: " if one in others else ""
    spread = "" if one["sd"] is None else f" +- {one['sd'] * 100:.2f}"
    words = [f"{named}{one['mean'] * 100:.2f}{spread}"]
    if "difference" in one:
        low, high = one["interval"]
        apart = f"{one['difference'] * 100:+.2f} ({low * 100:+.2f} to {high * 100:+.2f})"
        words.append(apart if low <= 0 <= high else f"**{apart}**")
    if len(one["each"]) != row["of"]:
        words.append(f"{len(one['each'])} of {row['of']}")
    return ", ".join(words)
