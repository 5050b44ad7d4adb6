"""The explorer page of a run: its routing trace, and its network, which routes your drawings.

``viz/explorer/page/network.js`` runs the network. Keys of its data::

    shape      [C, H, W] of an image
    objects    K, the number of classes in an image
    epoch      the epoch after which the weights were saved
    stem       steps from the image up to and including the primary capsules' convolution, each one of
               {"kind": "conv", "weight", "bias", "stride", "groups"}, {"kind": "relu"} and
               {"kind": "affine", "scale", "shift"}: batch normalisation with its running statistics
    primary    {"types", "dim"}: T and P
    layers     layers of capsules, the last of which is drawn: {"children", "parents", "src", "dst", "matrix", "weight",
               "places", "prior", "routing", "iterations", "concentration"}; edge e has matrix[e] of weight (M, P, D).
               places (I, 2): row and column on which a child's votes depend, or null; prior (E,), or null
    decoder    null, or linear layers {"weight": int8, "scale", "bias"}: the integers of a row are multiplied by its
               scale; a ReLU follows each layer but the last, and a sigmoid follows the last
    limits     limits for doubtful answers: {"most", "answer", "other", "likeness", "blank"}; null: no limit
    measured   numbers of the run's result.json, by their names there, or null
    desk       drawings: {"ink": longer side / side of the image, or null; "detail": pixels per side, or null; "stroke":
               width in pixels; "swaps": whether pictures that are light at the border are inverted}

Arrays are packed by ``viz.explorer.data.packed``. Weights are in float16, which has 11 significant bits for numbers
between 6e-5 and 65504.
"""

from typing import Any

import numpy as np
import torch
from torch import nn

from ..algorithms.by_name import name_of
from ..errors import GraphcapsError
from ..images.data import DATASETS, DatasetSpec
from ..images.models import CapsNet
from ..images.models.evidence import BLANK, MOST
from ..images.recording import trace_of_best
from ..images.training.run_folder import Run
from ..nn import ConvCaps, SharedCaps
from ..trace import RoutingTrace
from ..viz.explorer.data import packed as packed_array

NETWORK_PAGE_ROUTINGS = ("dynamic", "uniform", "attention", "spherical")
"""The routings that the page can compute."""
PEN = 2.32 / 20  # stroke width / longer side of a digit in MNIST; width = 2 * area / border length
MEASURED = (
    "equal_shares",
    "trained_with_equal_shares",
    "routing_gain",
    "cnn_accuracy",
    "shown_ranks",
    "singles_alone_above_threshold",
    "test_accuracy",
)
"""Keys of a run's result.json whose numbers the page's text has."""
INK = 20 / 28  # longer side of a drawing / side of the image in MNIST; used for data sets where it isn't known


def page_parts(run: Run) -> tuple[RoutingTrace, dict | None, str]:
    """The trace up to the epoch of the best weights, the network or None, and the reason why it is None or "".

    Raises:
        GraphcapsError: the run has no trace, or its weights are damaged.
    """
    trace, model = trace_of_best(run)
    if model is None:
        return trace, None, f"Nothing can be drawn here: the run has no weights at {run.checkpoint('best')}."
    try:
        network = network_data(model, int(trace.epochs[-1]))
    except GraphcapsError as error:
        return trace, None, f"Nothing can be drawn here: {error}."
    network["desk"] = desk_of(model, DATASETS.get(run.config.dataset))
    network["measured"] = {name: (run.result() or {}).get(name) for name in MEASURED}
    return trace, network, ""


def desk_of(model: CapsNet, spec: DatasetSpec | None) -> dict:
    """Size and stroke width of drawings in a data set; without a spec (your own images), as in MNIST."""
    ink = spec and spec.ink
    stroke = max(1.0, PEN * (ink or INK) * min(model.image_shape[1:]))
    swaps = spec is not None and model.image_shape[0] == 1
    return {"ink": ink, "detail": spec and spec.detail, "stroke": stroke, "swaps": swaps}


