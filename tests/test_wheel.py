"""The built wheel and an editable install, each in an environment of its own and used from another folder."""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

import graphcaps

ROOT = Path(__file__).parent.parent
pytestmark = pytest.mark.long
SOURCES = ("graphcaps", "viz", "pyproject.toml", "setup.py", "README.md", "LICENSE")


def run(*command, cwd: Path) -> str:
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(command, cwd=cwd, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert done.returncode == 0, done.stdout
    return done.stdout


@pytest.fixture(scope="module")
def clone(tmp_path_factory) -> Path:
    """A copy of the sources in a folder called graphcaps, without leftovers of an older build."""
    copy = tmp_path_factory.mktemp("beside") / "graphcaps"
    copy.mkdir()
    for name in SOURCES:
        source = ROOT / name
        (shutil.copytree if source.is_dir() else shutil.copy)(source, copy / name)
    return copy


def environment(folder: Path, *install) -> Path:
    """The bin folder of an environment that has what pip installs, and this one's libraries but not its graphcaps."""
    run(sys.executable, "-m", "venv", "--without-pip", folder, cwd=folder)
    python = folder / "bin" / "python"
    site = run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=folder).strip()
    # Python searches a folder named in a .pth file, but doesn't read that folder's own .pth files.
    libraries = {sysconfig.get_path("purelib"), str(Path(pytest.__file__).parents[1])}  # one may link to the other
    Path(site, "libraries.pth").write_text("\n".join(libraries) + "\n")
    run(sys.executable, "-m", "pip", "--python", python, "install", "--no-deps", *install, cwd=folder)
    return folder / "bin"


@pytest.fixture(scope="module")
def installed(clone, tmp_path_factory) -> Path:
    """The environment of the wheel."""
    dist = tmp_path_factory.mktemp("dist")
    build = ("-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", dist, ".")
    run(sys.executable, *build, cwd=clone)
    return environment(tmp_path_factory.mktemp("env"), next(dist.glob("graphcaps-*.whl")))


@pytest.fixture(scope="module")
def editable(clone, tmp_path_factory) -> Path:
    return environment(tmp_path_factory.mktemp("env"), "--no-build-isolation", "-e", clone)


@pytest.mark.parametrize("kind", ["installed", "editable"])
def test_the_readmes_ten_lines_run_beside_a_clone_that_has_the_packages_name(kind, clone, request):
    """Python sees the clone's folder first, as an empty namespace package."""
    lines = re.search(r"^```python\n(.*?)^```", (ROOT / "README.md").read_text(), re.DOTALL | re.MULTILINE)[1]
    (clone.parent / "mine.py").write_text(lines + "import graphcaps.viz\n")
    printed = run(request.getfixturevalue(kind) / "python", "mine.py", cwd=clone.parent)
    assert "torch.Size([10, 32, 16])" in printed


def test_the_wheel_works_from_another_folder(installed, tmp_path):
    """Every module of the checkout is in it, it routes, and its command writes the explorer's page."""
    script = """
import importlib, pkgutil, sys, torch, graphcaps as g
names = [m.name for m in pkgutil.walk_packages(g.__path__, "graphcaps.") if not m.name.endswith("__main__")]
for name in names:
    assert sys.prefix in importlib.import_module(name).__file__, name
assert g.dynamic_routing(g.complete_graph(3, 2), torch.ones(6, 4)).shape == (2, 4)
print(*names)
"""
    names = run(installed / "python", "-c", script, cwd=tmp_path).splitlines()[-1].split()
    files = {ROOT / "graphcaps": "graphcaps", ROOT / "viz": "graphcaps.viz"}
    wanted = {
        ".".join([top, *path.relative_to(folder).with_suffix("").parts]).removesuffix(".__init__")
        for folder, top in files.items()
        for path in folder.rglob("*.py")
    }
    assert wanted - {"graphcaps", "graphcaps.__main__"} == set(names)
    assert graphcaps.__version__ in run(installed / "graphcaps", "--version", cwd=tmp_path)
    assert "network: mnist, inside graphcaps" in run(installed / "graphcaps", "explore", "--no-open", cwd=tmp_path)
    page = tmp_path / "runs" / "pretrained-mnist" / "figures" / "explorer.html"
    assert "</html>" in page.read_text(encoding="utf-8")
