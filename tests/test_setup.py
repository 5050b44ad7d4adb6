"""`make` and CI find a Python that fits, say what is missing, and install only once."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import types
from importlib.machinery import SourceFileLoader
from pathlib import Path

import pytest
from packaging.specifiers import SpecifierSet

from graphcaps import _dgl_wheel

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


@pytest.mark.parametrize("version", ["3.9", "3.10", "3.11", "3.12", "3.13", "3.14", "3.15"])
def test_only_the_pythons_of_pyproject_fit(tmp_path, version):
    path = write_python(tmp_path / "python", version)
    assert (find_python(tmp_path, str(path)).returncode == 0) == (version in SpecifierSet(REQUIRES_PYTHON))


def test_no_fitting_python_gets_an_error_that_says_what_to_do(tmp_path):
    old = write_python(tmp_path / "old-python", "3.9")
    done = find_python(tmp_path, "no-such-python", str(old))
    assert done.returncode == 1 and done.stdout == ""
    assert f"expected one of no-such-python {old} that runs and is 3.10 to 3.14, found none" in done.stderr
    assert "make PYTHON=/path" in done.stderr


def test_the_systems_python_is_recommended_only_where_it_was_asked_for(tmp_path):
    """Debian's python3 may be 3.11, which a target for 3.13 and 3.14 doesn't take."""
    for name in ("python3", "python3.13", "python3.14"):  # before the system's own
        write_shim(tmp_path / name)
    newer = find_python(tmp_path, "python3.13", "python3.14").stderr
    assert "expected one of python3.13 python3.14 that runs" in newer and "apt" not in newer
    assert "apt install python3 python3-venv" in find_python(tmp_path, "python3.14", "python3").stderr


def test_a_python_without_ensurepip_gets_an_error_that_names_the_package(tmp_path):
    bare = write_python(tmp_path / "bare-python", then="sys.modules['ensurepip'] = None")
    done = find_python(tmp_path, str(bare))
    assert done.returncode == 1 and "apt install python3-venv" in done.stderr and str(bare) in done.stderr


def test_the_second_way_is_uv_by_a_pip_that_is_there(tmp_path):
    """The Python that doesn't fit may well have a pip; where none has, uv has to come from elsewhere."""
    for name in ("python3", "python3.11"):  # before the system's own
        write_shim(tmp_path / name)
    old = tmp_path / "old-python"
    old.write_text('#!/bin/sh\ncase "$*" in "-m pip --version") exit 0 ;; *) exit 3 ;; esac\n')
    old.chmod(0o755)
    said = find_python(tmp_path, "python3.11", str(old)).stderr
    pip, install, make = (line.strip() for line in said.splitlines() if line.startswith("    "))
    assert pip == f"{old} -m pip install --target .venv-uv uv"
    assert install == ".venv-uv/bin/uv python install 3.11"
    assert make == 'make PYTHON="$(.venv-uv/bin/uv python find --managed-python 3.11)" ...'
    said = find_python(tmp_path, "no-such-python").stderr
    assert "pip" not in said and "\n    uv python install 3.12\n" in said


def test_a_python_with_ensurepip_is_taken_before_one_without(tmp_path):
    bare = write_python(tmp_path / "bare", then="sys.modules['ensurepip'] = None")
    whole = write_python(tmp_path / "whole")
    assert find_python(tmp_path, str(bare), str(whole)).stdout.strip() == str(whole)


def environment() -> dict[str, str]:
    """The variables of this process; the settings of a `make` that runs these tests are kept out."""
    return {name: os.environ[name] for name in os.environ if not name.startswith(("MAKE", "MFLAGS", "PYTHON", "VENV"))}


