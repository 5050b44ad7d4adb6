"""Tables: what was measured as plain numbers, and the Markdown that is made of them. Imports no torch."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import fmean, stdev

import numpy as np

from experiments.statistics import difference, mcnemar, paired
from graphcaps.atomic import write_text
from graphcaps.errors import expect

RESULTS = Path(__file__).parent / "results"
COUNTS, SHARES = ("dead", "starved"), ("entropy", "away")  # of a layer's capsules, and of its couplings


def write(name: str, found: dict, folder: Path) -> str:
    """Write ``NAME.json`` and, made of it, ``NAME.md``; return the latter's text."""
    text = markdown(found)
    write_text(folder / f"{name}.json", json.dumps(found, indent=1) + "\n")
    write_text(folder / f"{name}.md", text + "\n")
    return text


def read(name: str) -> dict:
    """What was measured of an experiment and is committed.

    Raises:
        InputError: nothing is.
    """
    path = RESULTS / f"{name}.json"
    expect(path.is_file(), "results", f"{path.name} in {RESULTS}", "none", f"Run: python -m experiments {name}")
    return json.loads(path.read_text(encoding="utf-8"))


def markdown(found: dict) -> str:
    """The table of a result, by what it holds."""
    kinds: dict[str, Callable[[dict], str]] = {
        "plan": images,
        "parts": graphs,
        "columns": overview,
        "strength": pruning,
        "labellings": strokes,
        "drawings": drawings,
        "relations": relations,
        "labels": labels,
        "defaults": defaults,
    }
    return next(made(found) for kind, made in kinds.items() if kind in found)


# Numbers


def row(network: str, fits: Sequence[dict], test: Sequence[float], chosen: Sequence[dict]) -> dict:
    """One network of a table.

    Args:
        network: its name.
        fits: its trainings with the settings that were chosen, see ``run.fit``.
        test: test accuracies, in [0, 1]: one per training or, where several belong together, their means.
        chosen: the settings; one choice, or one per fold.

    Returns:
        all of it, plain; ``test_sd`` is None of one test accuracy. Where fits have ``information``, how well each
        layer's couplings give away the factor of an edge, also its spread as ``recovered``, and ``concentration``,
        kappa of each fit's layers.
    """
    found = {
        "name": network,
        "test_mean": fmean(test),
        "test_sd": stdev(test) if len(test) > 1 else None,
        "test": [*test],
        "validation": fmean(fit["val_accuracy"] for fit in fits),
        "parameters": max(fit["parameters"] for fit in fits),
        "epochs": fmean(fit["epoch"] for fit in fits),
        "seconds": fmean(fit["seconds"] for fit in fits),
        "settings": [*chosen],
        "chosen": dict(Counter(map(settings_text, chosen)).most_common()),
    }
    if "information" in fits[0]:
        layers = enumerate(zip(*(fit["information"] for fit in fits), strict=True), 1)
        found["recovered"] = {f"layer {n}": spread(each) for n, each in layers}
        found["concentration"] = [fit["concentration"] for fit in fits]
    return found


def spread(values: Sequence[float]) -> dict:
    """Mean and standard deviation, None of one value, and the values.

    >>> spread([0.25])
    {'mean': 0.25, 'sd': None, 'each': [0.25]}
    """
    return {"mean": fmean(values), "sd": stdev(values) if len(values) > 1 else None, "each": [*values]}


def margin(ours: Sequence[float], theirs: Sequence[float]) -> dict:
    """Mean of the differences, pair by pair, and its standard error, None of one pair.

    >>> margin([0.75, 0.5], [0.25, 0.5])
    {'mean': 0.25, 'standard_error': 0.25}
    """
    differences = [a - b for a, b in zip(ours, theirs, strict=True)]
    error = stdev(differences) / len(differences) ** 0.5 if len(differences) > 1 else None
    return {"mean": fmean(differences), "standard_error": error}


def margins(network: str, rows: dict[str, dict]) -> dict[str, dict]:
    """``margin`` of one row over each of the others."""
    others = [other for other in rows if other != network]
    return {f"{network} over {other}": margin(rows[network]["test"], rows[other]["test"]) for other in others}


