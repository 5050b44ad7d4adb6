"""Tables: results as plain numbers, and Markdown tables of them. This module doesn't import torch."""

import json
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import fmean, stdev

import pandas as pd

from experiments.statistics import paired
from graphcaps.atomic import write_text
from graphcaps.errors import expect

RESULTS = Path(__file__).parent / "results"


def write(name: str, result: dict, folder: Path) -> str:
    """Write a result to ``NAME.json`` and its table to ``NAME.md``. Return the table."""
    text = markdown(result)
    write_text(folder / f"{name}.json", json.dumps(result, indent=1) + "\n")
    write_text(folder / f"{name}.md", text + "\n")
    return text


def read(name: str) -> dict:
    """The committed result of an experiment; raise ``InputError`` if there is none."""
    path = RESULTS / f"{name}.json"
    expect(path.is_file(), "results", f"{path.name} in {RESULTS}", "none", f"Run: python -m experiments {name}")
    return json.loads(path.read_text(encoding="utf-8"))


def markdown(result: dict) -> str:
    """The table of a result. The kind of table depends on the entries of the result."""
    kinds: dict[str, Callable[[dict], str]] = {
        "plan": images,
        "parts": graphs,
        "columns": overview,
        "strength": pruning,
        "relations": relations,
        "labels": labels,
        "known": known,
        "defaults": defaults,
        "interests": interests,
    }
    return next(made(result) for kind, made in kinds.items() if kind in result)


# Numbers


def row(network: str, fits: Sequence[dict], chosen: Sequence[dict], test: Sequence[float] | None = None) -> dict:
    """A network's row of a table.

    Args:
        fits: results of ``run.fit``, from trainings with the chosen settings.
        chosen: the chosen settings, one for all trainings or one per fold.
        test: test scores in [0, 1]; default: those of ``fits``.
    """
    test = [fit["test"] for fit in fits] if test is None else test
    made = {
        "name": network,
        "test_mean": fmean(test),
        "test_sd": spread(test)["sd"],
        "test": [*test],
        "validation": fmean(fit["val_accuracy"] for fit in fits),
        "parameters": max(fit["parameters"] for fit in fits),
        "epochs": fmean(fit["epoch"] for fit in fits),
        "seconds": fmean(fit["seconds"] for fit in fits),
        "settings": [*chosen],
        "chosen": dict(Counter(map(settings_text, chosen)).most_common()),
    }
    if "information" in fits[0]:  # how well the couplings of each layer reveal the factors of edges
        layers = enumerate(zip(*(fit["information"] for fit in fits), strict=True), 1)
        made["recovered"] = {f"layer {n}": spread(each) for n, each in layers}
        made["concentration"] = [fit["concentration"] for fit in fits]
    return made | ({"picture": fits[0]["picture"]} if "picture" in fits[0] else {})


def rows(trained: dict[str, tuple[dict, list[dict]]]) -> dict[str, dict]:
    """A ``row`` for each network in the result of ``run.choose_and_test``."""
    return {network: row(network, fits, [settings]) for network, (settings, fits) in trained.items()}


def spread(values: Sequence[float]) -> dict:
    """Mean, standard deviation (None for one value), and the values."""
    return {"mean": fmean(values), "sd": stdev(values) if len(values) > 1 else None, "each": [*values]}


def margins(network: str, rows: dict[str, dict]) -> dict[str, dict]:
    """Mean and standard error of the paired differences between a network and each of the others."""
    made = {}
    for other in (other for other in rows if other != network):
        lead = spread([a - b for a, b in zip(rows[network]["test"], rows[other]["test"], strict=True)])
        error = None if lead["sd"] is None else lead["sd"] / len(lead["each"]) ** 0.5
        made[f"{network} over {other}"] = {"mean": lead["mean"], "standard_error": error}
    return made


# Text


def settings_text(settings: dict) -> str:
    """
    >>> settings_text({"width": 16, "weight_decay": 5e-4, "heads": "own", "unit_votes": True})
    'width 16, weight decay 0.0005, heads own, unit votes'
    """
    words = {name: value if isinstance(value, str) else f"{value:g}" for name, value in settings.items()}
    return ", ".join(name.replace("_", " ") + f" {word}" * (settings[name] is not True) for name, word in words.items())