def make(folder: Path, *arguments: str) -> str:
    """What `make` prints."""
    return subprocess.check_output(["make", *arguments], cwd=folder, env=environment(), text=True)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """The files that `make` reads, and a virtual environment whose Python only writes down what it is asked to do."""
    for name in ("Makefile", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)
        os.utime(tmp_path / name, (0, 0))
    shutil.copytree(ROOT / ".ci", tmp_path / ".ci")
    python = tmp_path / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/asked\n')
    python.chmod(0o755)
    shutil.copy(python, python.with_name("graphcaps"))
    make(tmp_path, ".venv/installed")
    return tmp_path


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


def test_make_installs_once(checkout):
    make(checkout, ".venv/installed")
    asked = (checkout / "asked").read_text().splitlines()
    find_torch, install, dgl, version = asked
    assert find_torch == ".ci/find-torch auto " and version == "--version"
    assert install.startswith("-m pip install") and install.endswith("-e .") and dgl == "-m graphcaps._dgl_wheel"
    assert ".ci/install" not in make(checkout, "--dry-run", "demo")


def test_a_changed_pyproject_is_installed_into_the_same_environment(checkout):
    os.utime(checkout / ".venv" / "installed", (0, 0))
    os.utime(checkout / "pyproject.toml")
    planned = make(checkout, "--dry-run", "demo")
    assert ".ci/install" in planned and "-m venv" not in planned


def test_make_test_after_make_demo_adds_the_dev_extra_only(checkout):
    planned = make(checkout, "--dry-run", "test")
    assert ".ci/install" in planned and "[dev]" in planned and "-m venv" not in planned


def test_make_demo_makes_room_for_its_own_second_run(checkout):
    planned = make(checkout, "--dry-run", "demo")
    assert planned.index("rm -rf runs/demo\n") < planned.index("train --dataset digits")


GPU_STAGES = ["bench gpu", "-m pytest", "-m pytest", "train --model paper"]


@pytest.mark.parametrize("fails", ["bench gpu", "test_fused_gpu", "test_facts", "train --model"])
def test_make_gpu_runs_each_stage_and_fails_with_any(checkout, fails):
    make(checkout, ".venv/installed-dev")
    (checkout / "asked").unlink()
    for name in ("python", "graphcaps"):
        path = checkout / ".venv" / "bin" / name
        path.write_text(path.read_text() + f'case "$*" in *"{fails}"*) exit 3 ;; esac\n')
    done = subprocess.run(["make", "gpu"], cwd=checkout, env=environment(), capture_output=True, text=True)
    asked = (checkout / "asked").read_text().splitlines()
    assert [line.startswith(stage) for line, stage in zip(asked, GPU_STAGES, strict=True)] == [True] * 4
    assert "--engine" not in asked[-1]
    assert done.returncode != 0 and re.search(r"^make gpu: failed: [a-z]+$", done.stderr, re.MULTILINE), done.stderr


def test_make_gpu_with_nothing_wrong_ends_well(checkout):
    assert "failed" not in make(checkout, "gpu")


COLLECT = """
import sys, torch, pytest
torch.cuda.is_available = lambda: True
sys.exit(pytest.main(["--collect-only", "-q", *sys.argv[1:]]))
"""


@pytest.mark.long
def test_make_gpu_selects_what_runs_on_the_gpu_and_all_of_it(checkout):
    planned = make(checkout, "--dry-run", "gpu").replace("\\\n", " ")
    kernels, facts = (shlex.split(line) for line in re.findall(r"-m pytest (.*?)\|\|", planned))

    def collected(*words: str) -> set[str]:
        env = environment() | {"TRITON_INTERPRET": "0"}
        said = subprocess.check_output([sys.executable, "-c", COLLECT, *words], cwd=ROOT, env=env, text=True)
        return {line for line in said.splitlines() if "::" in line}

    selected, every = collected(*kernels), collected("-m", "", "tests/routing/test_fused_gpu.py")
    assert {name for name in every if "_alone" not in name} == {name for name in selected if "fused_gpu" in name}
    assert any("test_cuda_has_the_batches" in name for name in selected - every)
    found = collected(*facts)
    assert len(found) > 100 and all("cuda" in name for name in found) and any("fused-cuda" in name for name in found)


