"""Setting up: the line that brings DGL to a newer Python, and a Python that fits."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from pathlib import Path

from graphcaps import _dgl

ROOT = Path(__file__).parent.parent


def test_a_newer_python_gets_the_wheel_for_3_12(monkeypatch):
    monkeypatch.setattr(sys, "version_info", (3, 13, 0))
    monkeypatch.setattr(sys, "executable", "/an env/bin/python")
    monkeypatch.setattr(sysconfig, "get_path", {"platlib": "/an env/site-packages"}.get)
    rest = 'install --no-deps --target "/an env/site-packages" --python-version 3.12 --only-binary=:all: "dgl>=2.1"'
    for spec, pip in (("installed", '"/an env/bin/python" -m pip'), (None, "uv pip")):  # `uv venv` installs no pip
        monkeypatch.setattr("importlib.util.find_spec", lambda name, spec=spec: spec)
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
