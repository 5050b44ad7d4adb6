"""What the examples found, as numbers and as the lines they print."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from statistics import fmean, stdev

from .trials import Fit


def row(name: str, fits: Sequence[Fit], test: Sequence[float], chosen: Sequence[dict]) -> dict:
    """One model of a table.

    Args:
        name: of the model.
        fits: its trainings with the settings that were chosen.
        test: test accuracies, in [0, 1]: one per training or, where several belong together, their means.
        chosen: the settings; one choice, or one per fold.
    """
    return {
        "name": name,
        "test_mean": fmean(test),
        "test_sd": stdev(test) if len(test) > 1 else 0.0,
        "test": [*test],
        "validation": fmean(fit.val_accuracy for fit in fits),
        "parameters": max(fit.parameters for fit in fits),
        "epochs": fmean(fit.epoch for fit in fits),
        "seconds": fmean(fit.seconds for fit in fits),
        "settings": [*chosen],
        "chosen": dict(Counter(map(said, chosen)).most_common()),
    }


def margin(ours: Sequence[float], theirs: Sequence[float]) -> dict:
    """Mean of the differences, pair by pair, and its standard error.

    >>> margin([0.75, 0.5], [0.25, 0.5])
    {'mean': 0.25, 'standard_error': 0.25}
    """
    differences = [a - b for a, b in zip(ours, theirs, strict=True)]
    error = stdev(differences) / len(differences) ** 0.5 if len(differences) > 1 else 0.0
    return {"mean": fmean(differences), "standard_error": error}


def said(settings: dict) -> str:
    """
    >>> said({"width": 16, "weight_decay": 5e-4})
    'width 16, weight decay 0.0005'
    """
    return ", ".join(f"{name.replace('_', ' ')} {value:g}" for name, value in settings.items())


def lines(result: dict) -> list[str]:
    """A result of ``run.example`` as a table and what is to be known about it."""
    width = max(len(row["name"]) for row in result["rows"])
    found = [f"{'':{width}}  {'test accuracy, %':>16}  {'validation':>10}  {'parameters':>10}  {'s each':>6}  settings"]
    for row in result["rows"]:
        settings, times = next(iter(row["chosen"].items()))
        of = f" ({times} of {sum(row['chosen'].values())} folds)" if len(row["chosen"]) > 1 else ""
        accuracy = f"{row['test_mean'] * 100:.2f} +- {row['test_sd'] * 100:.2f}"
        found.append(
            f"{row['name']:{width}}  {accuracy:>16}  {row['validation'] * 100:>10.2f}  {row['parameters']:>10,}  "
            f"{row['seconds']:>6.1f}  {settings}{of}"
        )
    for name, over in result["margins"].items():
        found.append(f"{name}: {over['mean'] * 100:+.2f} +- {over['standard_error'] * 100:.2f} points (standard error)")
    spent = f"{result['minutes']:.1f} min in {result['processes']} processes of one thread."
    return [*found, f"{result['protocol']} {spent}"]
