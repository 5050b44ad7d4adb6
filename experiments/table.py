"""Results as plain numbers, and Markdown tables of them. This module doesn't import torch."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from statistics import fmean, stdev

from experiments.statistics import paired
from graphcaps.errors import expect

RESULTS = Path(__file__).parent / "results"


def read(name: str) -> dict:
    """The committed result of an experiment; raise ``InputError`` if there is none."""
    path = RESULTS / f"{name}.json"
    expect(path.is_file(), "results", f"{path.name} in {RESULTS}", "none", f"Run: python -m experiments {name}")
    return json.loads(path.read_text(encoding="utf-8"))


def table(rows: Iterable[dict[str, object]], titles: Sequence[str] = (), index: int = 0) -> str:
    """A Markdown table.

    Args:
        rows: the cells of each row by their titles. A missing cell is "-".
        titles: the columns to show; default: all.
        index: rows with the same first ``index`` cells are merged into one.

    >>> print(table([{"": "b", "x": 1}, {"": "b", "y": 2}], index=1))
    | | x | y |
    |---|---|---|
    | b | 1 | 2 |
    """
    merged: dict[tuple, dict[str, object]] = {}
    for number, row in enumerate(rows):
        merged.setdefault(tuple(row.values())[:index] or (number,), {}).update(row)
    titles = titles or [*dict.fromkeys(title for row in merged.values() for title in row)]
    cells = [titles, *([row.get(title, "-") for title in titles] for row in merged.values())]
    head, *body = ["|" + "".join(f" {cell} |" if cell != "" else " |" for cell in row) for row in cells]
    return "\n".join([head, "|" + "---|" * len(titles), *body])


# Numbers


def row(network: str, fits: Sequence[dict], chosen: Sequence[dict]) -> dict:
    """A network's row of a result.

    Args:
        fits: results of trainings with the chosen settings. Methods that aren't trained have only a part of them. A
            dict of numbers in the results becomes a dict of their ``spread``.
        chosen: the chosen settings, one for all trainings or one per fold.
    """
    numbers: dict = {"name": network}
    if "test" in fits[0]:
        test = spread([fit["test"] for fit in fits])
        numbers |= {"test_mean": test["mean"], "test_sd": test["sd"], "test": test["each"]}
    if "epoch" in fits[0]:
        numbers |= {
            "validation": fmean(fit["val_accuracy"] for fit in fits),
            "parameters": max(fit["parameters"] for fit in fits),
            "epochs": fmean(fit["epoch"] for fit in fits),
            "seconds": fmean(fit["seconds"] for fit in fits),
            "settings": [*chosen],
            "chosen": dict(Counter(map(settings_text, chosen)).most_common()),
        }
    if "picture" in fits[0]:
        numbers["picture"] = fits[0]["picture"]
    for key, measures in fits[0].items():
        if isinstance(measures, dict) and key != "picture":
            numbers[key] = {name: spread([fit[key][name] for fit in fits]) for name in measures}
    return numbers


def spread(values: Sequence[float]) -> dict:
    """Mean, standard deviation (None for one value), and the values."""
    return {"mean": fmean(values), "sd": stdev(values) if len(values) > 1 else None, "each": [*values]}


# Text


def cells(rows: Iterable[dict]) -> Iterator[dict[str, object]]:
    """The cells of rows that ``row`` made, after those of their case."""
    for row in rows:
        keys = [*row]
        texts: dict[str, object] = {key: row[key] for key in keys[: keys.index("name")]} | {"": row["name"]}
        if "test" in row:
            texts["test"] = percent(row["test_mean"], row["test_sd"])
        for key in (key for key in row if isinstance(row[key], dict) and key not in ("chosen", "picture")):
            texts |= {f"{key}, {name}": score(numbers) for name, numbers in row[key].items()}
        if "epochs" in row:
            texts |= {"validation": percent(row["validation"]), "parameters": f"{row['parameters']:,}"}
            texts |= {"epochs": f"{row['epochs']:.0f}", "settings": settings(row)}
        yield texts


def settings(row: dict) -> str:
    """The chosen settings; if they differ between folds, the most frequent ones, and in how many folds."""
    (text, times), folds = next(iter(row["chosen"].items())), sum(row["chosen"].values())
    return text + f" ({times} of {folds} folds)" * (folds > times)


def settings_text(settings: dict) -> str:
    """
    >>> settings_text({"width": 16, "weight_decay": 5e-4, "heads": "own", "unit_votes": True})
    'width 16, weight decay 0.0005, heads own, unit votes'
    """
    words = {name: value if isinstance(value, str) else f"{value:g}" for name, value in settings.items()}
    return ", ".join(name.replace("_", " ") + f" {word}" * (settings[name] is not True) for name, word in words.items())


def percent(value: float, sd: float | None = None) -> str:
    return f"{value * 100:.2f}" + ("" if sd is None else f"±{sd * 100:.2f}")


def score(numbers: dict) -> str:
    """The mean and standard deviation of a ``spread``, as shares."""
    return f"{numbers['mean']:.3f}" + (f"±{numbers['sd']:.3f}" if numbers["sd"] is not None else "")


def interval(gap: float, low: float, high: float) -> str:
    return f"{gap * 100:+.2f} ({low * 100:+.2f} to {high * 100:+.2f})"


def lead(scores: Sequence[float], others: Sequence[float], overlap: float = 0.0) -> str:
    """The ``interval`` of paired differences; "-" for fewer than two pairs."""
    gap = paired(scores, others, overlap)
    return "-" if gap is None else interval(*gap)
