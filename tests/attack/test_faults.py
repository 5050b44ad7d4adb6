"""A full disk while a command runs: the command finishes, or names in one sentence what failed."""

import os
import resource
import shutil

import pytest

from graphcaps.cli import main

TRAIN = "train --dataset digits --epochs 1 --batch-size 40 --device cpu --name new"


@pytest.mark.parametrize("line", [TRAIN, "viz run"])
def test_a_full_disk_is_survived_or_named(runs, here, capsys, line):
    """Every write behind a file's first 2,000 bytes fails; those of C++ too."""
    shutil.copytree(runs["ended"], "run")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2000, limits[1]))
    try:
        code = main(line.split())
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    errors = [text for text in capsys.readouterr().err.splitlines() if text.startswith("graphcaps: ")]
    assert code == len(errors), errors
    assert not errors or "File too large" in errors[0], errors
    assert not [name for _, _, names in os.walk(".") for name in names if name.startswith(".unfinished")]