def protocol(counted: str, settings: int, how: str, repeated: bool) -> str:
    """A description of the trainings behind a table, and of the choice of settings and epoch."""
    spread = ", mean ± standard deviation" * repeated
    chosen = f"Settings: of {settings} for each, the one with the {how}"
    return f"{counted}{spread}. {chosen}. Epoch: the lowest validation loss."


def counted(number: int, one: str) -> str:
    return f"{number} {one}{'s' * (number != 1)}"


def percent(value: float, spread: float | None, sign: str = "") -> str:
    return f"{value * 100:{sign}.2f}" + ("" if spread is None else f"±{spread * 100:.2f}")


def interval(gap: float, low: float, high: float) -> str:
    return f"{gap * 100:+.2f} ({low * 100:+.2f} to {high * 100:+.2f})"


def lines(titles: str, rows: Sequence[Sequence[object]]) -> str:
    """A Markdown table.

    >>> print(lines(" | a", [["b", 1]]))
    | | a |
    |---|---|
    | b | 1 |
    """
    cells = [titles.split(" | "), *rows]
    head, *body = ["|" + "".join(f" {cell} |" if cell != "" else " |" for cell in row) for row in cells]
    return "\n".join([head, "|" + "---|" * len(cells[0]), *body])


def _score(score: dict) -> str:
    return f"{score['mean']:.3f}" + (f"±{score['sd']:.3f}" if score["sd"] is not None else "")


# Tables


def images(results: dict) -> str:
    """A row per network of a plan.

    Accuracies are in %, mean ± sd over seeds. Differences are in points, with their 95 % interval.
    """
    titles, rows = ["network", "parameters", "seeds"], []
    for name, called in results["images"].items():
        count = results["rows"][0]["images"][name]["count"]
        titles += [f"{called} accuracy ({count:,})", f"against {results['against']}", "McNemar p"]
    for row in results["rows"]:
        seeds = pd.DataFrame(row["seeds"])
        cells = [row["name"], f"{row['parameters']:,}", len(seeds)]
        for name in results["images"]:
            cells += _accuracies(row["images"][name])
        cells += [f"{seeds[key].mean():,.0f}" for key in ("seconds", "images_per_second")]
        routed = row["settings"].get("routing") != "uniform" and row["seeds"][0]["capsules"] is not None
        rows.append([*cells, *(_capsules([*seeds["capsules"]]) if routed else ["-"] * 4)])
    return lines(" | ".join([*titles, "seconds", "images/s", "dead", "starved", "entropy", "away"]), rows)


def _accuracies(image_set: dict) -> list[str]:
    accuracy = percent(image_set["mean"], image_set["sd"])
    if "difference" not in image_set:
        return [accuracy, "-", "-"]
    chances = [f"{p:.2g}" for p in image_set["mcnemar"]]
    if len(chances) > 5:
        chances = [f"{min(image_set['mcnemar']):.2g} to {max(image_set['mcnemar']):.2g}"]
    return [accuracy, interval(image_set["difference"], *image_set["interval"]), ", ".join(chances)]


def _capsules(seeds: list[list[dict]]) -> list[str]:
    """For each layer, means over the seeds: dead and starved capsules, entropy, and the share of unequal couplings."""
    layers = pd.concat(map(pd.DataFrame, seeds)).groupby(level=0).mean()
    of = " of " + layers["capsules"].map("{:,.0f}".format)
    parts = [layers[key].map("{:,.1f}".format).str.removesuffix(".0") + of for key in ("dead", "starved")]
    parts += [layers[key].map("{:.1%}".format) for key in ("entropy", "away")]
    return [", ".join(part) for part in parts]


