"""Device and precision of a training, and the processes that share it: one, or several that torchrun starts."""

from __future__ import annotations

import contextlib
import os
import platform
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

import torch
from torch import distributed

from ... import __version__
from ...errors import GraphcapsError

STEPS_BETWEEN = 16  # with several processes on GPUs, number of steps between checks whether one of them must stop


@dataclass(frozen=True)
class Hardware:
    """The device of this process, the precision of convolutions and decoder, and the place among all processes."""

    device: torch.device
    bfloat16: bool = False
    rank: int = 0
    world: int = 1  # the number of processes

    @property
    def main(self) -> bool:
        """Whether this process writes and prints."""
        return self.rank == 0

    def total(self, *numbers: float) -> list[float]:
        """Sum each number over all processes."""
        return self._reduced(numbers, distributed.ReduceOp.SUM)

    def any_signal(self, signum: int, step: int = 0) -> int:
        """The signal that a process has received, or 0. All processes compute the same, so they stop together.

        On GPUs, communication waits for the device, so only every ``STEPS_BETWEEN``-th step checks.
        """
        if self.world > 1 and self.device.type == "cuda" and step % STEPS_BETWEEN:
            return 0
        return int(self._reduced([signum], distributed.ReduceOp.MAX)[0])

    def from_main(self, value: Any) -> Any:
        """The value that the main process passes. The other processes wait for it."""
        values = [value]
        if self.world > 1:
            distributed.broadcast_object_list(values)
        return values[0]

    def _reduced(self, numbers: Any, operation: Any) -> list[float]:
        if self.world == 1:
            return [*numbers]
        tensor = torch.tensor(numbers, dtype=torch.float64, device=self.device)
        distributed.all_reduce(tensor, operation)
        return tensor.tolist()


def find_hardware(device: str, precision: str = "auto", deterministic: bool = False) -> Hardware:
    """The hardware for ``TrainConfig``'s settings of the same names. Under torchrun, connect to the other processes."""
    device, rank, world = pick_device(device), *rank_and_world()
    if device == "cuda":
        # cuDNN picks the fastest convolution algorithm and may use tf32. Matrix products stay in float32, because
        # routing uses them. For the decoder alone, tf32 would save little: its products take 1 % of a training step of
        # the paper's network.
        torch.backends.cudnn.benchmark = torch.backends.cudnn.allow_tf32 = not deterministic
    bfloat16 = has_bfloat16(device) if precision == "auto" else precision == "bfloat16"
    if world > 1:
        if device == "cuda":
            torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        if not distributed.is_initialized():
            distributed.init_process_group("nccl" if device == "cuda" else "gloo")
    return Hardware(torch.device(device), bfloat16, rank, world)


def rank_and_world() -> tuple[int, int]:
    """The number of this process, from 0, and the number of processes, which torchrun sets."""
    environment = os.environ if "LOCAL_RANK" in os.environ else {}
    return int(environment.get("RANK", 0)), int(environment.get("WORLD_SIZE", 1))


@contextlib.contextmanager
def usual_torch() -> Iterator[None]:
    """While the block runs, new tensors are float32 and have gradients, whatever the caller has set."""
    dtype = torch.get_default_dtype()
    torch.set_default_dtype(torch.float32)
    try:
        with torch.inference_mode(False), torch.enable_grad():
            yield
    finally:
        torch.set_default_dtype(dtype)


@contextlib.contextmanager
def determinism(wanted: bool) -> Iterator[None]:
    """If ``wanted``, torch uses only deterministic kernels while the block runs."""
    before = torch.are_deterministic_algorithms_enabled()
    if wanted:  # otherwise don't call the function: it imports half of torch, which delays Ctrl-C
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # cuBLAS is deterministic only with it
        torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        if wanted:
            torch.use_deterministic_algorithms(before)


def pick_device(name: str) -> str:
    """Return ``name``, or the best device for "auto". Raise ``GraphcapsError`` if torch doesn't find the device."""
    has_gpu = torch.cuda.is_available()
    if name == "cuda" and not has_gpu:
        raise GraphcapsError("device: expected a cuda device, but torch finds none. Use --device auto or cpu")
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
        "dgl": version("dgl"),
        "python": platform.python_version(),
        "device": torch.cuda.get_device_name() if device == "cuda" else f"{device}, {platform.machine()}",
        "threads": torch.get_num_threads(),
        "precision": "bfloat16" if hardware.bfloat16 else "float32",
        "processes": hardware.world,
    }
