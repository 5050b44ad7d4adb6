"""Weights on disk: one safetensors file with the training state as JSON in its head. Reading one never runs code.

safetensors doesn't notice a flipped bit, so a sha256 of the JSON and the tensors stands beside them.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from ..atomic import replacing
from ..errors import GraphcapsError, read_json
from ..models import ImageNetwork, Limits, from_preset
from ..routing.names import from_json

FORMAT_VERSION = 2
EARLY_BYTES = 4_000_000
"""Of the weights of early epochs, over all of these epochs, at most."""


def write(path: Path, tensors: dict[str, torch.Tensor], head: dict, before: Path | None = None) -> None:
    """Write tensors and a JSON head as one file, atomically; the file that it replaces goes to ``before``, if given."""
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    text = json.dumps({"format_version": FORMAT_VERSION, **head})
    with replacing(path, before) as temporary:
        try:
            save_file(tensors, temporary, metadata={"graphcaps": text, "sha256": _sha256(text, tensors)})
        except SafetensorError as error:
            raise GraphcapsError(f"{path}: expected to be able to write it, got: {error}") from None


def read(path: Path) -> tuple[dict[str, torch.Tensor], dict]:
    """Read what ``write`` wrote.

    Raises:
        GraphcapsError: missing, not safetensors, not ours, damaged, or of another format.
    """
    then = f"It is written when an epoch ends; go on with: graphcaps train --resume {path.parent.parent}"
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
        text, checksum = metadata["graphcaps"], metadata["sha256"]
        head = read_json(text, format_version=int)
        version = head["format_version"]
    except FileNotFoundError:
        raise GraphcapsError(f"checkpoint: expected a file at {path}, got none. {then}") from None
    except (SafetensorError, OSError, ValueError, KeyError, TypeError) as error:
        raise GraphcapsError(f"checkpoint: expected weights written by graphcaps at {path}, got: {error!r}") from None
    if version != FORMAT_VERSION:
        then = "A run of another version of graphcaps: train it again"
        raise GraphcapsError(f"checkpoint: expected format {FORMAT_VERSION} in {path}, got {version}. {then}")
    if _sha256(text, tensors) != checksum:
        raise GraphcapsError(f"checkpoint: expected {path} to fit its sha256, it doesn't: the file is damaged")
    return tensors, head


def _sha256(text: str, tensors: dict[str, torch.Tensor]) -> str:
    digest = hashlib.sha256(text.encode())
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy() if tensor.numel() else b"")
    return digest.hexdigest()


def model_tensors(model: ImageNetwork) -> dict[str, torch.Tensor]:
    """The network's parameters and buffers, named ``model.*``."""
    return {f"model.{name}": tensor for name, tensor in model.state_dict().items()}


def early_tensors(model: ImageNetwork) -> dict[str, torch.Tensor]:
    """What routes images, in half precision: a part of the network's ``state_dict``, without the decoder."""
    return {
        name: tensor.half()
        for name, tensor in model.state_dict().items()
        if tensor.is_floating_point() and not name.startswith("decoder.")
    }


def optimizer_tensors(optimizer: torch.optim.Optimizer) -> dict[str, torch.Tensor]:
    """The optimizer's state, named ``optimizer.<number of the parameter>.<name>``."""
    state = optimizer.state_dict()["state"]
    return {f"optimizer.{k}.{name}": tensor for k, values in state.items() for name, tensor in values.items()}


def generator_tensors(device: torch.device) -> dict[str, torch.Tensor]:
    """Where torch's generators stand, named ``generator.<kind of device>``: dropout draws from them."""
    states = {"generator.cpu": torch.get_rng_state()}
    return states | ({"generator.cuda": torch.cuda.get_rng_state(device)} if device.type == "cuda" else {})


def restore(
    path: Path,
    model: ImageNetwork,
    optimizer: torch.optim.Optimizer | None = None,
    drawn_on: torch.device | None = None,
) -> dict:
    """Put a checkpoint's tensors into ``model`` and ``optimizer`` and return its head.

    With ``drawn_on``, torch's generators for this device go on where they stood.

    Raises:
        GraphcapsError: the checkpoint belongs to another network, or holds NaN or infinity.
    """
    tensors, head = read(path)
    stored = {name[6:]: tensor for name, tensor in tensors.items() if name.startswith("model.")}
    wanted = model.state_dict()
    for name in sorted(wanted.keys() | stored.keys()):
        want, have = (_kind(states.get(name)) for states in (wanted, stored))
        if want != have:
            raise GraphcapsError(f"checkpoint: expected {name} {want}, got {have} in {path}: it is of another model")
        if stored[name].is_floating_point() and not stored[name].isfinite().all():
            raise GraphcapsError(f"checkpoint: expected finite numbers, got NaN or infinity in {name} of {path}")
    model.load_state_dict(stored)
    if optimizer is not None:
        parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        state: dict[int, dict[str, torch.Tensor]] = {}
        for name, tensor in tensors.items():
            if name.startswith("optimizer."):
                _, k, entry = name.split(".", 2)
                like = parameters[int(k)]
                if tensor.shape == like.shape:  # fused Adam takes the numbers as they lie in memory
                    tensor = torch.empty_like(like, dtype=tensor.dtype, device="cpu").copy_(tensor)
                state.setdefault(int(k), {})[entry] = tensor
        optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})
    if drawn_on is not None:
        torch.set_rng_state(tensors["generator.cpu"])
        if drawn_on.type == "cuda" and "generator.cuda" in tensors:
            torch.cuda.set_rng_state(tensors["generator.cuda"], drawn_on)
    return head


def _kind(tensor: torch.Tensor | None) -> str:
    return "none" if tensor is None else f"{tuple(tensor.shape)} {tensor.dtype}"


def read_model(path: Path) -> ImageNetwork:
    """Build the network a checkpoint describes and load its weights; sets ``class_names`` and ``limits`` on it."""
    _, head = read(path)
    try:
        preset = dict(head["preset"], image_shape=tuple(head["preset"]["image_shape"]))
        if "routing" in preset:
            preset["routing"] = from_json(preset["routing"])
        model = from_preset(**preset)
        class_names, num_classes = tuple(head["class_names"]), (model.preset or {})["num_classes"]
        limits = Limits(*head["limits"])
        if len(class_names) != num_classes:
            raise ValueError(f"{len(class_names)} class names for {num_classes} classes")
    except (KeyError, TypeError, ValueError) as error:  # InputError is a ValueError
        raise GraphcapsError(f"checkpoint: expected a description of the network in {path}, got: {error}") from None
    restore(path, model)
    model.class_names, model.limits = class_names, limits
    return model
