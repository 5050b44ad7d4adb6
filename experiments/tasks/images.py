"""Networks for images, trained by a plan. Each has its own run folder and is measured after training.

Test images are read once, at the end of a training. The use of capsules is counted on validation images. A training
that was stopped continues from its last checkpoint.
"""

import statistics

import numpy as np

from experiments import run, table
from experiments.data.affnist import load_affnist, parts
from experiments.plan import Plan
from experiments.run import Place
from experiments.statistics import difference, mcnemar
from experiments.tasks.robustness import STYLE, answers
from graphcaps.images.analysis.accuracy import EVALUATION_BATCH
from graphcaps.images.analysis.capsule_usage import capsule_usage
from graphcaps.images.config import TrainConfig
from graphcaps.images.data import Batches, load_images
from graphcaps.images.training.hardware import pick_device
from graphcaps.images.training.run_folder import Run, load
from graphcaps.images.training.train import train
from graphcaps.progress import bar

MAX_VOTES = 2**20
"""Largest number of votes in a batch when the use of capsules is counted."""


def fit(place: Place, settings: dict, seed: int, on: list[str]) -> dict:
    """Train a network, or continue its training, and measure it.

    In the result, ``right`` has a text for each set of images, with 1 for a right answer and 0 for a wrong one.
    ``capsules`` describes the use of capsules in each routed layer, lowest layer first. It is None for CNNs.
    """
    name = run.key(fit, {"settings": settings, "seed": seed, "on": on})
    fixed = {"seed": seed, "name": name, "out": place.cache / "runs", "data": place.data, "device": place.device}
    path = place.cache / "runs" / name
    print(f"{path}: {table.settings_text(settings)}, seed {seed}")
    if not (path / "config.json").exists():
        train(TrainConfig(**settings, **fixed))
    elif Run.open(path).result() is None:
        train(TrainConfig(data=place.data, device=place.device), resume=path)
    finished, device = Run.open(path), pick_device(place.device)
    predicted, labels = finished.answers()
    right, named = {"test": (predicted == labels).reshape(len(labels), -1).all(axis=1)}, {"test": "test"}
    model = load(finished, device=device)
    for image_set in on:
        affnist = load_affnist(place.data)
        result = answers(model, Batches(affnist, EVALUATION_BATCH, device=device), STYLE)
        for part, of_part in parts(affnist).items():
            key = f"{image_set} {part}".strip()
            right[key] = (result.predicted == result.labels)[of_part].numpy()
            named[key] = STYLE + f" ({part})" * bool(part)
    return {
        "result": finished.result(),
        "right": {key: "".join(map(str, of_images.astype(int))) for key, of_images in right.items()},
        "named": named,
        "images_per_second": statistics.median(row["images_per_second"] for row in finished.metrics()),
        "capsules": _usage(model, finished, place, device) if model.routes else None,
    }


def _usage(model, finished: Run, place: Place, device: str) -> list[dict]:
    images = load_images(finished.config.dataset, place.data, **finished.config.of_images)
    images = images.for_augment(finished.config.augment).val
    widest = max(layer.graph().num_edges() for layer in (*model.between, model.capsules))
    batch = min(EVALUATION_BATCH, max(1, MAX_VOTES // widest))
    with bar("capsules used on validation images") as on_progress:
        layers = capsule_usage(model, Batches(images, batch, device=device), on_progress, all_layers=True)
    return [
        {
            "dead": int(layer.children.dead.sum() + layer.parents.dead.sum()),
            "starved": int(layer.children.starved.sum() + layer.parents.starved.sum()),
            "capsules": len(layer.entropy) + len(layer.parents.length),
            "entropy": layer.relative_entropy,
            "away": layer.away,
        }
        for layer in layers
    ]


def results(plan: Plan, place: Place) -> dict:
    """Train the networks of a plan that aren't trained yet, and compare all of them."""
    trials = [{"settings": row.settings, "seed": seed, "on": list(plan.on)} for row, seed in plan.cells]
    done = {}
    for (row, seed), cell in zip(plan.cells, run.run(fit, trials, place, plan.name, parallel=False), strict=True):
        right = {name: np.array([*map(int, answers)], bool) for name, answers in cell["right"].items()}
        done[row.name, seed] = {**cell, "right": right}
    return summary(plan, done)


def summary(plan: Plan, done: dict[tuple[str, int], dict]) -> dict:
    """The numbers of all trainings, and for each set of images the difference of each row to the row ``against``."""
    one, rows = next(iter(done.values())), []
    for row in plan.rows:
        cells, others = ([done[name, seed] for seed in plan.seeds] for name in (row.name, plan.against))
        against = others if row.name != plan.against else []
        rows.append(
            {
                "name": row.name,
                "settings": row.settings,
                "parameters": cells[0]["result"]["parameters_without_decoder"],
                "seeds": [_numbers(seed, cell) for seed, cell in zip(plan.seeds, cells, strict=True)],
                "images": {name: _compared(name, cells, against) for name in one["named"]},
            }
        )
    made_with = {key: one["result"][key] for key in ("device", "threads", "precision") if key in one["result"]}
    about = {"plan": plan.name, "against": plan.against, "made_with": made_with, "images": one["named"]}
    return {**about, "rows": rows}


def _numbers(seed: int, cell: dict) -> dict:
    return {
        "seed": seed,
        "accuracy": {name: float(right.mean()) for name, right in cell["right"].items()},
        "wrong": {name: int((~right).sum()) for name, right in cell["right"].items()},
        **{key: cell["result"][key] for key in ("val_accuracy", "best_epoch", "seconds")},
        **{key: cell[key] for key in ("images_per_second", "capsules")},
    }


def _compared(name: str, cells: list[dict], others: list[dict]) -> dict:
    """A network's accuracy on the set of images ``name``, and its difference to a network with results ``others``."""
    right = np.stack([cell["right"][name] for cell in cells])  # (S, N)
    spread = table.spread(right.mean(axis=1).tolist())
    compared = {"count": right.shape[1], "mean": spread["mean"], "sd": spread["sd"]}
    if others:
        theirs = np.stack([other["right"][name] for other in others])
        gap, low, high = difference(right, theirs)
        each = [mcnemar(*both) for both in zip(right, theirs, strict=True)]
        compared |= {"difference": gap, "interval": [low, high], "mcnemar": each}
    return compared
