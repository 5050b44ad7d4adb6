"""Faults of the machine while a command runs: the command finishes, or names in one sentence what failed."""

import errno
import os
import resource
import shutil

import pytest

from graphcaps.cli import main

TRAIN = "train --dataset digits --epochs 1 --batch-size 40 --device cpu --name new"


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
    return lambda: None


@pytest.mark.parametrize("fault", [full, busy])
@pytest.mark.parametrize("line", [TRAIN, "evaluate run", "viz run", "explore run --no-open"])
def test_a_fault_of_the_machine_is_survived_or_named(runs, here, capsys, line, fault):
    shutil.copytree(runs["ended"], "run")
    with pytest.MonkeyPatch.context() as patch:
        end = fault(patch)
        try:
            code = main(line.split())
        finally:
            end()
    errors = [text for text in capsys.readouterr().err.splitlines() if text.startswith("graphcaps: ")]
    assert code == len(errors), errors
    assert not errors or "File too large" in errors[0] or "Device or resource busy" in errors[0], errors
    assert not [name for _, _, names in os.walk(".") for name in names if name.startswith(".unfinished")]