def graphs(result: dict) -> str:
    """For each part of a task on graphs: a table, the margins between networks, and the protocol."""
    spent = f"{result['minutes']:.1f} min in {result['processes']} processes of one thread"
    parts = [f"`{result['command']}`, {spent}:"]
    for part in result["parts"]:
        parts += [f"{part['factors']} factors:"] if "factors" in part else []
        rows = []
        for each in part["rows"]:
            settings, times = next(iter(each["chosen"].items()))
            settings += f" ({times} of {sum(each['chosen'].values())} folds)" * (len(each["chosen"]) > 1)
            mean, *sd = percent(each["test_mean"], each["test_sd"]).partition("±")
            cells = [each["name"], "".join([f"**{mean}**", *sd]), f"{each['validation'] * 100:.2f}"]
            rows.append([*cells, f"{each['parameters']:,}", f"{each['epochs']:.0f}", settings])
        parts.append(lines(f" | test {result['measure']} | validation | parameters | epochs | settings", rows))
        leads = (f"{name} {percent(*lead.values(), '+')}" for name, lead in part["margins"].items())
        known = "".join(
            f" {each['name'].capitalize()}: {_recovered(each)}." for each in part["rows"] if "recovered" in each
        )
        if "known" in part:
            accuracy, score = part["known"]["accuracy"], part["known"]["score"]
            known += " Belief propagation with the generator's probabilities has micro-F1 "
            known += f"{percent(accuracy['mean'], accuracy['sd'])}, information {_score(score)}."
        parts.append(f"Margins and their standard errors, points: {'; '.join(leads)}.{known} {part['protocol']}")
    return "\n\n".join(parts)


def _recovered(row: dict) -> str:
    layers = [f"{_score(score)} in {where}" for where, score in row["recovered"].items()]
    return f"adjusted mutual information of couplings and true factors: {', '.join(layers)}"


def relations(result: dict) -> str:
    """A row per graph and network: its score in the task, and how well couplings reveal the kinds of edges."""
    rows, before = [], None
    for row in result["relations"]:
        task = percent(row["test_mean"], row["test_sd"]) if "test_mean" in row else "-"
        states = [row.get(state) or {} for state in ("trained", "untrained")]
        scores = [of.get(key) for key in ("information", "unseen") for of in states]
        del scores[3]  # untrained networks have seen no node
        texts = [_score(score) if score else "-" for score in scores]
        rows.append([row["data"] * (row["data"] != before), row["name"], task, *texts, *(row.get("chosen") or "-")])
        before = row["data"]
    scores = "information | untrained | at no training node"
    return f"`{result['command']}`:\n\n{lines(f'graph | network | task | {scores} | settings', rows)}"


def labels(result: dict) -> str:
    """A row per graph and per way to read classes, and a column per network: micro-F1, and the lead of beliefs."""
    frame, rows = pd.DataFrame(result["labels"]), []
    names = [*frame["name"].unique()]
    for (data, heads), each in frame.groupby(["data", "heads"], sort=False):
        each = each.set_index("name")
        ahead = paired(each["test"]["beliefs"], each["test"]["uniform"])
        scores = [percent(*each.loc[name, ["test_mean", "test_sd"]]) if name in each.index else "-" for name in names]
        couplings = _score(spread(each["couplings"]["beliefs"]))
        rows.append([data, heads, *scores, interval(*ahead) if ahead else "-", couplings])
    titles = " | ".join(["graph", "factors", *names, "ahead of uniform", "information"])
    return f"`{result['command']}`:\n\n{lines(titles, rows)}"


def known(result: dict) -> str:
    """A row per graph and share of known nodes, and a column per method: micro-F1."""
    frame, rows = pd.DataFrame(result["known"]), []
    names = [*frame["name"].unique()]
    for (data, share), each in frame.groupby(["data", "share"], sort=False):
        scores = {name: spread(test) for name, test in zip(each["name"], each["test"], strict=True)}
        cells = (percent(scores[name]["mean"], scores[name]["sd"]) if name in scores else "-" for name in names)
        rows.append([data, f"{share:.0%}", *cells])
    return f"`{result['command']}`:\n\n{lines(' | '.join(['graph', 'known', *names]), rows)}"


