"""Checkpoints: safetensors files with the training state as JSON in the header. Reading one never runs code.

safetensors doesn't detect flipped bits, so the header also contains a SHA-256 of the JSON and the tensors.
"""

import hashlib
import json
import math
import shlex
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from ...algorithms.by_name import from_json
from ...errors import GraphcapsError, InputError, check_json, read_json, reading
from ...files import check_file, replacing
from ...names import clean
from ..config import FORMAT_VERSION, MAX_ITERATIONS, OTHER_VERSION, REMOVED, without_removed
from ..models import ImageNetwork, Limits, from_preset


def write(path: Path, tensors: dict[str, torch.Tensor], head: dict, before: Path | None = None) -> None:
    """Write tensors and the JSON header to one file, atomically. An existing file is moved to ``before``, if given."""
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    text = json.dumps({"format_version": FORMAT_VERSION, **head})
    with replacing(path, before) as temporary:
        try:
            save_file(tensors, temporary, metadata={"graphcaps": text, "sha256": _sha256(text, tensors)})
        except SafetensorError as error:
            raise GraphcapsError(f"{path}: expected to be able to write it, got: {error}") from None


def read(path: Path) -> tuple[dict[str, torch.Tensor], dict]:
    """Read the tensors and the JSON header of a file that ``write`` made; raise ``GraphcapsError`` for other files."""
    if not path.is_file():
        run, fix = path.parent.parent, "Train another run"
        if (run / "config.json").exists() and not (run / "result.json").exists():
            fix = f"It is written at the end of an epoch. Go on with: graphcaps train --resume {shlex.quote(str(run))}"
        raise GraphcapsError(f"checkpoint: expected a file at {path}, got none. {fix}")
    with reading("checkpoint", f"weights written by graphcaps at {path}", kind=GraphcapsError):
        with safe_open(check_file(path), framework="pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
        text, checksum = metadata["graphcaps"], metadata["sha256"]
        head = read_json(text, format_version=int)
        check_json({"settings": {}, "state": {}} | head, settings=dict, state=dict)
    version = head["format_version"]
    if version != FORMAT_VERSION:
        raise GraphcapsError(f"checkpoint: expected format {FORMAT_VERSION} in {path}, got {version}. {OTHER_VERSION}")
    if _sha256(text, tensors) != checksum:
        raise GraphcapsError(f"checkpoint: expected {path} to match its sha256, but it doesn't: the file is damaged")
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


def training_tensors(optimizer: torch.optim.Optimizer, device: torch.device) -> dict[str, torch.Tensor]:
    """The tensors that a resumed training needs, besides ``model_tensors``, for bit-identical results.

    These are the optimizer's state, named ``optimizer.<number of the parameter>.<name>``, and the states of torch's
    random number generators, which dropout uses, named ``generator.<kind of device>``.
    """
    tensors = {"generator.cpu": torch.get_rng_state()}
    if device.type == "cuda":
        tensors["generator.cuda"] = torch.cuda.get_rng_state(device)
    for k, values in optimizer.state_dict()["state"].items():
        tensors |= {f"optimizer.{k}.{name}": tensor for name, tensor in values.items()}
    return tensors


def restore_model(model: ImageNetwork, tensors: dict[str, torch.Tensor], path: Path) -> None:
    """Load the tensors of ``model_tensors`` into a network. float16 tensors are converted to float32.

    Raises:
        GraphcapsError: the tensors belong to another network, or contain NaN or infinity. The network isn't changed.
    """
    stored = {name[6:]: tensor for name, tensor in tensors.items() if name.startswith("model.")}
    stored = {name: tensor.float() if tensor.dtype == torch.float16 else tensor for name, tensor in stored.items()}
    wanted = model.state_dict()
    for name in sorted(wanted.keys() | stored.keys()):
        want, have = (_kind(states.get(name)) for states in (wanted, stored))
        if want != have:
            raise GraphcapsError(f"checkpoint: expected {name} {want}, got {have} in {path}: it is for another model")
        if stored[name].is_floating_point() and not stored[name].isfinite().all():
            raise GraphcapsError(f"checkpoint: expected finite numbers, got NaN or infinity in {name} of {path}")
    model.load_state_dict(stored)


def _kind(tensor: torch.Tensor | None) -> str:
    return "none" if tensor is None else f"{tuple(tensor.shape)} {tensor.dtype}"


def restore_training(optimizer: torch.optim.Optimizer, device: torch.device, tensors: dict[str, torch.Tensor]) -> None:
    """Load the tensors of ``training_tensors`` into an optimizer and torch's random number generators."""
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    state: dict[int, dict[str, torch.Tensor]] = {}
    for name, tensor in tensors.items():
        if name.startswith("optimizer."):
            _, k, entry = name.split(".", 2)
            like = parameters[int(k)]
            if (tensor.shape != like.shape and entry != "step") or not tensor.isfinite().all():
                raise ValueError(f"{name} {_kind(tensor)}, for a parameter {_kind(like)}, or NaN or infinity in it")
            if entry != "step":  # fused Adam ignores strides, so they must equal the parameter's
                tensor = torch.empty_like(like, dtype=tensor.dtype, device="cpu").copy_(tensor)
            state.setdefault(int(k), {})[entry] = tensor
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})
    torch.set_rng_state(tensors["generator.cpu"])
    if device.type == "cuda" and "generator.cuda" in tensors:
        torch.cuda.set_rng_state(tensors["generator.cuda"], device)


def check_sizes(preset: dict[str, Any], numbers: int) -> None:
    """Raise ``ValueError`` if a network is much larger than a file with so many numbers, before it takes any memory."""
    pixels, routing = math.prod(preset["image_shape"]) * preset["num_classes"], preset.get("routing")
    large = pixels > 256 * numbers or (routing is not None and routing.iterations > MAX_ITERATIONS)
    if not large:
        with torch.device("meta"):
            large = sum(weight.numel() for weight in from_preset(**preset).parameters()) > 2**24 + 4 * numbers
    if large:
        raise ValueError(f"sizes beyond those of its {numbers:,} numbers")


def read_model(path: Path) -> tuple[ImageNetwork, dict]:
    """Build a checkpoint's network, with its weights, ``class_names`` and ``limits``; also return the header."""
    tensors, head = read(path)
    try:
        preset = without_removed(dict(head["preset"], image_shape=tuple(head["preset"]["image_shape"])))
        if removed := REMOVED.keys() & preset.keys():
            raise ValueError(f"unknown {', '.join(sorted(removed))}. {OTHER_VERSION}")
        if "routing" in preset:
            preset["routing"] = from_json(preset["routing"])
        check_sizes(preset, sum(tensor.numel() for tensor in tensors.values()))
        model = from_preset(**preset)
        model.class_names, model.limits = tuple(map(clean, head["class_names"])), Limits(*head["limits"])
        if len(model.class_names) != preset["num_classes"]:
            raise ValueError(f"{len(model.class_names)} class names for {preset['num_classes']} classes")
    except Exception as error:  # a forged description fails in any way
        if isinstance(error, GraphcapsError) and not isinstance(error, InputError):
            raise
        raise GraphcapsError(f"checkpoint: expected a description of the network in {path}, got: {error}") from None
    if not any(name.startswith("model.decoder.") for name in tensors):  # the network mnist comes without its decoder
        model.decoder = None
    restore_model(model, tensors, path)
    return model, head
