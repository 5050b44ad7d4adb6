"""Faults of the machine while a command runs: it goes on, or says in a sentence what failed."""

import errno
import os
import resource
import shutil
import time

import pytest

from graphcaps.cli import main

from ..test_export import CAN_WRITE_ONNX

TRAIN = "train --dataset digits --epochs 1 --batch-size 40 --device cpu --name new"
COMMANDS = [TRAIN, "evaluate run", "viz run", "explain run", "explore run --no-open", "export run --to x.onnx"]


def full(patch):
    """Every write behind a file's first 2,000 bytes fails, as on a full disk; those of C++ too."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2000, limits[1]))
    return lambda: resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def busy(patch):
    """No file can take another's place."""

    def replace(*_):
        raise OSError(errno.EBUSY, os.strerror(errno.EBUSY))

    patch.setattr(os, "replace", replace)


def still(patch):
    """The clocks stand still."""
    for name in ("time", "monotonic", "perf_counter"):
        patch.setattr(time, name, lambda: 1e6)


@pytest.mark.parametrize("fault", [full, busy, still])
@pytest.mark.parametrize("line", COMMANDS)
def test_a_fault_of_the_machine_is_survived_or_said_in_a_sentence(runs, here, capsys, line, fault):
    if line.startswith("export") and not CAN_WRITE_ONNX:
        pytest.skip("needs onnx, onnxscript, onnxruntime and torch 2.9")
    shutil.copytree(runs["ended"], "run")
    with pytest.MonkeyPatch.context() as patch:
        end = fault(patch)
        try:
            code = main(line.split())
        finally:
            if end:
                end()
    said = [text for text in capsys.readouterr().err.splitlines() if text.startswith("graphcaps: ")]
    assert code == len(said) and (fault is still) <= (code == 0), said
    assert not said or "File too large" in said[0] or "Device or resource busy" in said[0], said
    assert not [name for _, _, names in os.walk(".") for name in names if name.startswith(".unfinished")]
