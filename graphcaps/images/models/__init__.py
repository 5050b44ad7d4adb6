"""Networks for images: capsule networks, and CNNs for comparison.

``network.ImageNetwork`` is their interface; ``graphcaps.names.NETWORKS`` lists all presets.
"""

from typing import Any

from ...algorithms.by_name import from_json
from ...errors import check_name, expect
from ...names import NETWORKS
from ...nn.matrix_caps import FINAL_LAMBDA
from ...nn.routed import routing_for_images
from ...routing import EM
from ..config import TrainConfig
from ..data import ImageSplits
from .capsnet import CapsNet, CapsNetOutput, capsnet_loss
from .cnn import CNN, CNNOutput
from .evidence import Doubt, Limits, doubts
from .matrix import MatrixCapsNet, MatrixOutput
from .network import ImageNetwork, RoutingNetwork

_CLASSES: dict[str, Any] = {kind.__name__: kind for kind in (CapsNet, CNN, MatrixCapsNet)}

__all__ = ["CNN", "CapsNet", "ImageNetwork", "MatrixCapsNet", "RoutingNetwork", "from_config", "from_preset"]
__all__ += ["CNNOutput", "CapsNetOutput", "MatrixOutput", "capsnet_loss", "take_layers"]
__all__ += ["Doubt", "Limits", "doubts"]


def from_preset(name: str, **arguments) -> ImageNetwork:
    """Build a network by name; ``arguments`` are passed to ``from_preset`` of its class."""
    check_name("preset", name, list(NETWORKS))
    return _CLASSES[NETWORKS[name].network].from_preset(name, **arguments)


def from_config(config: TrainConfig, splits: ImageSplits) -> ImageNetwork:
    """Build the untrained network for the settings, with the image shape and the classes of ``splits``."""
    sizes = {key: getattr(splits, key) for key in ("image_shape", "num_classes", "objects")}
    settings = {key: getattr(config, key) for key in config.preset.settings}
    if config.preset.network == "MatrixCapsNet":
        settings["routing"] = EM(config.num_iterations, final_lambda=FINAL_LAMBDA)
    elif "routing" in settings:
        settings["routing"] = routing_for_images(config.routing, iterations=config.num_iterations)
    return _CLASSES[config.preset.network].from_preset(config.model, **sizes, **settings)


def for_other_classes(trained: ImageNetwork, num_classes: int) -> ImageNetwork:
    """Build a network like a trained one, with its weights except those of the last layer, for other classes."""
    preset = dict(trained.preset or {}, num_classes=num_classes)
    if "routing" in preset:
        preset["routing"] = from_json(preset["routing"])
    network = from_preset(**preset)
    take_layers(network, trained)
    return network


def take_layers(network: ImageNetwork, trained: ImageNetwork) -> None:
    """Copy a trained network's weights into a network for other classes: all but those of its last layer.

    The first layer of a decoder depends on the number of classes: it is copied only if the numbers are equal.

    Raises:
        InputError: the networks have other presets, or images of other shapes.
    """
    wanted, got = ((model.preset or {}).get("name", "") for model in (trained, network))
    expect(wanted == got, "model", f"{wanted}, as in the trained network", got)
    wanted, advice = f"{trained.image_shape}, as in the trained network", "Pad or cut yours to these proportions"
    expect(trained.image_shape == network.image_shape, "images", wanted, network.image_shape, advice)
    last = "capsules." if network.routes else f"layers.{len(getattr(network, 'layers', ())) - 1}."
    own = network.state_dict()
    taken = {name: x for name, x in trained.state_dict().items() if name in own and own[name].shape == x.shape}
    network.load_state_dict(own | {name: x for name, x in taken.items() if not name.startswith(last)})