def compared(name: str, cells: list[dict], pairs: list[tuple[dict, dict]]) -> dict:
    """A network on one set of images: its accuracies, and its difference to another network of the same seeds.

    Args:
        name: of the set of images, in ``right`` of each cell.
        cells: its trainings, ``right`` (N,) bool.
        pairs: a training of its and one of the other's, per seed that both have.
    """
    right = np.stack([cell["right"][name] for cell in cells])  # (S, N)
    found = {"count": right.shape[1], **spread(right.mean(axis=1).tolist())}
    del found["each"]
    if pairs:
        ours, theirs = (np.stack([pair[k]["right"][name] for pair in pairs]) for k in (0, 1))
        gap, low, high = difference(ours, theirs)
        each = [mcnemar(*both) for both in zip(ours, theirs, strict=True)]
        found |= {"difference": gap, "interval": [low, high], "mcnemar": each}
    return found


# Words


def settings_text(settings: dict) -> str:
    """
    >>> settings_text({"width": 16, "weight_decay": 5e-4, "heads": "own", "unit_votes": True})
    'width 16, weight decay 0.0005, heads own, unit votes'
    """
    words = {name: value if isinstance(value, str) else f"{value:g}" for name, value in settings.items()}
    return ", ".join(name.replace("_", " ") + f" {word}" * (settings[name] is not True) for name, word in words.items())


def counted(number: int, one: str) -> str:
    """
    >>> counted(1, "seed"), counted(20, "seed")
    ('1 seed', '20 seeds')
    """
    return f"{number} {one}{'s' * (number != 1)}"


def percent(value: float, spread: float | None, sign: str = "") -> str:
    """
    >>> percent(0.815, 0.0061), percent(0.005, None, "+")
    ('81.50 +- 0.61', '+0.50')
    """
    return f"{value * 100:{sign}.2f}" + ("" if spread is None else f" +- {spread * 100:.2f}")


def interval(gap: float, low: float, high: float) -> str:
    """
    >>> interval(-0.001, -0.002, 0.0)
    '-0.10 (-0.20 to +0.00)'
    """
    return f"{gap * 100:+.2f} ({low * 100:+.2f} to {high * 100:+.2f})"


