"""Turn a run's network into a run folder that comes with graphcaps, ``graphcaps/images/models/weights/NAME``.

``checkpoints/best.safetensors`` has the run's best weights in half precision, without a decoder of the usual size,
which would be nine tenths of the file. The file also has test images: the clearest one of each class and the median,
with their routing in ``trace.npz``, and ten hard ones. ``images`` are uint8 (N, C, H, W), ``labels`` (N,) or (N, K).
``result.json`` has the accuracy of the rounded weights.
"""

import dataclasses
import hashlib
import json
from datetime import date
from pathlib import Path

import numpy as np
import torch

from graphcaps.algorithms.by_name import to_json
from graphcaps.errors import expect
from graphcaps.files import write_text
from graphcaps.images.analysis.accuracy import EVALUATION_BATCH, evaluate
from graphcaps.images.analysis.capsule_usage import capsule_usage
from graphcaps.images.config import TrainConfig
from graphcaps.images.data import Batches, Images, Pairs, load_images, to_float
from graphcaps.images.models import CapsNet
from graphcaps.images.models.answers import is_correct, longest, overlaid
from graphcaps.images.models.evidence import limits_of
from graphcaps.images.recording import pictures, routing_of, to_bytes
from graphcaps.images.training import checkpoint
from graphcaps.images.training.run_folder import PRETRAINED, Run, load
from graphcaps.nn.routed import route_layer
from graphcaps.routing import Dynamic

MAX_BYTES = 1_000_000
HARD = 10
"""Number of hard test images that the explorer offers."""
ITERATIONS = {"mnist": 12, "multimnist": 14}
"""Routing iterations of the network that is written. On validation images, it is as accurate as with those of its
training, and more children choose a parent."""
AMONG = 1000
"""Number of test images from which the clearest are chosen for pictures."""


def answers_sha256(predicted: torch.Tensor) -> str:
    """The sha256 of the answers to the test images, in order. An answer is one byte, or K ascending bytes."""
    return hashlib.sha256(predicted.to(torch.uint8).numpy().tobytes()).hexdigest()


def write(run: Run, data: Path) -> str:
    """Write the network of a finished run into the package. Return its measurements and its size as text."""
    target, result = Run(PRETRAINED / run.config.dataset, run.config), run.result()
    expect(result is not None, "pretrained", "a finished run", str(run), f"Go on: graphcaps train --resume {run}")
    run.check_routes()
    model, splits = load(run), load_images(run.config.dataset, data)
    trained_with, iterations = model.capsules.routing.iterations, ITERATIONS[run.config.dataset]
    model.capsules.routing = Dynamic(iterations)
    model.preset["routing"] = to_json(model.capsules.routing)
    batches, val = Batches(splits.test, EVALUATION_BATCH), evaluate(model, Batches(splits.val, EVALUATION_BATCH))
    correct = evaluate(model, batches).correct
    tensors = checkpoint.model_tensors(model.half())  # rounds the network's numbers
    if model.preset["name"] != "small":
        tensors = {name: tensor for name, tensor in tensors.items() if not name.startswith("model.decoder.")}
    after = evaluate(model.float(), batches)
    ranks = clearest(model, splits.test)
    numbers = {
        **result,
        "command": run.config.command(),  # without the folders of this machine
        "date": date.fromtimestamp((run.path / "result.json").stat().st_mtime).isoformat(),
        "val_accuracy": val.accuracy,
        "test_accuracy": after.accuracy,
        "test_interval_95": list(after.interval),
        "test_correct": after.correct,
        "test_named": after.named(run.threshold),
        "test_correct_in_float32": correct,
        "answers_sha256": answers_sha256(after.predicted),
        "weighted_entropy": capsule_usage(model, batches)[0].weighted_entropy,
        "shown_ranks": [*ranks.values()],
        "iterations_in_training": trained_with,
        "iterations": iterations,
    }
    # The lead of the first capsule over the second, plus 1 for right answers, so that wrong answers come first.
    margins = after.evidence[:, 0] - after.evidence[:, 1] + after.right
    layers, labels = Batches(splits.test, 1).at(torch.cat([torch.tensor([*ranks]), margins.argsort()[:HARD]]))
    images = torch.from_numpy(to_bytes(overlaid(layers)))
    settings = {key: getattr(run.config, key) for key in run.config.changed() if key not in ("data", "out", "name")}
    head = {
        "preset": model.preset,
        "class_names": model.class_names,
        "limits": limits_of(val.evidence, val.right)._replace(likeness=None),  # for small decoders, too wide
        "state": {"epoch": result["best_epoch"]},
        "settings": settings,
    }
    write_text(target.path / "config.json", TrainConfig(**settings).to_json())
    path = target.checkpoint("best")
    checkpoint.write(path, tensors | {"images": images, "labels": labels}, head)
    write_text(target.path / "result.json", json.dumps(numbers, indent=2) + "\n")
    images, labels = to_float(images[:-HARD]), labels[:-HARD]
    trace = dataclasses.replace(
        routing_of(model, images),
        epochs=np.array([result["best_epoch"]], np.int32),
        labels=labels.numpy() if labels.dim() == 1 else None,  # a trace has one label per image or none
        class_names=model.class_names,
        about={key: getattr(run.config, key) for key in ("dataset", "model", "routing", "epochs", "seed")}
        | {key: result[key] for key in ("threshold",) if key in result},
        **pictures(model, images),
    )
    trace.save(target.path / "trace.npz")
    size = path.stat().st_size
    expect(size <= MAX_BYTES, str(path), f"at most {MAX_BYTES:,} bytes", f"{size:,}")
    return "\n".join([*(f"{name}: {value}" for name, value in numbers.items()), f"{path}: {size:,} bytes"])


@torch.no_grad()
def clearest(model: CapsNet, test: Images | Pairs) -> dict[int, int]:
    """Of the first 1,000 test images, the clearest one with each class, then the median, with their ranks from 1.

    A wrong answer has clearness 0. For a right answer, the parts of the children's couplings above 1 / J are summed for
    each class of the image. The clearness is the smallest of these sums.
    """
    layers, labels = Batches(test, 1).at(torch.arange(AMONG))
    images, classes = overlaid(layers), len(model.class_names)
    coupling = route_layer(model.capsules, model.children_of(images), coupling=True).coupling  # (E, N)
    sums = (coupling.unflatten(0, (-1, classes)) - 1 / classes).clamp_min(0).sum(0)  # (J, N)
    clearness = sums.t().gather(1, labels.view(AMONG, -1)).amin(dim=1)  # (N,)
    right = is_correct(longest(model(images).lengths, model.objects), labels)
    order = torch.where(right, clearness, 0).argsort(descending=True, stable=True).tolist()
    ranks: dict[int, int] = {}
    for j in range(classes):
        image = next(n for n in order if (labels[n] == j).any() and n not in ranks)
        ranks[image] = order.index(image) + 1
    return {**ranks, order[AMONG // 2]: AMONG // 2 + 1}