@pytest.fixture
def find_torch(monkeypatch, tmp_path):
    """`.ci/find-torch` on Linux without an NVIDIA driver or a torch; pip finds what is in one folder."""
    loader = SourceFileLoader("find_torch", str(ROOT / ".ci" / "find-torch"))
    module = types.ModuleType(loader.name)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    loader.exec_module(module)
    monkeypatch.setattr(module.sys, "platform", "linux")
    monkeypatch.setattr(module, "has_nvidia", lambda: False)
    monkeypatch.setattr(module.importlib.util, "find_spec", lambda name: None)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    for wheel in ("torch-2.9.0+cpu", "torch-2.13.0+cpu", "torch-2.15.0", "torchvision-0.28.0"):
        (tmp_path / f"{wheel}-py3-none-any.whl").touch()
    return module


def test_the_newest_cpu_builds_are_taken_where_there_are_both(find_torch, tmp_path, capsys):
    (tmp_path / "torchvision-0.28.0+cpu-py3-none-any.whl").touch()
    assert find_torch.main("auto") is None
    assert capsys.readouterr().out == "torch==2.13.0+cpu torchvision==0.28.0+cpu\n"


def test_a_cpu_torch_whose_torchvision_has_cuda_is_not_taken(find_torch, capsys):
    """That torchvision can't be imported beside it."""
    assert find_torch.main("cpu") is None
    printed = capsys.readouterr()
    assert printed.out == "" and printed.err.startswith("No CPU build of torchvision at pip's sources")


def test_auto_looks_for_no_cpu_build_where_one_is_of_no_use(find_torch, monkeypatch, capsys):
    for name, value in (("has_nvidia", lambda: True), ("sys", types.SimpleNamespace(platform="darwin"))):
        with monkeypatch.context() as patch:
            patch.setattr(find_torch, name, value)
            find_torch.main("auto")
    find_torch.main("default")
    monkeypatch.setattr(find_torch.importlib.util, "find_spec", lambda name: "installed")
    find_torch.main("cpu")
    assert capsys.readouterr() == ("", "")
    assert find_torch.main("gpu") == "TORCH: expected cpu, auto or default, got gpu"


def test_an_environment_that_has_no_room_for_the_cpu_build_gets_the_default(checkout):
    python = checkout / ".venv" / "bin" / "python"
    python.write_text(
        f'#!/bin/sh\necho "$@" >> {checkout}/asked\n'
        'case "$*" in *find-torch*) echo torch==1+cpu ;; *torch==1+cpu*) exit 1 ;; esac\n'
    )
    assert "torch==1+cpu" in make(checkout, ".venv/installed-dev")
    assert [line.split(" -e ")[1] for line in (checkout / "asked").read_text().splitlines() if " -e " in line][1:] == [
        ".[dev] torch==1+cpu",
        ".[dev]",
    ]


def test_a_stage_says_what_it_is_how_long_it_took_and_fails_with_its_command():
    stage = ["sh", ROOT / ".ci" / "stage", "Pictures: 2 seconds"]
    done = subprocess.run([*stage, "echo", "a b"], capture_output=True, text=True)
    assert re.fullmatch(r"\n== Pictures: 2 seconds\na b\n   took \d s\n", done.stdout) and done.returncode == 0
    assert subprocess.run([*stage, "false"], capture_output=True).returncode == 1


def test_the_demo_ends_with_the_explorers_page(checkout):
    planned = make(checkout, "--dry-run", "demo")
    assert planned.index("explore runs/demo") < planned.index("runs/demo/figures/explorer.html")


def test_ci_runs_the_test_command_of_the_readme():
    subprocess.run(["bash", "-n", ROOT / ".ci" / "run"], check=True)
    assert "make test" in (ROOT / "README.md").read_text() and "make test " in (ROOT / ".ci" / "run").read_text()
