"""The rows and columns of the table: which plan or example each task is, and which of its networks stands where.

Imports no torch.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass

from ..errors import expect

COLUMNS = ("uniform", "dynamic", "nobody", "spherical", "attention", "EM", "no capsules")


@dataclass(frozen=True)
class Task:
    """Something to be learned, by several networks.

    Args:
        name: as ``--only`` takes it.
        rows: of the table, each with the images that it is about: a name among those of ``compare.table.summary``.
            Of graphs: one row, about nothing more.
        columns: which of the task's networks stand in each column; a column that isn't here doesn't exist for it.
        plan: of ``graphcaps compare``, for images.
        example: of ``graphcaps example``, for graphs.
        factors: how many latent factors the graphs of example factors have, or motifs those of example motifs.
    """

    name: str
    rows: dict[str, str]
    columns: dict[str, tuple[str, ...]]
    plan: str = ""
    example: str = ""
    factors: int = 0

    @property
    def command(self) -> str:
        """The command that makes this task's numbers alone."""
        if self.plan:
            return f"graphcaps compare {self.plan}"
        return f"graphcaps example {self.example}" + f" --factors {self.factors}" * bool(self.factors)


_ROUTINGS: dict[str, tuple[str, ...]] = {name: (name,) for name in COLUMNS[:-1]}
_IMAGES = {**_ROUTINGS, "no capsules": ("CNN",)}


def _on_graphs(*without: str) -> dict[str, tuple[str, ...]]:
    return {"uniform": ("uniform",), "dynamic": ("dynamic",), "spherical": ("capsules",), "no capsules": without}


_FACTORS = _on_graphs("GCN", "GAT") | {"spherical": ("capsules", "mutual")}

TASKS = (
    Task("mnist", {"MNIST": "test"}, _IMAGES, plan="matters-mnist"),
    Task("pairs", {"two digits": "test"}, _ROUTINGS, plan="matters-pairs"),
    Task(
        "places",
        {
            "digits in 40 x 40, moved as far as in training": "affnist within",
            "the same digits, moved further than in training": "affnist beyond",
        },
        _IMAGES,
        plan="matters-places",
    ),
    Task("anywhere", {"all of them, trained on digits at all places": "affnist"}, _IMAGES, plan="matters-anywhere"),
    Task("cora", {"Cora": ""}, _on_graphs("GCN", "GAT"), example="cora"),
    Task("mutag", {"MUTAG": ""}, _on_graphs("mean", "attention"), example="mutag"),
    Task("proteins", {"PROTEINS": ""}, _on_graphs("mean", "attention"), example="proteins"),
    Task("factors-4", {"4 latent factors": ""}, _FACTORS, example="factors", factors=4),
    Task("factors-8", {"8 latent factors": ""}, _FACTORS, example="factors", factors=8),
    Task("motifs-4", {"which of 4 motifs": ""}, _on_graphs("GCN", "GAT"), example="motifs", factors=4),
    Task("motifs-6", {"which of 6 motifs": ""}, _on_graphs("GCN", "GAT"), example="motifs", factors=6),
)


def tasks(only: Sequence[str] = ()) -> list[Task]:
    """The tasks of these names, all where there are none.

    Raises:
        InputError: no such task.

    >>> [task.name for task in tasks(["factors-4", "cora"])]
    ['cora', 'factors-4']
    """
    names = [task.name for task in TASKS]
    for name in only:
        close = difflib.get_close_matches(name, names, n=1)
        hint = f"Did you mean {close[0]}?" if close else ""
        expect(name in names, "only", f"one of {', '.join(names)}", repr(name), hint)
    return [task for task in TASKS if not only or task.name in only]
