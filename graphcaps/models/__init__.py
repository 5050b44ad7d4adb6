"""Networks for images by name: capsule networks, and the CNNs that stand beside them.

Every network has ``image_shape``, ``preset`` (its name and the arguments that made it), ``objects`` and
``class_names``; called on images it gives an output with ``scores`` (B, J) in [0, 1], the largest of which are its
answer, and ``network.loss(output, images, labels)`` trains it. One that routes also has ``capsules``, the layer whose
routing is kept and drawn.
"""

from __future__ import annotations

from ..config import WITHOUT_ROUTING, TrainConfig
from ..data import ImageSplits
from ..errors import GraphcapsError, check_name
from .capsnet import CapsNet, CapsNetOutput, capsnet_loss
from .cnn import CNN, CNNOutput

Network = CapsNet | CNN
PRESETS: dict[str, type[Network]] = {
    "paper": CapsNet,
    "compact": CapsNet,
    "deep": CapsNet,
    "cnn": CNN,
    "cnn-small": CNN,
}

__all__ = ["CNN", "PRESETS", "CNNOutput", "CapsNet", "CapsNetOutput", "Network", "capsnet_loss", "from_config"]


def from_preset(name: str, **arguments) -> Network:
    """Build a network by name; ``arguments`` are those of its class's ``from_preset``."""
    check_name("preset", name, list(PRESETS))
    return PRESETS[name].from_preset(name, **arguments)


def from_config(config: TrainConfig, splits: ImageSplits) -> Network:
    """The untrained network that settings ask for, of a size for the images."""
    arguments = {key: getattr(splits, key) for key in ("image_shape", "num_classes", "objects")}
    if config.model not in WITHOUT_ROUTING:
        keys = ("iterations", "routing", "engine", "protocol", "reconstruction_weight")
        arguments |= {key: getattr(config, key) for key in keys}
    return from_preset(config.model, **arguments)


def routing_network(network: Network, source: str) -> CapsNet:
    """The same network where it routes; raise ``GraphcapsError``, naming ``source``, where it doesn't."""
    if hasattr(network, "capsules"):
        return network
    name = network.preset["name"]
    raise GraphcapsError(f"{source}: expected a network that routes, got {name}, which has no capsules")
