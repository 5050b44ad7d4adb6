"""Setting up: the line that brings DGL to a newer Python, a Python that fits, and one installation by `make`."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import types
from pathlib import Path

import pytest

from graphcaps import _dgl_wheel

ROOT = Path(__file__).parent.parent


@pytest.fixture
def newer_python(monkeypatch):
    """`graphcaps._dgl_wheel` as Python 3.13 runs it, and what it asks of pip."""
    asked = []
    monkeypatch.setattr(sys, "version_info", (3, 13, 0))
    monkeypatch.setattr(sys, "executable", "/an env/bin/python")
    monkeypatch.setattr(_dgl_wheel.sysconfig, "get_path", {"platlib": "/an env/site-packages"}.get)
    monkeypatch.setattr(
        _dgl_wheel.subprocess, "run", lambda words: asked.append(words) or types.SimpleNamespace(returncode=5)
    )
    return asked


def test_a_newer_python_gets_the_wheel_for_3_12_as_the_error_says_it(newer_python, monkeypatch, capsys):
    monkeypatch.setattr(_dgl_wheel.importlib.util, "find_spec", {"pip": "installed"}.get)
    assert _dgl_wheel.main() == 5
    (words,) = newer_python
    assert words[:4] == ["/an env/bin/python", "-m", "pip", "--disable-pip-version-check"]
    assert shlex.split(_dgl_wheel.line()) == words[:3] + words[4:]
    assert _dgl_wheel.line() in capsys.readouterr().out
    assert _dgl_wheel.line() == (
        '"/an env/bin/python" -m pip install --no-deps --target "/an env/site-packages" '
        '--python-version 3.12 --only-binary=:all: "dgl>=2.1"'
    )


def test_without_pip_the_line_is_one_of_uv(newer_python, monkeypatch):
    """`uv venv` makes environments without pip; `uv pip` takes the same arguments."""
    monkeypatch.setattr(_dgl_wheel.importlib.util, "find_spec", lambda name: None)
    assert shlex.split(_dgl_wheel.line()) == ["uv", "pip", *_dgl_wheel.pip_arguments()]


def test_a_dgl_that_is_there_is_left_alone(newer_python, monkeypatch):
    monkeypatch.setattr(_dgl_wheel.importlib.util, "find_spec", lambda name: "installed")
    assert _dgl_wheel.main() == 0 and newer_python == []


def test_python_3_12_and_older_leave_dgl_to_pip(newer_python, monkeypatch):
    monkeypatch.setattr(_dgl_wheel.importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(sys, "version_info", (3, 12, 1))
    assert _dgl_wheel.main() == 0 and newer_python == []
    assert _dgl_wheel.line() == "pip install dgl"


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
    *_index, install, dgl, version = (tmp_path / "asked").read_text().splitlines()
    assert install.startswith("-m pip install") and " -e ." in install
    assert dgl == "-m graphcaps._dgl_wheel" and version == "--version"
