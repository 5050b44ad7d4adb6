"""Descriptions of a training: the introduction that is printed when it starts, and the content of result.json."""

from typing import Any

import torch

from ...algorithms.base import rule_of
from ...algorithms.by_name import name_of
from ...routing import choose
from ...viz.routing_trace import THRESHOLD
from ..analysis.accuracy import Evaluation
from ..config import TrainConfig
from ..data import ImageSplits
from ..models import ImageNetwork
from ..models.answers import present
from .hardware import Hardware, made_with
from .run_folder import Run
from .saving import State
from .step import Learner


def introduction(run: Run, splits: ImageSplits, learner: Learner) -> str:
    """The text that is printed first: the images, the capsules and their routing, the device and the run folder."""
    own, config, precision = "", run.config, "bfloat16" if learner.hardware.bfloat16 else "float32"
    if config.of_images:
        sizes = present(splits.train.labels, splits.num_classes).sum(dim=0)
        shape = " x ".join(map(str, splits.image_shape))
        images = sizes.max() if sizes.min() == sizes.max() else f"{sizes.min()} to {sizes.max()}"
        own = f"\n{len(sizes)} classes of {images} training images, each {shape}"
    return (
        f"{config.model} on {config.dataset_name}: {len(splits.train)} training, {len(splits.val)} validation "
        f"and {len(splits.test)} test images{own}\n"
        f"{_routing_in_words(learner)}\n"
        f"device {learner.device}, {precision}, run {run}"
    )


def result(
    config: TrainConfig, best: ImageNetwork, state: State, test: Evaluation, hardware: Hardware
) -> dict[str, Any]:
    """The content of result.json. ``best`` is the network of the best epoch; ``state`` is the final state."""
    sizes = {name: weight.numel() for name, weight in best.named_parameters()}
    return {
        "command": config.command(here=True),
        "model": config.model,
        "dataset": config.dataset,
        "epochs": config.epochs,
        "seed": config.seed,
        "test_accuracy": test.accuracy,
        "test_interval_95": [*test.interval],
        "test_correct": test.correct,
        "test_images": len(test.labels),
        "test_named": test.named(THRESHOLD) if best.routes and best.objects else None,
        "val_accuracy": state.best["val_accuracy"],
        "best_epoch": state.best["epoch"],
        "parameters": sum(sizes.values()),
        "parameters_without_decoder": sum(n for name, n in sizes.items() if not name.startswith("decoder.")),
        "seconds": state.seconds,
        "engine": engine_of(best, hardware.device),
        **made_with(hardware),
    }


def engine_of(network: ImageNetwork, device: torch.device) -> str | None:
    """The engine that routes the last layer; None if the network has no capsules.

    Raises:
        InputError: the engine in the settings doesn't support this layer's routing.
    """
    if not network.routes:
        return None
    layer: Any = network.capsules
    return choose(layer.links(device), layer.votes(layer.blank()), layer.routing).engine


def _routing_in_words(learner: Learner) -> str:
    network: Any = learner.network
    if not network.routes:
        return "no capsules and no routing"
    layer, rule = network.capsules, rule_of(network.capsules.routing)
    below = "".join(f"{caps.num_children} child capsules, {len(caps.index)} edges, to\n" for caps in network.between)
    in_one = rule is not None and (rule.iterations == 1 or rule.kind == "sums")
    passes = "one pass" if in_one else f"{layer.routing.iterations} iterations"
    edges = layer.links(torch.device("cpu")).num_edges
    return (
        f"{below}{layer.num_children} child capsules, {layer.num_parents} parents, {edges} edges, "
        f"{passes} of {name_of(layer.routing)} routing on engine '{engine_of(network, learner.device)}'"
    )