def lines(titles: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A Markdown table.

    >>> print(lines(["", "a"], [["b", 1]]))
    | | a |
    |---|---|
    | b | 1 |
    """
    head, *body = ["|" + "".join(f" {cell} |" if cell != "" else " |" for cell in cells) for cells in (titles, *rows)]
    return "\n".join([head, "|" + "---|" * len(titles), *body])


# Tables


def images(results: dict) -> str:
    """Of a plan, one line per network. Accuracies in %, mean +- sd over seeds, on so many images; differences in points
    with their 95 % interval."""
    titles, rows = ["network", "parameters", "seeds"], []
    for name, called in results["images"].items():
        count = results["rows"][0]["images"][name]["count"]
        titles += [f"{called} accuracy ({count:,})", f"against {results['against']}", "McNemar p"]
    for row in results["rows"]:
        cells = [row["name"], f"{row['parameters']:,}", len(row["seeds"])]
        for name in results["images"]:
            cells += _accuracies(row["images"][name])
        cells += [f"{fmean(seed[key] for seed in row['seeds']):,.0f}" for key in ("seconds", "images_per_second")]
        routed = row["settings"].get("routing") != "uniform" and row["seeds"][0]["capsules"] is not None
        usage = _capsules([seed["capsules"] for seed in row["seeds"]]) if routed else ["-"] * 4
        rows.append([*cells, *usage])
    return lines([*titles, "seconds", "images/s", *COUNTS, *SHARES], rows)


def _accuracies(found: dict) -> list[str]:
    accuracy = percent(found["mean"], found["sd"])
    if "difference" not in found:
        return [accuracy, "-", "-"]
    chances = [f"{p:.2g}" for p in found["mcnemar"]]
    if len(chances) > 5:
        chances = [f"{min(found['mcnemar']):.2g} to {max(found['mcnemar']):.2g}"]
    return [accuracy, interval(found["difference"], *found["interval"]), ", ".join(chances)]


def _capsules(seeds: list[list[dict]]) -> list[str]:
    """Means over the seeds, of each layer from below: dead and starved of its capsules, entropy of undecided, couplings
    away from uniform.

    >>> layer = {"dead": 0, "starved": 2, "capsules": 26, "entropy": 0.9, "away": 0.75}
    >>> _capsules([[layer], [layer | {"starved": 3}]])
    ['0 of 26', '2.5 of 26', '90.0%', '75.0%']
    """
    layers = [{key: fmean(each[key] for each in same) for key in same[0]} for same in zip(*seeds, strict=True)]
    number = "{:,.1f}".format
    counts = [
        ", ".join(f"{number(layer[key]).removesuffix('.0')} of {layer['capsules']:,.0f}" for layer in layers)
        for key in COUNTS
    ]
    return counts + [", ".join(f"{layer[key]:.1%}" for layer in layers) for key in SHARES]


def graphs(found: dict) -> str:
    """Of a task on graphs: a table for each of its parts, the margins, and how it was done."""
    spent = f"{found['minutes']:.1f} min in {found['processes']} processes of one thread"
    if "kept" in found:
        spent += f", with {found['kept']} trainings kept from before"
    parts = [f"`{found['command']}`, {spent}:"]
    for part in found["parts"]:
        parts += [f"{part[of]} {of}:" for of in ("factors", "motifs") if of in part]
        rows = []
        for each in part["rows"]:
            settings, times = next(iter(each["chosen"].items()))
            settings += f" ({times} of {sum(each['chosen'].values())} folds)" * (len(each["chosen"]) > 1)
            test = percent(each["test_mean"], each["test_sd"]).partition(" ")
            rows.append(
                [each["name"], f"**{test[0]}**{test[1]}{test[2]}", f"{each['validation'] * 100:.2f}"]
                + [f"{each['parameters']:,}", f"{each['epochs']:.0f}", settings]
            )
        titles = ["", f"test {found['measure']}", "validation", "parameters", "epochs", "settings"]
        over = "; ".join(
            f"{name} {percent(each['mean'], each['standard_error'], '+')}" for name, each in part["margins"].items()
        )
        known = "".join(
            f" {each['name'].capitalize()}: {_recovered(each)}." for each in part["rows"] if "recovered" in each
        )
        known += f" {_known(part['known'])}." if "known" in part else ""
        margins = f"Margins and their standard errors, points: {over}.{known} {part['protocol']}"
        parts += [lines(titles, rows), margins]
    return "\n\n".join(parts)


def _score(score: dict) -> str:
    return f"{score['mean']:.3f}" + (f" +- {score['sd']:.3f}" if score["sd"] is not None else "")


def _recovered(row: dict) -> str:
    """How well a row's couplings give away the factor, or the motif, of an edge.

    >>> _recovered({"recovered": {"layer 1": {"mean": 0.5, "sd": 0.01}, "layer 2": {"mean": 0.25, "sd": None}}})
    'adjusted mutual information of couplings and true factors: 0.500 +- 0.010 in layer 1, 0.250 in layer 2'
    """
    layers = [f"{_score(score)} in {where}" for where, score in row["recovered"].items()]
    return f"adjusted mutual information of couplings and true factors: {', '.join(layers)}"


def _known(known: dict) -> str:
    accuracy, score = known["accuracy"], known["score"]
    found = f"micro-F1 {percent(accuracy['mean'], accuracy['sd'])}, information {_score(score)}"
    return f"Told how the graphs were drawn, belief propagation has {found}"


def relations(found: dict) -> str:
    """A line per graph and network: the task's score, and what couplings say of the kinds of edges."""
    rows, before = [], None
    for row in found["relations"]:
        task = percent(row["test_mean"], row["test_sd"]) if "test_mean" in row else "-"
        trained, untrained = (row.get(state) or {} for state in ("trained", "untrained"))
        order = [(trained, "information"), (untrained, "information"), (trained, "unseen"), (trained, "precision")]
        scores = [_score(of[key]) if key in of else "-" for of, key in (*order, (untrained, "precision"))]
        data = row["data"] if row["data"] != before else ""
        rows.append([data, row["name"], task, *scores, *(row.get("chosen") or {"-": 1})])
        before = row["data"]
    titles = ["graph", "network", "task", "information", "untrained", "at no training node", "precision", "untrained"]
    return f"`{found['command']}`:\n\n{lines([*titles, 'settings'], rows)}"


def labels(found: dict) -> str:
    """A line per graph and way to read classes, a column per network: micro-F1, and how far beliefs are ahead."""
    rows, tasks = [], _by_task(found["labels"], "heads")
    names = dict.fromkeys(row["name"] for row in found["labels"])
    for (data, heads), networks in tasks.items():
        ours = networks["beliefs"]
        ahead = paired(ours["test"], networks["uniform"]["test"])
        cells = [networks.get(name) for name in names]
        scores = [percent(row["test_mean"], row["test_sd"]) if row else "-" for row in cells]
        rows.append([data, heads, *scores, interval(*ahead) if ahead else "-", _score(spread(ours["couplings"]))])
    return f"`{found['command']}`:\n\n{lines(['graph', 'factors', *names, 'ahead of uniform', 'information'], rows)}"


def defaults(found: dict) -> str:
    """A line per graph and layout, a column per routing: its test score, and the difference to equal couplings."""
    rows, tasks = [], _by_task(found["defaults"], "layout")
    for where, routings in tasks.items():
        cells = []
        for name, row in routings.items():
            overlap = 1 / 9 if where[1] == "readout" else 0.0  # of ten folds
            gap = paired(row["test"], routings["uniform"]["test"], overlap) if name != "uniform" else None
            cells.append(percent(row["test_mean"], row["test_sd"]) + (f", {interval(*gap)}" if gap else ""))
        rows.append([*where, *cells])
    return f"`{found['command']}`:\n\n{lines(['graph', 'layout', *routings], rows)}"


def _by_task(rows: list[dict], how: str) -> dict[tuple[str, str], dict[str, dict]]:
    """(data, how) -> name -> row."""
    tasks: dict[tuple[str, str], dict[str, dict]] = {}
    for row in rows:
        tasks.setdefault((row["data"], row[how]), {})[row["name"]] = row
    return tasks


def overview(results: dict, columns: Sequence[str] = ()) -> str:
    """A row per task, a column per routing, or some ``columns`` of it.

    In a cell stand the mean and standard deviation in %, and the difference to uniform in points with its 95 %
    interval, bold where 0 is outside. "-": there is no such network. Empty: not trained yet.
    """
    columns, rows = columns or results["columns"], []
    for row in results["rows"]:
        texts = [
            "-" if some is None else "<br>".join(_cell(one, row) for one in some)
            for some in map(row["cells"].get, columns)
        ]
        title = row["title"] + (f", {row['measure']}" if row["measure"] != "accuracy" else "")
        rows.append([title, f"{row['of']} {row['unit']}", *texts])
    return lines(["task", "of", *columns], rows)


def _cell(one: dict, row: dict) -> str:
    """
    >>> found = {"name": "GAT", "each": [0.5, 0.75], "mean": 0.625, "sd": 0.1768}
    >>> found |= {"difference": 0.125, "interval": [-0.25, 0.5]}
    >>> _cell(found, {"cells": {"no capsules": [found]}, "of": 3})
    'GAT: 62.50 +- 17.68, +12.50 (-25.00 to +50.00), 2 of 3'
    """
    # The name is said where a column has several networks, and always of those without capsules.
    named = [each for column, cells in row["cells"].items() for each in (cells or [])[column != "no capsules" :]]
    words = [f"{one['name']}: " * (one in named) + percent(one["mean"], one["sd"])]
    if "difference" in one:
        low, high = one["interval"]
        gap = interval(one["difference"], low, high)
        words.append(gap if low <= 0 <= high else f"**{gap}**")
    if len(one["each"]) != row["of"]:
        words.append(f"{len(one['each'])} of {row['of']}")
    return ", ".join(words)


def pruning(found: dict) -> str:
    """A line per number of edges that a child keeps, the controls beside it."""
    about = (
        f"`{found['command']}`: {found['model']} on {found['dataset']}, strength from {found['train_images']:,} images"
    )
    titles = [
        "edges per child",
        "edges",
        "validation accuracy",
        "test accuracy",
        "wrong",
        "test, random",
        "test, weakest",
    ]
    rows = []
    for row in found["rows"]:
        best, drawn, controls = row["strongest"], [score["test_accuracy"] for score in row["random"]], ["-", "-"]
        if drawn:
            controls = [f"{fmean(drawn):.2%} ({min(drawn):.2%} to {max(drawn):.2%})"]
            controls += [f"{row['weakest']['test_accuracy']:.2%}"]
        wrong = f"{found['test_images'] - best['test_correct']:,} of {found['test_images']:,}"
        accuracies = [f"{best['val_accuracy']:.2%}", f"{best['test_accuracy']:.2%}"]
        rows.append([row["k"] or "all", row["edges"], *accuracies, wrong, *controls])
    return f"{about}\n\n{lines(titles, rows)}"


def drawings(found: dict) -> str:
    """A line per kind of drawing, the test images as they are first; then how much of what is no digit is answered."""
    test, names = found["test"], ("right", "doubted", "wrong")
    about = (
        f"`{found['command']}`, of `{found['of']}`. % of the first {found['count']} test digits of each kind, and of "
        f"{found['count']} images that show no digit; limits of doubt from validation images"
    )
    whole = [f"all {test['images']:,} test images, as they are", *(f"{100 * test[name]:.1f}" for name in names)]
    rows = [[row["name"], *(f"{100 * row[name]:.1f}" for name in names)] for row in found["drawings"]]
    rest = [[row["name"], f"{100 * row['answered']:.1f}"] for row in found["no_digits"]]
    shown = lines(["drawing", "right", "doubted", "wrong without a doubt"], [whole, *rows])
    return "\n\n".join([about, shown, lines(["no digit", "answered without a doubt"], rest)])


def strokes(found: dict) -> str:
    """A line per labelling of pixels: what it says of strokes, and its lead over as many clusters of positions."""
    first, training, seeds = found["trained"][0], found["training"], {each["seed"] for each in found["trained"]}
    right = [each["test_accuracy"] for each in found["trained"]]
    about = (
        f"`{found['command']}`: {training['epochs']} epochs of {training['train_images']:,} images of "
        f"{training['dataset']}, seeds {min(seeds)} to {max(seeds)}, {first['device']}, "
        f"{counted(first['threads'], 'thread')}, {first['precision']}; test accuracy {min(right):.2%} to "
        f"{max(right):.2%}; strokes of {sum(found['images']):,} test images"
    )
    rows = []
    for row in found["labellings"]:
        numbers = [f"{row['clusters']:.1f}", _score(row["own"]), _score(row["alone"])]
        rows.append([row["network"], row["labels"], row["state"], *numbers, *(f"{gap:+.2f}" for gap in row["digits"])])
    digits = [f"{digit} ({count})" for digit, count in enumerate(found["images"])]
    titles = ["network", "labels", "state", "labels in an image", "information", "of position, as many", *digits]
    return f"{about}\n\n{lines(titles, rows)}"


def trainings(rows: list[dict]) -> str:
    """Of ``graphcaps train``: what each run reached, how long it took, and the command that repeats it."""
    titles = [
        "model",
        "data",
        "epochs",
        "test accuracy (95 % interval)",
        "wrong",
        "parameters",
        "time",
        "device",
        "command",
    ]
    cells = []
    for row in rows:
        low, high = row["test_interval_95"]
        routing = re.search(r"--routing (\w+)", row["command"])
        cells.append(
            [
                row["model"] + (f", {routing[1]}" if routing else ""),
                row["dataset"],
                row["epochs"],
                f"**{row['test_accuracy']:.2%}** ({low:.2%} to {high:.2%})",
                f"{row['test_images'] - row['test_correct']} of {row['test_images']:,}",
                f"{row['parameters']:,}",
                f"{row['seconds'] / 60:.1f} min",
                f"{row['device']}, {counted(row['threads'], 'thread')}, {row['precision']}, engine {row['engine']}",
                f"`{row['command']}` (seed {row['seed']}, commit {row['commit']})",
            ]
        )
    return lines(titles, cells)


def transformed(folder: Path) -> str:
    """Of ``graphcaps evaluate --on`` with transformed test images: a line per transform."""
    rows = []
    for name in ("rotated", "shifted", "noisy", "scrambled"):
        found = json.loads((folder / f"{name}.json").read_text())
        cells = [f"{row['name']}: {100 * row['accuracy']:.2f} ({row['winning_score']:.2f})" for row in found["rows"]]
        cells[found["clean"]] = f"**{cells[found['clean']]}**"
        rows.append([name, found["says"], ", ".join(cells)])
    return lines(["test images", "severity", "accuracy, % (mean winning score); bold: as they are"], rows)


def equivariance(folder: Path) -> str:
    """Of ``graphcaps evaluate --on equivariance``: a line per parameter."""
    found, rows = json.loads((folder / "equivariance.json").read_text()), []
    for name, part in found["parameters"].items():
        values = f"{part['values'][0]} to {part['values'][-1]} {part['unit']}, {len(part['values'])} steps"
        keys = ("moved", "fit", "fit_permuted", "readout", "readout_permuted")
        rows.append([name, values, *(f"{part[key]['mean']:.2f} +- {part[key]['sd']:.2f}" for key in keys)])
    titles = ["parameter", "values", "moved, of the length", "fit", "permuted", "read-out", "permuted"]
    about = "mean +- standard deviation, over images (moved, fit) or classes (read-out)"
    return f"{lines(titles, rows)}\n\n{found['images']:,} images, {about}."
