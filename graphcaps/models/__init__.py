"""Networks for images by name: capsule networks, and the CNNs that stand beside them.

Every network has ``image_shape``, ``preset`` (its name and the arguments that made it), ``objects`` and
``class_names``; called on images it gives an output with ``scores`` (B, J) in [0, 1], the largest of which are its
answer, and ``network.loss(output, images, labels, progress)`` trains it, progress being the share of training that is
done, in [0, 1]. One that routes also has ``capsules``, the layer whose routing is kept and drawn, and ``children_of``,
what enters it; one that reconstructs has ``decoder``.
"""

from __future__ import annotations

from ..config import MATRIX, WITHOUT_ROUTING, TrainConfig
from ..data import ImageSplits
from ..errors import GraphcapsError, check_name
from .capsnet import CapsNet, CapsNetOutput, capsnet_loss
from .cnn import CNN, CNNOutput
from .matrix import MatrixCapsNet, MatrixOutput

Network = CapsNet | CNN | MatrixCapsNet
PRESETS: dict[str, type[Network]] = {
    "paper": CapsNet,
    "compact": CapsNet,
    "deep": CapsNet,
    "cnn": CNN,
    "cnn-small": CNN,
    "matrix": MatrixCapsNet,
    "matrix-small": MatrixCapsNet,
}

__all__ = [
    "CNN",
    "PRESETS",
    "CNNOutput",
    "CapsNet",
    "CapsNetOutput",
    "MatrixCapsNet",
    "MatrixOutput",
    "Network",
    "capsnet_loss",
    "from_config",
]


def from_preset(name: str, **arguments) -> Network:
    """Build a network by name; ``arguments`` are those of its class's ``from_preset``."""
    check_name("preset", name, list(PRESETS))
    return PRESETS[name].from_preset(name, **arguments)


def from_config(config: TrainConfig, splits: ImageSplits) -> Network:
    """The untrained network that settings ask for, of a size for the images."""
    arguments = {key: getattr(splits, key) for key in ("image_shape", "num_classes", "objects")}
    if config.model in MATRIX:
        arguments |= {"iterations": config.iterations, "engine": config.engine}
    elif config.model not in WITHOUT_ROUTING:
        keys = ("iterations", "routing", "engine", "protocol", "reconstruction_weight")
        arguments |= {key: getattr(config, key) for key in keys}
    return from_preset(config.model, **arguments)


def routing_network(network: Network, source: str) -> CapsNet | MatrixCapsNet:
    """The same network where it routes; raise ``GraphcapsError``, naming ``source``, where it doesn't."""
    if hasattr(network, "capsules"):
        return network
    name = network.preset["name"]
    raise GraphcapsError(f"{source}: expected a network that routes, got {name}, which has no capsules")
