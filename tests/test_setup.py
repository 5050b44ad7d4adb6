"""Setting up: the line that brings DGL to a newer Python, a Python that fits, and one installation by `make`."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from graphcaps import _dgl

ROOT = Path(__file__).parent.parent


@pytest.fixture
def newer_python(monkeypatch):
    """`graphcaps._dgl` in an environment of Python 3.13."""
    monkeypatch.setattr(sys, "version_info", (3, 13, 0))
    monkeypatch.setattr(sys, "executable", "/an env/bin/python")
    monkeypatch.setattr(sysconfig, "get_path", {"platlib": "/an env/site-packages"}.get)


def test_a_newer_python_gets_the_wheel_for_3_12(newer_python, monkeypatch):
    rest = 'install --no-deps --target "/an env/site-packages" --python-version 3.12 --only-binary=:all: "dgl>=2.1"'
    for found, pip in (("installed", '"/an env/bin/python" -m pip'), (None, "uv pip")):  # `uv venv` brings no pip
        monkeypatch.setattr("importlib.util.find_spec", lambda name, found=found: found)
        assert _dgl.install_command() == f"{pip} {rest}"
    monkeypatch.setattr(sys, "version_info", (3, 12, 1))
    assert _dgl.install_command() == "pip install dgl"


def test_no_fitting_python_gets_an_error_that_says_what_to_do(tmp_path):
    old = tmp_path / "old-python"
    old.write_text("#!/bin/sh\nexit 3\n")
    old.chmod(0o755)
    command = ["sh", ROOT / ".ci" / "find-python", "no-such-python", str(old)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 1 and done.stdout == ""
    assert f"expected one of no-such-python {old} that runs and is 3.10 to 3.14, found none" in done.stderr
    assert "make PYTHON=/path" in done.stderr


def test_make_installs_once(tmp_path):
    """In a virtual environment whose Python only writes down what it is asked to do."""
    for name in ("Makefile", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)
        os.utime(tmp_path / name, (0, 0))
    shutil.copytree(ROOT / ".ci", tmp_path / ".ci")
    python = tmp_path / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/asked\n')
    python.chmod(0o755)
    shutil.copy(python, python.with_name("graphcaps"))
    ours = {name: os.environ[name] for name in os.environ if not name.startswith(("MAKE", "MFLAGS", "PYTHON", "VENV"))}
    for _ in range(2):
        subprocess.check_output(["make", ".venv/installed"], cwd=tmp_path, env=ours)
    *_index, install, finds_dgl, version = (tmp_path / "asked").read_text().splitlines()
    assert install.startswith("-m pip install") and " -e ." in install
    assert "find_spec" in finds_dgl and version == "--version"