def network_data(model: CapsNet, epoch: int = 0) -> dict:
    """Convert a network on the CPU to a dict. The module's docstring describes the keys.

    Raises:
        GraphcapsError: the network isn't a ``CapsNet``, the page doesn't support its routing, or weights aren't finite.
    """
    if type(model) is not CapsNet:
        raise GraphcapsError(f"the page doesn't support {type(model).__name__}")
    if model.objects is None:
        raise GraphcapsError("the page doesn't support answers of any number of classes (multi-label)")
    layers = [*model.between, model.capsules]
    missing = sorted({name_of(layer.routing) for layer in layers} - set(NETWORK_PAGE_ROUTINGS))
    if missing:
        raise GraphcapsError(f"the page doesn't support routing '{missing[0]}'")
    return {
        "shape": list(model.image_shape),
        "objects": model.objects,
        "epoch": epoch,
        "stem": _steps([*model.stem.children(), model.primary.conv]),
        "primary": {"types": model.primary.num_types, "dim": model.primary.dim},
        "layers": [_layer(layer) for layer in layers],
        "decoder": _decoder(model.decoder.layers) if model.decoder is not None else None,
        "limits": {"blank": BLANK, "most": MOST, **model.limits._asdict()},
    }


def _steps(layers: list[nn.Module]) -> list[dict]:
    """Convert layers to steps."""
    steps: list[dict] = []
    for layer in layers:
        if isinstance(layer, nn.Conv2d):
            assert layer.bias is not None
            weight = packed(layer.weight, "float16", "a convolution")
            step = {"kind": "conv", "weight": weight, "bias": packed(layer.bias, "float32", "a convolution")}
            steps.append(step | {"stride": list(layer.stride), "groups": layer.groups})
        elif isinstance(layer, nn.ReLU):
            steps.append({"kind": "relu"})
        elif isinstance(layer, nn.BatchNorm2d):
            assert layer.running_var is not None and layer.running_mean is not None
            factor = layer.weight / (layer.running_var + layer.eps).sqrt()
            shift = packed(layer.bias - factor * layer.running_mean, "float32", "the stem")
            steps.append({"kind": "affine", "scale": packed(factor, "float32", "the stem"), "shift": shift})
        else:
            raise GraphcapsError(f"the page doesn't support a stem with {type(layer).__name__}")
    return steps


def _layer(layer: Any) -> dict:
    """Convert a layer of capsules. Edges are in the order of their ids."""
    links, places = layer.links(torch.device("cpu")), None
    src, dst = links.src, links.dst
    if isinstance(layer, ConvCaps):
        matrix = layer.index
    elif isinstance(layer, SharedCaps):
        positions = layer.num_children * layer.num_parents // len(layer.weight)
        matrix, places = (src // positions) * layer.num_parents + dst, packed(layer.places[:, 0], "float32", "places")
    else:
        matrix = torch.arange(len(src))
    return {
        "children": layer.num_children,
        "parents": layer.num_parents,
        "src": packed(src, "int32", "edges"),
        "dst": packed(dst, "int32", "edges"),
        "matrix": packed(matrix, "int32", "edges"),
        "weight": packed(layer.weight, "float16", "the votes' matrices"),
        "places": places,
        "prior": None if layer.prior is None else packed(layer.prior, "float32", "the prior"),
        "routing": name_of(layer.routing),
        "iterations": layer.routing.iterations,
        "concentration": float(layer.routing.kappa.detach()) if hasattr(layer.routing, "kappa") else 1.0,
    }


def _decoder(layers: nn.Sequential) -> list[dict]:
    """Convert linear layers to 8-bit weights. This changes decoded pixels, which are in [0, 1], by less than 0.01."""
    rows, name = [], "the decoder"
    for linear in (layer for layer in layers if isinstance(layer, nn.Linear)):
        weight = linear.weight.detach().double()
        scale = weight.abs().amax(dim=1).clamp_min(1e-12) / 127  # (out,)
        integers = packed((weight / scale[:, None]).round(), "int8", name)
        numbers = {"scale": packed(scale, "float32", name), "bias": packed(linear.bias, "float32", name)}
        rows.append({"weight": integers, **numbers})
    return rows


def packed(values: torch.Tensor, kind: str, name: str) -> dict:
    """Pack a tensor as type ``kind``. Raise a ``GraphcapsError`` with ``name`` if a number isn't finite in it."""
    with np.errstate(over="ignore"):
        converted = values.detach().cpu().numpy().astype(kind)
    if not np.isfinite(converted).all():
        raise GraphcapsError(f"{name} of these weights: NaN, infinity or numbers too large for {kind}")
    return packed_array(converted)
