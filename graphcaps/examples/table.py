"""What the examples found, as numbers and as the lines they print."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from statistics import fmean, stdev

from graphcaps.examples.trials import Fit
from graphcaps.trace import RoutingTrace


def row(name: str, fits: Sequence[Fit], test: Sequence[float], chosen: Sequence[dict]) -> dict:
    """One model of a table.

    Args:
        name: of the model.
        fits: its trainings with the settings that were chosen.
        test: test accuracies, in [0, 1]: one per training or, where several belong together, their means.
        chosen: the settings; one choice, or one per fold.

    Returns:
        all of it, plain; ``test_sd`` is None of one test accuracy.
    """
    return {
        "name": name,
        "test_mean": fmean(test),
        "test_sd": stdev(test) if len(test) > 1 else None,
        "test": [*test],
        "validation": fmean(fit.val_accuracy for fit in fits),
        "parameters": max(fit.parameters for fit in fits),
        "epochs": fmean(fit.epoch for fit in fits),
        "seconds": fmean(fit.seconds for fit in fits),
        "settings": [*chosen],
        "chosen": dict(Counter(map(said, chosen)).most_common()),
    }


def spread_of(values: Sequence[float]) -> dict:
    """Mean and standard deviation, None of one value, and the values.

    >>> spread_of([0.25])
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


def margins_of(name: str, rows: dict[str, dict]) -> dict[str, dict]:
    """``margin`` of one row over each of the others."""
    others = [other for other in rows if other != name]
    return {f"{name} over {other}": margin(rows[name]["test"], rows[other]["test"]) for other in others}


def said(settings: dict) -> str:
    """
    >>> said({"width": 16, "weight_decay": 5e-4})
    'width 16, weight decay 0.0005'
    >>> said({"layers": 1, "heads": "own"})
    'layers 1, heads own'
    >>> said({"lr": 0.01, "unit_votes": True})
    'lr 0.01, unit votes'
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


def lines(result: dict) -> list[str]:
    """A result of ``run.example`` as a table, or one for each of its parts, and what is to be known about it."""
    parts, measure = result.get("parts", [result]), result.get("measure", "accuracy")
    found = [line for part in parts for line in (*_table(part, measure), part["protocol"])]
    processes = f"{result['processes']} process{'es' * (result['processes'] != 1)} of one thread"
    found[-1] += f" {result['minutes']:.1f} min in {processes}."
    return found


def _table(part: dict, measure: str) -> list[str]:
    width = max(len(row["name"]) for row in part["rows"])
    found = [f"{part[of]} {of}" for of in ("factors", "motifs") if of in part]
    found += [
        f"{'':{width}}  {f'test {measure}, %':>16}  {'validation':>10}  {'parameters':>10}  {'s each':>6}  settings"
    ]
    for row in part["rows"]:
        settings, times = next(iter(row["chosen"].items()))
        of = f" ({times} of {sum(row['chosen'].values())} folds)" if len(row["chosen"]) > 1 else ""
        accuracy = percent(row["test_mean"], row["test_sd"])
        found.append(
            f"{row['name']:{width}}  {accuracy:>16}  {row['validation'] * 100:>10.2f}  {row['parameters']:>10,}  "
            f"{row['seconds']:>6.1f}  {settings}{of}"
        )
    for name, over in part["margins"].items():
        error = over["standard_error"]
        found.append(f"{name}: {percent(over['mean'], error, '+')} points" + " (standard error)" * (error is not None))
    found += [f"{row['name']}: {information(row)}" for row in part["rows"] if "recovered" in row]
    return [*found, told(part["known"], measure)] if "known" in part else found


def information(row: dict) -> str:
    """How well a row's couplings tell the factor, or the motif, of an edge.

    >>> information({"recovered": {"layer 1": {"mean": 0.5, "sd": 0.01}, "layer 2": {"mean": 0.25, "sd": None}}})
    'adjusted mutual information of couplings and true factors: 0.500 +- 0.010 in layer 1, 0.250 in layer 2'
    """
    said = [
        f"{score['mean']:.3f}" + (f" +- {score['sd']:.3f}" if score["sd"] is not None else "") + f" in {where}"
        for where, score in row["recovered"].items()
    ]
    return f"adjusted mutual information of couplings and true factors: {', '.join(said)}"


def told(known: dict, measure: str) -> str:
    """What there was to find.

    >>> told({"accuracy": {"mean": 0.9384, "sd": 0.004}, "score": {"mean": 0.5972, "sd": 0.001}}, "micro-F1")
    'told how the graphs were drawn, belief propagation has micro-F1 93.84 +- 0.40, information 0.597 +- 0.001'
    """
    accuracy, score = known["accuracy"], known["score"]
    found = f"{measure} {percent(accuracy['mean'], accuracy['sd'])}, information {score['mean']:.3f}"
    spread = "" if score["sd"] is None else f" +- {score['sd']:.3f}"
    return f"told how the graphs were drawn, belief propagation has {found}{spread}"


def answers(traces: Sequence[RoutingTrace]) -> str:
    """Each traced graph with its class, and whether it is answered right."""
    found = []
    for trace in traces:
        assert trace.labels is not None, "the examples know each graph's class"
        verdict = "right" if trace.answer(0) == trace.labels[0] else "wrong"
        found.append(f"{trace.about['graph']} {trace.class_names[trace.labels[0]]}, answered {verdict}")
    return "; ".join(found)
