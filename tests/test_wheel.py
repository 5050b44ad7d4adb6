"""The built wheel, installed into an environment of its own and used from another folder."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest
from PIL import Image

import graphcaps
from graphcaps.data import load_images

ROOT = Path(__file__).parent.parent
SOURCES = ("graphcaps", "viz", "pyproject.toml", "README.md", "LICENSE")


def run(*command, cwd: Path) -> str:
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(command, cwd=cwd, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert done.returncode == 0, done.stdout
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    """The wheel, built from a copy: setuptools would put leftovers of an older build in the checkout into it."""
    copy, dist = tmp_path_factory.mktemp("copy"), tmp_path_factory.mktemp("dist")
    for name in SOURCES:
        source = ROOT / name
        (shutil.copytree if source.is_dir() else shutil.copy)(source, copy / name)
    build = ("-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", dist, ".")
    run(sys.executable, *build, cwd=copy)
    return next(dist.glob("graphcaps-*.whl"))


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory) -> Path:
    """The bin folder of an environment that has the wheel, and this one's libraries but not its graphcaps."""
    env = tmp_path_factory.mktemp("env")
    run(sys.executable, "-m", "venv", "--without-pip", env, cwd=env)
    site = run(env / "bin" / "python", "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=env).strip()
    # A folder named in a .pth file is searched, but its own .pth files, the editable install's, are not read.
    Path(site, "libraries.pth").write_text(sysconfig.get_path("purelib") + "\n")
    run(sys.executable, "-m", "pip", "--python", env / "bin" / "python", "install", "--no-deps", wheel, cwd=env)
    return env / "bin"


def test_the_wheel_holds_every_python_file_the_page_and_the_licence(wheel):
    folders = {"graphcaps": "graphcaps", "viz": "graphcaps/viz"}
    files = {
        f"{there}/{p.relative_to(ROOT / here)}" for here, there in folders.items() for p in (ROOT / here).rglob("*.py")
    }
    names = zipfile.ZipFile(wheel).namelist()
    assert {name for name in names if name.endswith(".py")} == files
    page = {f"graphcaps/viz/explorer/page/{p.name}" for p in (ROOT / "viz" / "explorer" / "page").iterdir()}
    assert {name for name in names if "/page/" in name} == page and len(page) > 5
    assert any(name.endswith("LICENSE") for name in names)
    assert "graphcaps/py.typed" in names  # else no type checker believes the annotations


@pytest.mark.parametrize("command", ["graphcaps", pytest.param("python -m graphcaps", marks=pytest.mark.long)])
def test_the_installed_command_says_its_version(installed, tmp_path, command):
    program, *options = command.split()
    assert graphcaps.__version__ in run(installed / program, *options, "--version", cwd=tmp_path)


def test_every_module_of_the_wheel_can_be_imported(installed, tmp_path):
    script = """
import importlib, pathlib, pkgutil, sys, graphcaps
names = [m.name for m in pkgutil.walk_packages(graphcaps.__path__, "graphcaps.") if not m.name.endswith("__main__")]
for name in names:
    assert sys.prefix in importlib.import_module(name).__file__, name
print(*names)
"""
    names = run(installed / "python", "-c", script, cwd=tmp_path).split()
    assert {"graphcaps.viz", "graphcaps.routing", "graphcaps.nn", "graphcaps.data"} <= set(names)


@pytest.mark.long
def test_the_wheel_writes_an_explorer(installed, tmp_path):
    run(installed / "graphcaps", "viz", "--random", "4x3", "--format", "html", cwd=tmp_path)
    assert "</html>" in (tmp_path / "figures-random" / "explorer.html").read_text(encoding="utf-8")


@pytest.mark.long
def test_the_wheel_routes(installed, tmp_path):
    script = "import graphcaps as g, torch; print(*g.dynamic_routing(g.complete_graph(3, 2), torch.ones(6, 4)).shape)"
    assert run(installed / "python", "-c", script, cwd=tmp_path).splitlines()[-1] == "2 4"


# Take hours, or want what isn't here: files of MNIST, another network's run, a stopped one, ffmpeg.
NOT_WALKED = re.compile(
    r"graphcaps (?:export|bench)\b|--dataset (?!digits)|--model (?:paper|parts)"
    r"|--resume|--on (?:affnist|.*scrambled)|--what places|--format mp4"
)


def walk() -> list[str]:
    """Every command line of code blocks in the README and docs/, once, in the order in which they stand there."""
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    text = "\n".join(page.read_text(encoding="utf-8") for page in pages)
    blocks = re.findall(r"^```(\w*)\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    lines = [line.partition("#")[0].strip() for kind, block in blocks if not kind for line in block.splitlines()]
    return [line for line in dict.fromkeys(lines) if line.startswith("graphcaps ") and not NOT_WALKED.search(line)]


@pytest.mark.long
def test_every_command_of_the_docs_runs_after_all_those_before_it(installed, tmp_path):
    """In one folder and one environment, on scikit-learn's digits and for one epoch."""
    Image.fromarray(load_images("digits").test.pixels[0, 0].numpy()).save(tmp_path / "digit.png")
    lines = walk()
    words = {line.split()[1] for line in lines}
    assert len(lines) > 15 and words == {"train", "evaluate", "predict", "runs", "viz", "explain", "explore"}
    for line in lines:
        newest = max((tmp_path / "runs").glob("*"), key=os.path.getmtime, default="")
        line = re.sub(r"\b(?:RUN|runs/NAME)\b", str(newest), line).replace("--image K", "--image 1")
        if line.startswith("graphcaps train"):
            line = re.sub(r" --(?:train-images|epochs) \d+", "", line) + " --dataset digits --epochs 1"
        run(installed / "graphcaps", *shlex.split(line)[1:], cwd=tmp_path)


def editable_installs() -> list[str]:
    """Every install with pip that the README and docs/ name, in the order in which they stand there."""
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    text = "\n".join(page.read_text(encoding="utf-8") for page in pages)
    return re.findall(r'pip install ((?:--no-deps )?-e "?\.[^`"\s]*)', text)


@pytest.mark.release
def test_no_install_of_the_docs_breaks_the_commands(tmp_path):
    """In one environment, in order, with routing between them; and a copy in site-packages before, as an install
    that is no editable one leaves it."""
    copy, env = tmp_path / "copy", tmp_path / "env"
    for name in SOURCES:
        source = ROOT / name
        (shutil.copytree if source.is_dir() else shutil.copy)(source, copy / name)
    run(sys.executable, "-m", "venv", "--without-pip", env, cwd=tmp_path)
    python = env / "bin" / "python"
    site = Path(run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=tmp_path).strip())
    libraries = {
        sysconfig.get_path("purelib"),
        str(Path(pytest.__file__).parents[1]),
    }  # this environment may link to one
    (site / "libraries.pth").write_text("\n".join(libraries) + "\n")
    assert len(editable_installs()) > 5
    for what in (".", *editable_installs()):
        words = [word.strip('"') for word in what.split()]
        run(python, "-m", "pip", "install", "--no-build-isolation", "--no-index", *words, cwd=copy)
        home = site / "graphcaps" if what == "." else copy / "graphcaps"
        script = (
            "import graphcaps as g, torch; g.dynamic_routing(g.complete_graph(3, 2), torch.ones(6, 4), engine='fused')"
        )
        script += "; print(g.__file__)"
        assert run(python, "-c", script, cwd=tmp_path).splitlines()[-1] == str(home / "__init__.py"), what
        assert graphcaps.__version__ in run(env / "bin" / "graphcaps", "--version", cwd=tmp_path)
    run(env / "bin" / "graphcaps", "viz", "--random", "4x3", "--format", "html", cwd=tmp_path)
    assert not (site / "graphcaps").exists()
