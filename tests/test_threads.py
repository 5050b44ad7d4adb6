"""Threads: one per core, sleeping while they wait; what the user has set stays."""

import os
import subprocess
import sys
from pathlib import Path

import joblib
import pytest

import graphcaps
from graphcaps.cli.threads import HUGE_PAGES, NUMBER, WAITING

CHOSEN = """
import os, sys
from graphcaps.cli import main
from graphcaps.cli.threads import set_number
assert main(["--version"]) == 0 and set_number() is None and "torch" not in sys.modules
print(*(os.environ.get(name) for name in ("OMP_NUM_THREADS", "OMP_WAIT_POLICY", "KMP_BLOCKTIME")))
"""


@pytest.mark.parametrize(
    ("variables", "wanted"),
    [
        ({}, [str(joblib.cpu_count(only_physical_cores=True)), "PASSIVE", "1"]),
        ({"OMP_WAIT_POLICY": "ACTIVE", "OMP_NUM_THREADS": "1"}, ["1", "ACTIVE", "None"]),
    ],
)
def test_the_command_line_chooses_before_torch_is_loaded_what_the_user_has_not_set(variables, wanted):
    unset = {name: value for name, value in os.environ.items() if name not in (*WAITING, NUMBER, HUGE_PAGES)}
    environment = unset | {"PYTHONPATH": str(Path(graphcaps.__file__).parents[1])} | variables
    done = subprocess.run([sys.executable, "-c", CHOSEN], env=environment, capture_output=True, text=True)
    assert done.stdout.split()[-3:] == wanted, done.stderr
