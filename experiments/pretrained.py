"""Turn a run's network into a run folder that comes with graphcaps, ``graphcaps/models/weights/NAME``.

``checkpoints/best.safetensors`` has the run's best weights in half precision, without the decoder, which would be nine
tenths of the file. It also has test images: one per class, with their routing in ``trace.npz``, and ten hard ones.
``images`` are uint8 (N, C, H, W), ``labels`` (N,) or (N, K). ``result.json`` has the accuracy of the rounded weights.
"""

from __future__ import annotations

import dataclasses
import hashlib
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import torch

from graphcaps.analysis.accuracy import EVALUATION_BATCH, Evaluation, evaluate
from graphcaps.analysis.capsule_usage import capsule_usage
from graphcaps.atomic import write_text
from graphcaps.config import TrainConfig
from graphcaps.data import Batches, load_images, to_float
from graphcaps.errors import GraphcapsError
from graphcaps.models import routing_network
from graphcaps.models.answers import is_correct, longest, overlaid
from graphcaps.nn import Decoder
from graphcaps.nn.routed import route_layer
from graphcaps.progress import bar
from graphcaps.trace.recording import one_of_each_class, pictures, routing_of, to_bytes
from graphcaps.training import checkpoint
from graphcaps.training.run_folder import PRETRAINED, Run, load

MAX_BYTES = 1_000_000
HARD = 10
"""Number of hard test images that the explorer offers."""
HIDDEN = (128, 192)
"""Widths of the hidden layers of the decoder that ``add_decoder`` trains, a quarter of the file of a usual one."""
EPOCHS, RATE = 4, 2e-3
AMONG = 1000
"""Number of test images from which the clearest are chosen for pictures."""