def defaults(result: dict) -> str:
    """A row per graph and layout, and a column per routing: the test score, and its difference to equal couplings."""
    frame, rows = pd.DataFrame(result["defaults"]), []
    for where, each in frame.groupby(["data", "layout"], sort=False):
        uniform, cells = each.set_index("name")["test"]["uniform"], []
        for row in each.itertuples():
            overlap = 1 / 9 if row.layout == "readout" else 0.0  # ten folds
            gap = paired(row.test, uniform, overlap) if row.name != "uniform" else None
            cells.append(percent(row.test_mean, row.test_sd) + (f", {interval(*gap)}" if gap else ""))
        rows.append([*where, *cells])
    return f"`{result['command']}`:\n\n{lines(' | '.join(['graph', 'layout', *frame['name'].unique()]), rows)}"


def interests(result: dict) -> str:
    """A row per network: Recall@50 in %, and the chosen settings."""
    rows = [
        [row["name"], percent(row["test_mean"], row["test_sd"]), percent(row["validation"], None), *row["chosen"]]
        for row in result["interests"]
    ]
    return f"`{result['command']}`:\n\n{lines(' | Recall@50 | validation | settings', rows)}"


def overview(results: dict, columns: Sequence[str] = ()) -> str:
    """A row per task, and a column per routing, or only the given columns.

    A cell has the mean and standard deviation in %, and the difference to uniform in points with its 95 % interval. The
    difference is bold if 0 is outside the interval. "-" means that there is no such network.
    """
    columns, rows = columns or results["columns"], []
    for row in results["rows"]:
        cells = [row["cells"].get(column) for column in columns]
        texts = ["-" if some is None else "<br>".join(_cell(one, row) for one in some) for some in cells]
        title = row["title"] + (f", {row['measure']}" if row["measure"] != "accuracy" else "")
        rows.append([title, f"{row['of']} {row['unit']}", *texts])
    return lines(" | ".join(["task", "of", *columns]), rows)


def _cell(one: dict, row: dict) -> str:
    # Name the second network of a column, and every network without capsules.
    named = [each for column, cells in row["cells"].items() for each in (cells or [])[column != "no capsules" :]]
    words = [f"{one['name']}: " * (one in named) + percent(one["mean"], one["sd"])]
    if "difference" in one:
        low, high = one["interval"]
        gap = interval(one["difference"], low, high)
        words.append(gap if low <= 0 <= high else f"**{gap}**")
    return ", ".join(words)


def pruning(result: dict) -> str:
    """A row per number of edges that a child keeps, with the accuracy of the controls."""
    about = f"{result['model']} on {result['dataset']}, strength from {result['train_images']:,} images"
    rows = []
    for row in result["rows"]:
        best, drawn, controls = row["strongest"], [score["test_accuracy"] for score in row["random"]], ["-", "-"]
        if drawn:
            controls = [f"{fmean(drawn):.2%} ({min(drawn):.2%} to {max(drawn):.2%})"]
            controls += [f"{row['weakest']['test_accuracy']:.2%}"]
        wrong = f"{result['test_images'] - best['test_correct']:,} of {result['test_images']:,}"
        accuracies = [f"{best['val_accuracy']:.2%}", f"{best['test_accuracy']:.2%}"]
        rows.append([row["k"] or "all", row["edges"], *accuracies, wrong, *controls])
    titles = "edges per child | edges | validation accuracy | test accuracy | wrong | test, random | test, weakest"
    return f"`{result['command']}`: {about}\n\n{lines(titles, rows)}"


def transformed(folder: Path) -> str:
    """A row per transform of test images, from the files of ``graphcaps evaluate --on``."""
    rows = []
    for name in ("rotated", "shifted", "noisy", "scrambled"):
        result = json.loads((folder / f"{name}.json").read_text())
        cells = [f"{row['name']}: {100 * row['accuracy']:.2f} ({row['winning_score']:.2f})" for row in result["rows"]]
        cells[result["clean"]] = f"**{cells[result['clean']]}**"
        rows.append([name, result["says"], ", ".join(cells)])
    return lines("test images | severity | accuracy, % (mean winning score); bold: as they are", rows)
