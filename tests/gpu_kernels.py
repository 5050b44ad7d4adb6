"""Helpers of the tests of Triton's kernels, which run on CUDA, in Triton's interpreter, or only through its compiler.

The interpreter runs kernels on the CPU. Triton reads TRITON_INTERPRET when it is imported, so it needs a process.
"""

import os
import subprocess
import sys
from pathlib import Path
from unittest.mock import Mock

import pytest
import torch

from graphcaps.kernels.dispatch import has_triton

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
outside_only = pytest.mark.skipif(INTERPRETED or not has_triton(), reason="no Triton here, or this is the interpreter")

COMPILE = """
import torch
from triton.backends.compiler import GPUTarget
from triton.runtime.driver import driver
from triton.runtime.errors import OutOfResources
from triton.runtime.jit import JITFunction

class Target:
    get_current_target = lambda self: GPUTarget(*TARGET)
    get_current_device = lambda self: 0
    get_current_stream = lambda self, device=None: 0

driver.set_active(Target())
launch, compiled = JITFunction.run, set()

def compile_only(self, *arguments, grid, warmup, **options):
    kernel = launch(self, *arguments, grid=grid, warmup=True, **options)
    if kernel.metadata.shared > LIMIT:  # as Triton does when it loads the kernel
        raise OutOfResources(kernel.metadata.shared, LIMIT, "shared memory")
    compiled.add(self.fn.__name__)

JITFunction.run = compile_only
"""


def run(*arguments: str, **environment: str) -> None:
    """Run Python on ``arguments``; fail with what it printed."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")} | environment
    options = {"cwd": Path(__file__).parents[1], "env": environment | {"OMP_NUM_THREADS": "1"}, "timeout": 900}
    done = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, **options)
    assert done.returncode == 0, done.stdout + done.stderr


def run_in_interpreter(file: str, *options: str) -> None:
    """Run the tests of a file in Triton's interpreter."""
    run("-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", file, *options, TRITON_INTERPRET="1")


CARDS = {
    "A100": (("cuda", 80, 32), 163),
    "RTX 3090": (("cuda", 86, 32), 99),
    "RTX 4090": (("cuda", 89, 32), 99),
    "H200": (("cuda", 90, 32), 227),
    "RTX 5090": (("cuda", 120, 32), 99),
    "MI300": (("hip", "gfx942", 64), 64),
}
"""The architecture of a card, and the shared memory of a program in KB."""


def compile_for(card: str, code: str, kernels: set[str], cache: Path) -> None:
    """Compile the kernels that ``code`` launches. They must be these, and fit in this card's shared memory."""
    target, kilobytes = CARDS[card]
    if target[0] == "hip":
        code = f"torch.version.hip = 'as on MI300'\n{code}"
    code = f"TARGET, LIMIT = {target}, {1024 * kilobytes}\n{COMPILE}{code}\nassert compiled == {kernels}, compiled"
    run("-c", code, TRITON_INTERPRET="0", TRITON_CACHE_DIR=str(cache))


def device_of_kernels(monkeypatch: pytest.MonkeyPatch) -> str:
    """Return "cuda", or "cpu" in the interpreter, whose kernels then route; skip elsewhere. New memory holds NaN."""
    if not INTERPRETED and not torch.cuda.is_available():
        pytest.skip("torch sees no CUDA device; the interpreter runs this test in its own process")
    monkeypatch.setattr("graphcaps.kernels.dispatch.on_gpu", lambda votes: True)

    def poisoned(make):
        def with_nan(*arguments, **options):
            made = make(*arguments, **options)
            return made.fill_(float("nan")) if made.is_floating_point() else made

        return with_nan

    for owner, name in ((torch, "empty"), (torch, "empty_like"), (torch.Tensor, "new_empty")):
        monkeypatch.setattr(owner, name, poisoned(getattr(owner, name)))
    return "cpu" if INTERPRETED else "cuda"


def out_of_resources() -> Mock:
    """Return a function that fails as a kernel does that needs more shared memory than a card has."""
    error = type("OutOfResources", (Exception,), {"__module__": "triton.runtime.errors"})
    return Mock(side_effect=error("shared memory, Required: 114688, Hardware limit: 101376"))
