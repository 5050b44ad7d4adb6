"""`make` and CI find a Python that fits, say what is missing, and install only once."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from packaging.specifiers import SpecifierSet

ROOT = Path(__file__).parent.parent
FIND_PYTHON = ROOT / ".ci" / "find-python"
REQUIRES_PYTHON = re.search('requires-python = "(.*?)"', (ROOT / "pyproject.toml").read_text())[1]


def write_python(path: Path, version: str = "3.12", then: str = "") -> Path:
    """A Python that calls itself ``version`` and its path, and runs ``then`` before what it is given."""
    path.parent.mkdir(parents=True, exist_ok=True)
    claim = f"import sys; sys.version_info = (*map(int, '{version}'.split('.')), 0); sys.executable = '{path}'; {then}"
    path.write_text(f'#!/bin/sh\nexec {sys.executable} -c "{claim}\nexec(sys.argv[1])" "$2"\n')
    path.chmod(0o755)
    return path


def write_shim(path: Path) -> None:
    """What pyenv puts on PATH for a Python that isn't switched on."""
    path.write_text(f"#!/bin/sh\necho 'pyenv: {path.name}: command not found' >&2\nexit 127\n")
    path.chmod(0o755)


def find_python(folder: Path, *candidates: str) -> subprocess.CompletedProcess:
    env = {"PATH": f"{folder}:/usr/bin:/bin", "HOME": str(folder), "PYENV_ROOT": str(folder / "pyenv")}
    return subprocess.run(["sh", FIND_PYTHON, *candidates], env=env, capture_output=True, text=True)


def test_a_shim_that_fails_when_run_is_passed_over(tmp_path):
    write_shim(tmp_path / "some-python3.12")
    fits = write_python(tmp_path / "some-python3.11", "3.11")
    assert find_python(tmp_path, "some-python3.12", "some-python3.11").stdout.strip() == str(fits)


def test_a_python_that_pyenv_keeps_is_found_behind_its_shim(tmp_path):
    write_shim(tmp_path / "python3.12")
    kept = write_python(tmp_path / "pyenv" / "versions" / "3.12.1" / "bin" / "python")
    assert find_python(tmp_path, "python3.12").stdout.strip() == str(kept)


@pytest.mark.parametrize("version", ["3.9", "3.10", "3.11", "3.12", "3.13", "3.14"])
def test_only_the_pythons_of_pyproject_fit(tmp_path, version):
    path = write_python(tmp_path / "python", version)
    assert (find_python(tmp_path, str(path)).returncode == 0) == (version in SpecifierSet(REQUIRES_PYTHON))


def test_no_fitting_python_gets_an_error_that_says_what_to_do(tmp_path):
    old = write_python(tmp_path / "python", "3.9")
    done = find_python(tmp_path, "no-such-python", str(old))
    assert done.returncode == 1 and done.stdout == ""
    assert "expected one of 3.10, 3.11 or 3.12" in done.stderr
    assert f"none that runs among: no-such-python {old}" in done.stderr
    assert "make PYTHON=" in done.stderr


def test_a_python_without_ensurepip_gets_an_error_that_names_the_package(tmp_path):
    bare = write_python(tmp_path / "python", then="sys.modules['ensurepip'] = None")
    done = find_python(tmp_path, str(bare))
    assert done.returncode == 1 and "apt install python3-venv" in done.stderr and str(bare) in done.stderr


def test_a_python_with_ensurepip_is_taken_before_one_without(tmp_path):
    bare = write_python(tmp_path / "bare", then="sys.modules['ensurepip'] = None")
    whole = write_python(tmp_path / "whole")
    assert find_python(tmp_path, str(bare), str(whole)).stdout.strip() == str(whole)


def make(folder: Path, *arguments: str) -> str:
    """What `make` prints; the settings of a `make` that runs these tests are kept from it."""
    env = {name: os.environ[name] for name in os.environ if not name.startswith(("MAKE", "MFLAGS", "PYTHON", "VENV"))}
    return subprocess.check_output(["make", *arguments], cwd=folder, env=env, text=True)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """The files that `make` reads, and a virtual environment whose Python only writes down what it is asked to do."""
    for name in ("Makefile", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)
        os.utime(tmp_path / name, (0, 0))
    python = tmp_path / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/asked\n')
    python.chmod(0o755)
    make(tmp_path, ".venv/installed")
    return tmp_path


def test_make_installs_once(checkout):
    make(checkout, ".venv/installed")
    asked = (checkout / "asked").read_text().splitlines()
    assert len(asked) == 1 and asked[0].startswith("-m pip install") and asked[0].endswith("-e .")
    assert "pip install" not in make(checkout, "--dry-run", "demo")


def test_a_changed_pyproject_is_installed_into_the_same_environment(checkout):
    os.utime(checkout / ".venv" / "installed", (0, 0))
    os.utime(checkout / "pyproject.toml")
    planned = make(checkout, "--dry-run", "demo")
    assert "pip install" in planned and "-m venv" not in planned


def test_make_test_after_make_demo_adds_the_dev_extra_only(checkout):
    planned = make(checkout, "--dry-run", "test")
    assert "pip install" in planned and "[dev]" in planned and "-m venv" not in planned


def test_make_demo_makes_room_for_its_own_second_run(checkout):
    planned = make(checkout, "--dry-run", "demo")
    assert planned.index("rm -rf runs/demo\n") < planned.index("train --dataset digits")


def test_ci_runs_the_test_command_of_the_readme():
    subprocess.run(["bash", "-n", ROOT / ".ci" / "run"], check=True)
    assert "make test" in (ROOT / "README.md").read_text() and "make test " in (ROOT / ".ci" / "run").read_text()
