"""Device and precision of a training."""

from __future__ import annotations

import contextlib
import logging
import os
import platform
from collections.abc import Iterator
from importlib.metadata import version
from typing import NamedTuple

import torch

from ... import __version__
from ..._dgl import is_installed
from ...errors import GraphcapsError

log = logging.getLogger(__name__)


class Hardware(NamedTuple):
    """The device of a training, and whether its convolutions and decoder compute in bfloat16."""

    device: torch.device
    bfloat16: bool = False


def find_hardware(device: str, precision: str = "auto", deterministic: bool = False) -> Hardware:
    """The hardware for ``TrainConfig``'s settings of the same names."""
    device = pick_device(device)
    if device == "cuda":
        # cuDNN picks the fastest convolution algorithm and may use tf32. Matrix products stay in float32, because
        # routing uses them. For the decoder alone, tf32 would save little: its products take 1 % of a training step of
        # the paper's network.
        torch.backends.cudnn.benchmark = torch.backends.cudnn.allow_tf32 = not deterministic
    bfloat16 = has_bfloat16(device) if precision == "auto" else precision == "bfloat16"
    return Hardware(torch.device(device), bfloat16)


@contextlib.contextmanager
def usual_torch(deterministic: bool = False) -> Iterator[None]:
    """While the block runs, new tensors are float32 and have gradients, whatever the caller has set.

    If ``deterministic``, torch uses only deterministic kernels.
    """
    dtype, before = torch.get_default_dtype(), torch.are_deterministic_algorithms_enabled()
    torch.set_default_dtype(torch.float32)
    if deterministic:  # otherwise don't call the function: it imports half of torch, which delays Ctrl-C
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # cuBLAS is deterministic only with it
        torch.use_deterministic_algorithms(True)
    try:
        with torch.inference_mode(False), torch.enable_grad():
            yield
    finally:
        torch.set_default_dtype(dtype)
        if deterministic:
            torch.use_deterministic_algorithms(before)


def pick_device(name: str) -> str:
    """Return ``name``, or the best device for "auto". Raise ``GraphcapsError`` if torch doesn't find the device."""
    has_gpu = torch.cuda.is_available()
    if name == "cuda" and not has_gpu:
        raise GraphcapsError("device: expected a cuda device, but torch finds none. Use --device auto or cpu")
    if name == "auto" and not has_gpu and (torch.backends.mps.is_available() or torch.xpu.is_available()):
        log.info("training on the CPU: graphcaps doesn't offer this machine's GPU, only those that torch calls cuda")
    return ("cuda" if has_gpu else "cpu") if name == "auto" else name


def has_bfloat16(device: str) -> bool:
    """Whether bfloat16 is faster than float32: tensor cores on a GPU, AVX-512 BF16 (or AMX) on a CPU."""
    if device == "cuda":
        return torch.cuda.get_device_capability() >= (8, 0)
    return device == "cpu" and bool(getattr(torch.cpu, "_is_avx512_bf16_supported", lambda: False)())


def made_with(hardware: Hardware) -> dict[str, str | int]:
    """Versions, hardware, and the precision of convolutions and decoder, to be stored beside measured results."""
    device = hardware.device.type
    return {
        "graphcaps": __version__,
        "torch": torch.__version__,
        "dgl": version("dgl") if is_installed() else "none",
        "python": platform.python_version(),
        "device": torch.cuda.get_device_name() if device == "cuda" else f"{device}, {platform.machine()}",
        "threads": torch.get_num_threads(),
        "precision": "bfloat16" if hardware.bfloat16 else "float32",
    }
