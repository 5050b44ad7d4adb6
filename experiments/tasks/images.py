"""Networks for images, trained by a plan. Each has its own run folder and is measured after training.

Test images are read once, at the end of a training. The use of capsules is counted on validation images. A training
that was stopped continues from its last checkpoint.
"""

import hashlib
import statistics
from pathlib import Path

import numpy as np

from experiments import run, table
from experiments.data.affnist import load_affnist, parts
from experiments.plan import Plan
from experiments.run import Place
from experiments.statistics import difference
from experiments.tasks.robustness import STYLE, answers
from graphcaps.images.analysis.accuracy import EVALUATION_BATCH
from graphcaps.images.analysis.capsule_usage import capsule_usage
from graphcaps.images.config import TrainConfig
from graphcaps.images.data import Batches, load_images
from graphcaps.images.training.hardware import pick_device
from graphcaps.images.training.run_folder import Run, load
from graphcaps.images.training.train import train
from graphcaps.names import ALLOW_CODE
from graphcaps.progress import bar

MAX_VOTES = 2**20
"""Largest number of votes in a batch when the use of capsules is counted."""


def fit(place: Place, settings: dict, seed: int, on: list[str], data: str) -> dict:
    """Train a network, or continue its training, and measure it.

    In the result, ``right`` has a text for each set of images, with 1 for a right answer and 0 for a wrong one.
    ``capsules`` describes the use of capsules in each routed layer, lowest layer first. It is None for CNNs. With other
    images, whose hash is ``data``, it is another trial.
    """
    name = run.key(fit, {"settings": settings, "seed": seed, "on": on, "data": data})
    fixed = {"seed": seed, "name": name, "out": place.cache / "runs", "data": place.data}
    path = place.cache / "runs" / name
    print(f"{path}: {table.settings_text(settings)}, seed {seed}")
    ALLOW_CODE.set(True)  # the plan is the user's own, and may name a routing of the user's own
    if not (path / "config.json").exists():
        train(TrainConfig(**settings, **fixed))
    elif Run.open(path).result() is None:
        train(TrainConfig(data=place.data), resume=path)
    finished, device = Run.open(path), pick_device("auto")
    with np.load(finished.path / "answers.npz") as stored:
        same = stored["predicted"] == stored["labels"]
    right, titles = {"test": same.reshape(len(same), -1).all(axis=1)}, {"test": "test"}
    model = load(finished, device=device)
    if on:
        affnist = load_affnist(place.data)
        result = answers(model, Batches(affnist, EVALUATION_BATCH, device=device), STYLE)
        for part, rows in parts(affnist).items():
            key = f"affnist {part}".strip()
            right[key] = result.right[rows].numpy()
            titles[key] = STYLE + f" ({part})" * bool(part)
    return {
        "result": finished.result(),
        "right": {key: "".join(map(str, of_images.astype(int))) for key, of_images in right.items()},
        "named": titles,
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


def data_hash(settings: dict, root: Path) -> str:
    """The hash of a data set's images and labels, as a network's settings read them."""
    config, digest = TrainConfig(**settings), hashlib.sha256()
    splits = load_images(config.dataset, root, **config.of_images)
    for part in (splits.train, splits.val, splits.test):
        digest.update(part.pixels.numpy().tobytes() + part.labels.numpy().tobytes())
    return digest.hexdigest()[:16]


def results(plan: Plan, place: Place) -> dict:
    """Train the networks of a plan that aren't trained yet, and compare each of them with the network ``against``."""
    common = {"on": list(plan.on), "data": data_hash(plan.rows[plan.against], place.data)}
    trials = [{"settings": plan.rows[name], "seed": seed, **common} for name, seed in plan.cells]
    trained: dict[str, list[dict]] = {}
    for (name, seed), fit_result in zip(plan.cells, run.run(fit, trials, place, plan.name, False), strict=True):
        right = {key: np.array([*map(int, digits)], bool) for key, digits in fit_result["right"].items()}
        trained.setdefault(name, []).append({**fit_result, "right": right, "seed": seed})
    rows, titles, result = [], fit_result["named"], fit_result["result"]
    for name, settings in plan.rows.items():
        fits, others = trained[name], trained[plan.against] if name != plan.against else []
        rows.append(
            {
                "name": name,
                "settings": settings,
                "parameters": fits[0]["result"]["parameters_without_decoder"],
                "seeds": [_numbers(fit) for fit in fits],
                "images": {key: _compared(key, fits, others) for key in titles},
            }
        )
    made_with = {key: result[key] for key in ("device", "threads", "precision") if key in result}
    return {"plan": plan.name, "against": plan.against, "made_with": made_with, "images": titles, "rows": rows}


def _numbers(fit: dict) -> dict:
    return {
        "seed": fit["seed"],
        "accuracy": {key: float(right.mean()) for key, right in fit["right"].items()},
        **{key: fit["result"][key] for key in ("val_accuracy", "best_epoch", "seconds")},
        **{key: fit[key] for key in ("images_per_second", "capsules")},
    }


def _compared(key: str, fits: list[dict], others: list[dict]) -> dict:
    """A network's accuracy on one set of images, and its difference to a network with the results ``others``."""
    right = np.stack([fit["right"][key] for fit in fits])  # (S, N)
    compared = {"count": right.shape[1], **table.spread(right.mean(axis=1).tolist())}
    if others:
        gap, *interval = difference(right, np.stack([other["right"][key] for other in others]))
        compared |= {"difference": gap, "interval": interval}
    return compared


def markdown(result: dict) -> str:
    """A row per network of a plan, below a caption with the numbers of images and seeds, and the settings."""
    return f"{caption(result)}\n\n{table.table(_cells(row, result) for row in result['rows'])}"


def caption(result: dict) -> str:
    """The results of a plan that its table and its picture show."""
    rows, first = result["rows"], result["rows"][0]
    common = {key: v for key, v in first["settings"].items() if all(row["settings"].get(key) == v for row in rows)}
    sizes = ", ".join(f"{first['images'][key]['count']:,} ({title})" for key, title in result["images"].items())
    seeds = ", ".join(str(seed["seed"]) for seed in first["seeds"])
    spread = "mean ± standard deviation over seeds" if len(first["seeds"]) > 1 else "of one training each"
    covers = "other seeds and other images" if len(first["seeds"]) > 1 else "other images, for these trained networks"
    return (
        f"Accuracy in %, {spread} ({seeds}). Test images: {sizes}. Settings of all networks: "
        f"{table.settings_text(common)}. Differences to the reference, {result['against']}, are in points, with 95 % "
        f"intervals for {covers}."
    )


def _cells(row: dict, result: dict) -> dict[str, object]:
    texts: dict[str, object] = {"network": row["name"], "parameters": f"{row['parameters']:,}"}
    texts["seeds"] = len(row["seeds"])
    for key, title in result["images"].items():
        numbers = row["images"][key]
        gap = table.interval(numbers["difference"], *numbers["interval"]) if "difference" in numbers else "reference"
        texts[f"{title} accuracy ({numbers['count']:,})"] = table.percent(numbers["mean"], numbers["sd"])
        texts[f"{title} against {result['against']}"] = gap
    for key, title in (("seconds", "seconds"), ("images_per_second", "images/s")):
        texts[title] = f"{statistics.fmean(seed[key] for seed in row['seeds']):,.0f}"
    routed = row["settings"].get("routing") != "uniform" and row["seeds"][0]["capsules"] is not None
    layers = [*zip(*(seed["capsules"] for seed in row["seeds"]), strict=True)] if routed else []
    means = [{key: statistics.fmean(seed[key] for seed in layer) for key in layer[0]} for layer in layers]
    for key in ("dead", "starved"):
        counts = [f"{layer[key]:,.1f}".removesuffix(".0") for layer in means]
        sizes = [f"{layer['capsules']:,.0f}" for layer in means]
        texts[key] = ", ".join(map("{} of {}".format, counts, sizes)) or "-"
    for key in ("entropy", "away"):
        texts[key] = ", ".join(f"{layer[key]:.1%}" for layer in means) or "-"
    return texts