def rounded(state: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Convert float32 tensors to half precision; raise ``GraphcapsError`` if a number is too large."""
    half = {name: tensor.half() if tensor.is_floating_point() else tensor for name, tensor in state.items()}
    for name, tensor in half.items():
        if tensor.is_floating_point() and not tensor.isfinite().all():
            raise GraphcapsError(f"{name}: expected numbers that half precision holds, got larger ones")
    return half


def answers_sha256(predicted: torch.Tensor) -> str:
    """The sha256 of the answers to the test images, in order. An answer is one byte, or K ascending bytes."""
    return hashlib.sha256(predicted.to(torch.uint8).numpy().tobytes()).hexdigest()


def write(run: Run, data: Path) -> str:
    """Write the network of a finished run into the package. Return its measurements and its size as text."""
    folder, result = PRETRAINED / run.config.dataset, run.result()
    if result is None:
        raise GraphcapsError(f"pretrained: expected a finished run, {run} isn't. Go on: graphcaps train --resume {run}")
    model, test = routing_network(load(run), str(run)), load_images(run.config.dataset, data).test
    batches = Batches(test, EVALUATION_BATCH)
    before = _tested(model, batches)
    model.decoder = None
    weights = rounded(model.state_dict())
    model.load_state_dict(weights)
    after = _tested(model, batches)
    with bar("couplings") as on_progress:
        [usage] = capsule_usage(model, batches, on_progress)
    numbers: dict[str, Any] = {
        **result,
        "date": date.fromtimestamp((run.path / "result.json").stat().st_mtime).isoformat(),
        "test_accuracy": after.accuracy,
        "test_interval_95": list(after.interval),
        "test_correct": after.correct,
        "test_correct_in_float32": before.correct,
        "answers_changed_by_rounding": int((before.predicted != after.predicted).reshape(len(test), -1).any(1).sum()),
        "answers_sha256": answers_sha256(after.predicted),
        "weighted_entropy": usage.weighted_entropy,
    }
    # The lead of the first capsule over the second, plus 1 for right answers, so that wrong answers come first.
    margins = after.evidence[:, 0] - after.evidence[:, 1] + after.right
    shown = [one_of_each_class(test.labels, len(model.class_names)), margins.argsort()[:HARD]]
    layers, labels = Batches(test, 1).at(torch.cat(shown))
    tensors = {f"model.{name}": tensor for name, tensor in weights.items()}
    tensors |= {"images": torch.from_numpy(to_bytes(overlaid(layers))), "labels": labels}
    settings = {key: getattr(run.config, key) for key in run.config.changed() if key not in ("data", "out", "name")}
    head = {
        "preset": model.preset,
        "class_names": model.class_names,
        "limits": model.limits._replace(likeness=None),  # without a decoder there is no reconstruction
        "state": {"epoch": result["best_epoch"]},
        "settings": settings,
    }
    made = Run(folder, TrainConfig(**settings))
    path = made.checkpoint("best")
    checkpoint.write(path, tensors, head)
    write_text(folder / "config.json", made.config.to_json())
    made.write_result(numbers)
    count = len(model.class_names)
    _record(made, model, to_float(tensors["images"][:count]), labels[:count], result["best_epoch"])
    size = path.stat().st_size
    if size > MAX_BYTES:
        raise GraphcapsError(f"{path}: expected at most {MAX_BYTES:,} bytes, got {size:,}")
    return "\n".join([*(f"{name}: {value}" for name, value in numbers.items()), f"{path}: {size:,} bytes"])


def add_decoder(run: Run, data: Path) -> str:
    """Train a small decoder for a network that comes with graphcaps, on its frozen capsules, and put it into its file.

    The decoder learns from training images, as in section 6.1 of the 2017 paper. The answers stay the same. The
    images of the trace become the clearest. Return their ranks and the file's size as text.
    """
    path, model, splits = run.checkpoint("best"), load(run), load_images(run.config.dataset, data)
    tensors, head = checkpoint.read(path)
    torch.manual_seed(0)
    decoder = Decoder(len(model.class_names), model.capsules.weight.shape[-1], model.image_shape, HIDDEN)
    optimizer = torch.optim.Adam(decoder.parameters(), lr=RATE)
    batches = Batches(splits.train, 128, augment="shift", seed=1)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1, 0.01, EPOCHS * len(batches))
    with bar("decoder") as on_progress:
        for epoch in range(EPOCHS):
            for step, (layers, labels) in enumerate(batches.epoch(epoch)):
                with torch.no_grad():
                    capsules = model(overlaid(layers)).capsules
                errors = (decoder(capsules, labels) - layers).square().flatten(-3).sum(dim=-1).mean()
                optimizer.zero_grad()
                errors.backward()
                optimizer.step()
                schedule.step()
                on_progress((epoch + (step + 1) / len(batches)) / EPOCHS)
    decoder.load_state_dict(rounded(decoder.state_dict()))
    model.decoder = decoder
    tensors |= {f"model.decoder.{key}": value for key, value in rounded(decoder.state_dict()).items()}
    chosen, ranks = clearest(model, splits.test)
    layers, labels = Batches(splits.test, 1).at(chosen)
    for key, shown in (("images", torch.from_numpy(to_bytes(overlaid(layers)))), ("labels", labels)):
        tensors[key] = torch.cat((shown, tensors[key][len(chosen) :]))
    checkpoint.write(path, tensors, head)
    _record(run, model, overlaid(layers), labels, head["state"]["epoch"])
    run.write_result({**(run.result() or {}), "shown_ranks": ranks})
    return f"ranks {ranks} of {AMONG}, {path.stat().st_size:,} bytes"


@torch.no_grad()
def clearest(model: Any, test: Any) -> tuple[torch.Tensor, list[int]]:
    """Of the first 1,000 test images, the clearest one with each class, and their ranks from 1.

    A wrong answer has clearness 0. That of a right one is the couplings above 1/J with a class of the image, summed
    over children, at the class with less.
    """
    layers, labels = Batches(test, 1).at(torch.arange(AMONG))
    images = overlaid(layers)
    routed = route_layer(model.capsules, model.children_of(images), coupling=True)
    pull = (routed.coupling.unflatten(0, (-1, len(model.class_names))) - 1 / len(model.class_names)).clamp_min(0).sum(0)
    shares = pull.t().gather(1, labels).amin(dim=1)  # (N,)
    right = is_correct(longest(model(images).lengths, model.objects), labels)
    order = torch.where(right, shares, 0).argsort(descending=True, stable=True)
    chosen: list[int] = []
    for j in range(len(model.class_names)):
        chosen.append(next(n for n in order.tolist() if (labels[n] == j).any() and n not in chosen))
    return torch.tensor(chosen), [order.tolist().index(n) + 1 for n in chosen]


def _record(run: Run, model: Any, images: torch.Tensor, labels: torch.Tensor, epoch: int) -> None:
    """Write the run's trace: the routing of images (N, C, H, W)."""
    about = {key: getattr(run.config, key) for key in ("dataset", "model", "routing", "epochs", "seed")}
    trace = dataclasses.replace(
        routing_of(model, images),
        epochs=np.array([epoch], np.int32),
        labels=labels.numpy() if labels.dim() == 1 else None,  # a trace has one label per image or none
        class_names=model.class_names,
        about=about,
        **pictures(model, images),
    )
    trace.save(run.path / "trace.npz")


def _tested(model: Any, batches: Batches) -> Evaluation:
    with bar("test images") as on_progress:
        return evaluate(model, batches, on_progress)
