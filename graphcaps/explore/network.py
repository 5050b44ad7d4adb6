"""A trained network as the JSON that the explorer's page computes with: ``page/network.js`` reads it.

Keys::

    shape      [C, H, W] of an image           objects  K, how many classes an image shows
    epoch      epochs of training that made the weights
    stem       steps from the image to the features, and the primary capsules' convolution, each
               {"kind": "conv", "weight", "bias", "stride", "groups"}, {"kind": "relu"} or
               {"kind": "affine", "scale", "shift"}: batch normalisation, by what it has learned
    primary    {"types", "dim"}: T and P
    layers     of capsules, the last one is drawn: {"children", "parents", "src", "dst", "matrix", "weight", "places",
               "prior", "routing", "iterations", "concentration"}; edge e carries matrix[e] of weight (M, P, D).
               places (I, 2): row and column that a child's votes are made with, else null; prior (E,) or null
    decoder    null, or linear layers {"weight": int8, "scale", "bias"}: a row's numbers are its integers times its
               scale; all but the last are followed by ReLU, the last by a sigmoid
    limits     what right answers keep to: {"most", "answer", "other", "likeness", "blank"}; null where there is none
    early      of epochs before, as many as the run has weights of: what ``learned`` gives of the network then
    desk       {"ink", "detail", "stroke"}: what drawings of the data set look like

An array is {"type", "shape", "data"}, base64 of little-endian numbers. Weights are float16: the first 11 bits of a
number between 6e-5 and 65504.
"""

from __future__ import annotations

import base64
from typing import Any

import numpy as np
import torch
from torch import nn

from ..errors import GraphcapsError
from ..models import CapsNet
from ..models.evidence import BLANK, MOST
from ..nn import ConvCaps, SharedCaps
from ..routing import Spherical
from ..routing.names import name_of

ROUTINGS = ("dynamic", "uniform", "attention", "spherical")
"""Routings that the page computes."""


class NotCarried(GraphcapsError):
    """A network that the page can't compute with; the text is why."""


def network_data(model: CapsNet, epoch: int = 0) -> dict:
    """The network as a dict for ``json.dumps``, as this module's docstring describes it, without ``early``
    and ``desk``.

    Args:
        model: on the CPU.
        epoch: epochs of training that made its weights.

    Raises:
        NotCarried: another kind of network, or a routing that isn't in ``ROUTINGS``; weights that aren't finite.
    """
    if type(model) is not CapsNet:
        raise NotCarried(f"{type(model).__name__} isn't computed in the page")
    if model.objects is None:
        raise NotCarried("an answer of any number of classes isn't computed in the page")
    layers = [*model.between, model.capsules]
    missing = sorted({name_of(layer.routing) for layer in layers} - set(ROUTINGS))
    if missing:
        raise NotCarried(f"routing '{missing[0]}' isn't computed in the page")
    return {
        "shape": list(model.image_shape),
        "objects": model.objects,
        "epoch": epoch,
        "stem": _steps([*model.stem.children(), model.primary.conv], getattr(model.primary, "scale", 1.0)),
        "primary": {"types": model.primary.num_types, "dim": model.primary.dim},
        "layers": [_layer(layer) for layer in layers],
        "decoder": _decoder(model.decoder.layers) if model.reconstructs else None,
        "limits": {
            "blank": BLANK,
            "most": MOST,
            **model.limits._asdict(),
        },
    }


def learned(network: dict) -> dict:
    """Of what ``network_data`` gives, what differs from epoch to epoch and routes an image."""
    layers = [{key: layer[key] for key in ("weight", "prior", "concentration")} for layer in network["layers"]]
    return {"epoch": network["epoch"], "stem": network["stem"], "layers": layers}


def _steps(layers: list[nn.Module], scale: float) -> list[dict]:
    """The stem, and the last convolution, whose weights are multiplied by ``scale``."""
    steps: list[dict] = []
    for layer in layers:
        if isinstance(layer, nn.Conv2d):
            whole = scale if layer is layers[-1] else 1.0
            assert layer.bias is not None
            arrays = {
                "weight": packed(layer.weight * whole, "float16", "a convolution"),
                "bias": packed(layer.bias, "float32", "a convolution"),
            }
            steps.append({"kind": "conv", **arrays, "stride": list(layer.stride), "groups": layer.groups})
        elif isinstance(layer, nn.ReLU):
            steps.append({"kind": "relu"})
        elif isinstance(layer, nn.BatchNorm2d):
            assert layer.running_var is not None and layer.running_mean is not None
            factor = layer.weight / (layer.running_var + layer.eps).sqrt()
            shift = layer.bias - factor * layer.running_mean
            steps.append(
                {
                    "kind": "affine",
                    "scale": packed(factor, "float32", "the stem"),
                    "shift": packed(shift, "float32", "the stem"),
                }
            )
        else:
            raise NotCarried(f"a stem with {type(layer).__name__} isn't computed in the page")
    return steps


def _layer(layer: Any) -> dict:
    """A layer of capsules, its edges in the order of their numbers."""
    src, dst = layer.graph().edges(order="eid")
    places = None
    if isinstance(layer, ConvCaps):
        matrix = layer.index
    elif isinstance(layer, SharedCaps):
        positions = layer.num_children * layer.num_parents // len(layer.weight)
        matrix, places = (src // positions) * layer.num_parents + dst, packed(layer.places[:, 0], "float32", "places")
    else:
        matrix = torch.arange(len(src))
    kappa = float(layer.routing.kappa.detach()) if isinstance(layer.routing, Spherical) else 1.0
    return {
        "children": layer.num_children,
        "parents": layer.num_parents,
        "src": array(src.numpy(), "int32"),
        "dst": array(dst.numpy(), "int32"),
        "matrix": array(matrix.numpy(), "int32"),
        "weight": packed(layer.weight, "float16", "the votes' matrices"),
        "places": places,
        "prior": None if layer.prior is None else packed(layer.prior, "float32", "the prior"),
        "routing": name_of(layer.routing),
        "iterations": layer.routing.iterations,
        "concentration": kappa,
    }


def _decoder(layers: nn.Sequential) -> list[dict]:
    """Rows of a matrix in 8 bits: a decoded pixel is off by less than 0.01 of 1."""
    found = []
    for linear in layers:
        if isinstance(linear, nn.Linear):
            weight = linear.weight.detach().numpy().astype(np.float64)
            if not np.isfinite(weight).all():
                raise NotCarried("the decoder's weights hold NaN or infinity")
            scale = np.maximum(np.abs(weight).max(axis=1), 1e-12) / 127  # (out,)
            q = (weight / scale[:, None]).round()
            found.append(
                {
                    "weight": array(q, "int8"),
                    "scale": array(scale, "float32"),
                    "bias": packed(linear.bias, "float32", "the decoder"),
                }
            )
    return found


def packed(values: torch.Tensor, kind: str, name: str) -> dict:
    """{"type", "shape", "data"} of numbers in this type; raise ``NotCarried`` where one isn't finite in it."""
    with np.errstate(over="ignore"):
        converted = values.detach().cpu().numpy().astype(kind)
    if not np.isfinite(converted).all():
        raise NotCarried(f"{name} of these weights: NaN, infinity or numbers too large for {kind}")
    return array(converted, kind)


def array(values: np.ndarray, kind: str) -> dict:
    """{"type", "shape", "data"} of the numbers."""
    packed = np.ascontiguousarray(values.astype(np.dtype(kind).newbyteorder("<")))
    return {"type": kind, "shape": list(values.shape), "data": base64.b64encode(packed.tobytes()).decode()}
