"""Trained networks that come with graphcaps: ``weights/NAME.safetensors``, a file each, and its sha256 here.

A file holds a run's best weights in half precision, without the decoder, which would be nine tenths of it, and test
images: one of each class, whose routing is shown, and ten hard ones. ``images`` are uint8 (N, C, H, W), ``labels`` (N,)
or (N, K).
Its head is JSON: what builds the network, the run's ``settings``, and ``numbers``: the command, the libraries, the
test accuracy with these weights. ``python -m experiments pretrained RUN`` makes it of a run.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load

from ..errors import GraphcapsError, check_name
from ..routing.names import from_json
from .capsnet import CapsNet
from .limits import Limits

PRETRAINED = {
    "mnist": "134be2ca71bb3308cf3ff28b4e4937c0975fc46a19b3a2f85694a04ebc730561",
    "multimnist": "1e7a0279019e7de11766454c9a1a9d377087bae9897ddf9d7a274eab1fa91ae3",
}
"""The sha256 of each network's file, by the name of the data set that it was trained on."""


def path_of(name: str) -> Path:
    """The file of a network of ``PRETRAINED``; raise ``InputError`` where there is no such network."""
    check_name("pretrained", name, list(PRETRAINED))
    return Path(__file__).parent / "weights" / f"{name}.safetensors"


def read(name: str) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
    """The head and the tensors of a network's file, held against its sha256; the weights are named ``model.*``.

    Raises:
        InputError: unknown name.
        GraphcapsError: missing or damaged.
    """
    path, then = path_of(name), "Install graphcaps again"
    try:
        content = path.read_bytes()
    except OSError as error:
        raise GraphcapsError(f"{path}: expected the weights of {name}, got: {error.strerror}. {then}") from None
    got = hashlib.sha256(content).hexdigest()
    if got != PRETRAINED[name]:
        wanted = f"the sha256 {PRETRAINED[name][:16]}..."
        raise GraphcapsError(f"{path}: expected {wanted}, got {got[:16]}...: the file is damaged. {then}")
    size = int.from_bytes(content[:8], "little")  # of the JSON that a safetensors file begins with
    return json.loads(json.loads(content[8 : 8 + size])["__metadata__"]["graphcaps"]), load(content)


def network(name: str) -> CapsNet:
    """The network, as ``CapsNet.from_pretrained`` gives it."""
    head, tensors = read(name)
    preset = head["preset"]
    model = CapsNet.from_preset(
        **{**preset, "image_shape": tuple(preset["image_shape"]), "routing": from_json(preset["routing"])}
    )
    model.decoder = None
    model.load_state_dict({key[6:]: value for key, value in tensors.items() if key.startswith("model.")})
    model.class_names, model.limits = tuple(head["class_names"]), Limits(*head["limits"])
    return model.eval()
