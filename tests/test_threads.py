"""Threads: one per free core, sleeping while they wait; what the user has set stays."""

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
assert main(["--version"]) == 0 and set_number() == "" and "torch" not in sys.modules
print(*(os.environ.get(name) for name in ("OMP_NUM_THREADS", "OMP_WAIT_POLICY", "KMP_BLOCKTIME")))
"""
BUSY = """
import psutil
from graphcaps.cli import threads
psutil.cpu_percent = lambda seconds: 100.0  # other programs have all cores
print(threads.set_number(leave_busy=True), threads.os.environ["OMP_NUM_THREADS"], sep="; ")
"""


def printed(code: str, **variables: str) -> str:
    environment = {name: value for name, value in os.environ.items() if name not in (*WAITING, NUMBER, HUGE_PAGES)}
    environment["PYTHONPATH"] = str(Path(graphcaps.__file__).parents[1])
    command = [sys.executable, "-c", code]
    return subprocess.run(command, env=environment | variables, capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize(
    ("variables", "wanted"),
    [
        ({}, [str(joblib.cpu_count(only_physical_cores=True)), "PASSIVE", "1"]),
        ({"OMP_WAIT_POLICY": "ACTIVE", "OMP_NUM_THREADS": "1"}, ["1", "ACTIVE", "None"]),
    ],
)
def test_the_command_line_chooses_before_torch_is_loaded_what_the_user_has_not_set(variables, wanted):
    assert printed(CHOSEN, **variables).split()[-3:] == wanted


def test_cores_that_other_programs_keep_busy_are_left_to_them():
    cores, logical = joblib.cpu_count(only_physical_cores=True), joblib.cpu_count()
    said = printed(BUSY).strip().split("; ")
    assert said == [f"1 thread: other programs keep {logical:.1f} of {cores} cores busy", "1"] or cores == 1
