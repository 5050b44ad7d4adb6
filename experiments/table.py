"""What a comparison found, as plain numbers and as the table that people read. Imports no torch."""

from __future__ import annotations

from statistics import fmean, stdev

import numpy as np

from ..errors import GraphcapsError
from .plan import Plan
from .statistics import difference, mcnemar

COUNTS, SHARES = ("dead", "starved"), ("entropy", "away")  # of a layer's capsules, and of its couplings


def summary(plan: Plan, found: dict[tuple[str, int], dict]) -> dict:
    """All that was measured so far, and each row against one.

    Returns:
        ``plan``; ``images``, the sets of images and their parts by name with what they are called; ``rows``, each with
        its settings, its seeds' numbers, and of each set of images ``mean`` and ``sd`` of the accuracies in [0, 1]
        (``sd`` is None of one seed) and, but for the row the others are held against, ``difference`` with its
        ``interval`` and McNemar's p, of the seeds that both have; ``asked`` and ``trained``, numbers of trainings.
    """
    named = {"test": "test"}
    for (network, seed), cell in found.items():
        for name, called in cell["named"].items():
            known = named.setdefault(name, called)
            wanted = f"images of {known}, as others"
            then = "Delete compared.json in the folders of one kind, and run this again"
            if known != called:
                raise GraphcapsError(f"{network}, seed {seed}: expected {wanted}, got {called}. {then}")
    sets, rows = list(named), []
    for row in plan.rows:
        seeds = [seed for seed in plan.seeds if (row.name, seed) in found]
        if not seeds:
            continue
        cells = [found[row.name, seed] for seed in seeds]
        shared = [seed for seed in seeds if (plan.against, seed) in found] if row.name != plan.against else []
        pairs = [(found[row.name, seed], found[plan.against, seed]) for seed in shared]
        rows.append(
            {
                "name": row.name,
                "settings": row.settings,
                "command": cells[0]["result"]["command"],
                "parameters": cells[0]["result"]["parameters_without_decoder"],
                "seeds": [_numbers(seed, cell, sets) for seed, cell in zip(seeds, cells, strict=True)],
                "images": {name: _images(name, cells, pairs) for name in sets},
            }
        )
    one = next(iter(found.values()))["result"]
    made_with = {key: one[key] for key in ("device", "threads", "precision") if key in one}
    about = {"plan": plan.name, "against": plan.against, "made_with": made_with, "images": named}
    return {**about, "asked": len(plan.cells), "trained": len(found), "rows": rows}


def _numbers(seed: int, cell: dict, sets: list[str]) -> dict:
    result = cell["result"]
    return {
        "seed": seed,
        "accuracy": {name: float(cell["right"][name].mean()) for name in sets},
        "wrong": {name: int((~cell["right"][name]).sum()) for name in sets},
        "val_accuracy": result["val_accuracy"],
        "best_epoch": result["best_epoch"],
        "seconds": result["seconds"],
        "images_per_second": cell["images_per_second"],
        "capsules": cell["capsules"],
    }


def _images(name: str, cells: list[dict], pairs: list[tuple[dict, dict]]) -> dict:
    right = np.stack([cell["right"][name] for cell in cells])  # (S, N)
    accuracies = right.mean(axis=1).tolist()
    found = {"count": right.shape[1], "mean": fmean(accuracies), "sd": stdev(accuracies) if len(cells) > 1 else None}
    if pairs:
        ours, theirs = (np.stack([pair[k]["right"][name] for pair in pairs]) for k in (0, 1))
        apart, low, high = difference(ours, theirs)
        each = [mcnemar(*both) for both in zip(ours, theirs, strict=True)]
        found |= {"difference": apart, "interval": [low, high], "mcnemar": each}
    return found


def as_markdown(results: dict) -> str:
    """One line per network. Accuracies in %, mean +- sd over seeds, on so many images; differences in points with their
    95 % interval."""
    sets = results["images"]
    titles = ["network", "parameters", "seeds"]
    for name, called in sets.items():
        count = results["rows"][0]["images"][name]["count"]
        titles += [f"{called} accuracy ({count:,})", f"against {results['against']}", "McNemar p"]
    titles += ["seconds", "images/s", *COUNTS, *SHARES]
    lines = ["| " + " | ".join(titles) + " |", "|" + "---|" * len(titles)]
    for row in results["rows"]:
        words = [row["name"], f"{row['parameters']:,}", str(len(row["seeds"]))]
        for name in sets:
            words += _said(row["images"][name])
        words += [f"{fmean(seed[key] for seed in row['seeds']):,.0f}" for key in ("seconds", "images_per_second")]
        counted = [None if row["settings"].get("routing") == "uniform" else seed["capsules"] for seed in row["seeds"]]
        lines.append("| " + " | ".join([*words, *_capsules(counted)]) + " |")
    return "\n".join(lines)


def _said(images: dict) -> list[str]:
    """
    >>> _said({"mean": 0.995, "sd": 0.0006, "difference": -0.001, "interval": [-0.002, 0.0], "mcnemar": [0.04, 0.5]})
    ['99.50 +- 0.06', '-0.10 (-0.20 to +0.00)', '0.04, 0.5']
    """
    spread = "" if images["sd"] is None else f" +- {images['sd'] * 100:.2f}"
    accuracy = f"{images['mean'] * 100:.2f}{spread}"
    if "difference" not in images:
        return [accuracy, "-", "-"]
    low, high = images["interval"]
    margin = f"{images['difference'] * 100:+.2f} ({low * 100:+.2f} to {high * 100:+.2f})"
    chances = [f"{p:.2g}" for p in images["mcnemar"]]
    if len(chances) > 5:
        chances = [f"{min(images['mcnemar']):.2g} to {max(images['mcnemar']):.2g}"]
    return [accuracy, margin, ", ".join(chances) or "-"]


def _count(mean: float) -> str:
    """
    >>> _count(1577.6667), _count(2.0)
    ('1,577.7', '2')
    """
    return f"{mean:,.1f}".removesuffix(".0")


def _capsules(counted: list[list[dict] | None]) -> list[str]:
    """Means over the seeds, of each layer from below: dead and starved of its capsules, entropy of undecided, couplings
    away from uniform.

    >>> layer = {"dead": 0, "starved": 2, "capsules": 26, "entropy": 0.9, "away": 0.75}
    >>> _capsules([[layer], [layer | {"starved": 3}]])
    ['0 of 26', '2.5 of 26', '90.0%', '75.0%']
    """
    if None in counted:
        return ["-"] * 4
    layers = [{key: fmean(one[key] for one in seeds) for key in seeds[0]} for seeds in zip(*counted, strict=True)]
    counts = [", ".join(f"{_count(layer[key])} of {layer['capsules']:,.0f}" for layer in layers) for key in COUNTS]
    return counts + [", ".join(f"{layer[key]:.1%}" for layer in layers) for key in SHARES]
