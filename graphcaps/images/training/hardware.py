"""Device and precision of a training. Accelerate supports one CPU, one GPU, or several processes."""

from __future__ import annotations

import contextlib
import os
import platform
from collections.abc import Iterator
from importlib.metadata import version
from typing import TYPE_CHECKING

import torch

from ... import __version__
from ...errors import GraphcapsError

if TYPE_CHECKING:
    from accelerate import Accelerator

STEPS_BETWEEN = 16  # with several processes on GPUs, number of steps between checks whether one of them must stop


def accelerator(device: str, precision: str = "auto", deterministic: bool = False) -> Accelerator:
    """Make an ``accelerate.Accelerator``. The arguments are those of the same names in ``TrainConfig``.

    Raises:
        GraphcapsError: torch doesn't find the device.
    """
    from accelerate import Accelerator
    from accelerate.state import AcceleratorState

    device = pick_device(device)
    if device == "cuda":
        # cuDNN picks the fastest convolution algorithm and may use tf32. Matrix products stay in float32, because
        # routing uses them. For the decoder alone, tf32 would save little: its products take 1 % of a training step of
        # the paper's network.
        torch.backends.cudnn.benchmark = torch.backends.cudnn.allow_tf32 = not deterministic
    bfloat16 = has_bfloat16(device) if precision == "auto" else precision == "bfloat16"
    if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        AcceleratorState._reset_state(reset_partial_state=True)  # a second training may have other settings
    return Accelerator(cpu=device == "cpu", mixed_precision="bf16" if bfloat16 else "no")


@contextlib.contextmanager
def determinism(wanted: bool) -> Iterator[None]:
    """If ``wanted``, torch uses only deterministic kernels while the block runs."""
    if not wanted:  # return early: use_deterministic_algorithms imports half of torch, which delays Ctrl-C
        yield
        return
    before, warn = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # cuBLAS is deterministic only with it
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before, warn_only=warn)


def pick_device(name: str) -> str:
    """Return ``name``, or the best device for "auto". Raise ``GraphcapsError`` if torch doesn't find the device."""
    there = torch.cuda.is_available()
    if name == "cuda" and not there:
        raise GraphcapsError("device: expected a cuda device, but torch finds none. Use --device auto or cpu")
    return ("cuda" if there else "cpu") if name == "auto" else name


def has_bfloat16(device: str) -> bool:
    """Whether bfloat16 is faster than float32: tensor cores on a GPU, AVX-512 BF16 (or AMX) on a CPU."""
    if device == "cuda":
        return torch.cuda.get_device_capability() >= (8, 0)
    return device == "cpu" and bool(getattr(torch.cpu, "_is_avx512_bf16_supported", lambda: False)())


def any_signal(accelerator: Accelerator, signum: int, step: int = 0) -> int:
    """The signal that a process has received, or 0. The result is the same in all processes, so they stop together.

    On GPUs, communication waits for the device, so only every ``STEPS_BETWEEN``-th step checks.
    """
    if accelerator.num_processes == 1:
        return signum
    if accelerator.device.type != "cpu" and step % STEPS_BETWEEN:
        return 0
    return int(accelerator.gather(torch.tensor([signum], device=accelerator.device)).max())


def made_with(accelerator: Accelerator) -> dict[str, str | int]:
    """Versions, hardware, and the precision of convolutions and decoder, to be stored beside measured results."""
    device = accelerator.device.type
    return {
        "graphcaps": __version__,
        "torch": torch.__version__,
        "dgl": version("dgl"),
        "python": platform.python_version(),
        "device": torch.cuda.get_device_name() if device == "cuda" else f"{device}, {platform.machine()}",
        "threads": torch.get_num_threads(),
        "precision": "bfloat16" if accelerator.mixed_precision == "bf16" else "float32",
        "processes": accelerator.num_processes,
    }
